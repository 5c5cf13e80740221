package probe

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// Figures sum a flight up. Delays count from the kernel at one end to that at the
// other, and are 0 if nothing arrived.
type Figures struct {
	Sent       int
	Received   int // once or more
	Lost       int
	Duplicated int           // arrivals beyond a probe's first
	Reordered  int           // probes that arrived behind one that was sent later
	Corrupted  int           // arrivals
	Marked     int           // arrivals
	DelayMin   time.Duration // delays are of probes that the kernel stamped at both ends, if there are any
	DelayP50   time.Duration
	DelayP99   time.Duration
	DelayMax   time.Duration
	Jitter     time.Duration // half the range between the 1st and 99th percentile of delay
	// Rate is wire bits per second from the first probe beyond the skip to the last:
	// what crossed meanwhile, or was lost on its way behind the queue. 0 if there
	// were not two.
	Rate float64
}

// Figures sums the flight up. For the rate, the first skip wire bytes do not count.
func (f *Flight) Figures(skip uint64) Figures {
	var r Figures
	for _, at := range f.Sent {
		if at != 0 {
			r.Sent++
		}
	}
	wire := uint64(impair.WireBytes(f.Size))
	seen := make([]bool, len(f.Sent))
	highest, first := -1, -1
	var firstAt, highestAt time.Duration
	delays := make([]time.Duration, 0, len(f.Arrivals))
	var late []time.Duration // of probes that the kernel did not stamp
	for _, a := range f.Arrivals {
		if a.Corrupted {
			r.Corrupted++
		}
		if a.Marked {
			r.Marked++
		}
		if a.Probe < 0 || f.Sent[a.Probe] == 0 {
			r.Received++ // some probe, of which no more is known
			continue
		}
		if seen[a.Probe] {
			r.Duplicated++
			continue
		}
		seen[a.Probe] = true
		r.Received++
		if delay := a.At - f.Sent[a.Probe]; a.Late || f.SentLate != nil && f.SentLate[a.Probe] {
			late = append(late, delay)
		} else {
			delays = append(delays, delay)
		}
		if a.Probe < highest {
			r.Reordered++
			continue
		}
		highest, highestAt = a.Probe, a.At
		if first < 0 && uint64(a.Probe)*wire >= skip {
			first, firstAt = a.Probe, a.At
		}
	}
	r.Lost = max(0, r.Sent-r.Received)
	if first >= 0 && highestAt > firstAt {
		r.Rate = float64(uint64(highest-first)*wire*8) / (highestAt - firstAt).Seconds()
	}
	if len(delays) == 0 {
		delays = late
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		r.DelayMin, r.DelayMax = delays[0], delays[len(delays)-1]
		r.DelayP50, r.DelayP99 = quantile(delays, 0.5), quantile(delays, 0.99)
		r.Jitter = (r.DelayP99 - quantile(delays, 0.01)) / 2
	}
	return r
}

// quantile is the q-th quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// A Range has the bounds between which a figure is expected, both included.
type Range struct{ Low, High float64 }

// Expected has the ranges of the figures that a flight should have: durations in ns.
type Expected struct {
	Lost, Duplicated, Reordered, Corrupted, Marked Range
	DelayP50, DelayP99                             Range
	Rate                                           Range
	Last                                           time.Duration // when the last probe may arrive, of the clock that the flight has
}

// Bounds on the number of runs of the model: it runs as often as fits the packets,
// and often enough for the extremes to mean something.
const (
	modelPackets = 1 << 20
	leastRuns    = 30
	mostRuns     = 400
)

// deviations is the least distance of the ends of a figure's range from its mean, in
// standard deviations. The deviation itself is known to a seventh only after
// leastRuns; hence so many.
const deviations = 5

// Expect has the model do with the flight's probes what settings say, many times. The
// range of a figure is that of its values in these runs, and a quarter more beyond
// either end. Its ends are at least some standard deviations from the mean, as the
// extremes of few runs are not far apart. The figures of a link that follows the
// settings are outside of it about once in ten thousand flights.
func Expect(f *Flight, settings topology.Impairment, skip uint64) Expected {
	return expect(f, settings, skip, min(max(modelPackets/max(1, len(f.Sent)), leastRuns), mostRuns))
}

// expect is Expect with so many runs.
func expect(f *Flight, settings topology.Impairment, skip uint64, runs int) Expected {
	var e Expected
	ranges := []struct {
		of     func(*Figures) float64
		to     *Range
		values []float64
	}{
		{func(r *Figures) float64 { return float64(r.Lost) }, &e.Lost, nil},
		{func(r *Figures) float64 { return float64(r.Duplicated) }, &e.Duplicated, nil},
		{func(r *Figures) float64 { return float64(r.Reordered) }, &e.Reordered, nil},
		{func(r *Figures) float64 { return float64(r.Corrupted) }, &e.Corrupted, nil},
		{func(r *Figures) float64 { return float64(r.Marked) }, &e.Marked, nil},
		{func(r *Figures) float64 { return float64(r.DelayP50) }, &e.DelayP50, nil},
		{func(r *Figures) float64 { return float64(r.DelayP99) }, &e.DelayP99, nil},
		{func(r *Figures) float64 { return r.Rate }, &e.Rate, nil},
	}
	for run := range runs {
		simulated := simulate(f, settings, run, runs)
		for _, a := range simulated.Arrivals {
			e.Last = max(e.Last, a.At)
		}
		figures := simulated.Figures(skip)
		for i := range ranges {
			ranges[i].values = append(ranges[i].values, ranges[i].of(&figures))
		}
	}
	for _, r := range ranges {
		*r.to = around(r.values)
	}
	return e
}

// around is the range in which another value is that is made like some.
func around(values []float64) Range {
	low, high := slices.Min(values), slices.Max(values)
	mean, variance := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	beyond, far := (high-low)/4, deviations*math.Sqrt(variance)
	return Range{max(0, min(low-beyond, mean-far)), max(high+beyond, mean+far)}
}

// simulate has the model decide on the flight's probes, in one of several runs.
// Settings whose effect depends on how many packets a link has seen, or for how long,
// are at another point in each run.
func simulate(f *Flight, settings topology.Impairment, run, runs int) *Flight {
	if run%2 == 1 {
		settings.Loss.Packets = nil // they may have passed
	}
	model := impair.New(uint64(run), "probe", 0)
	model.Set(settings, 0)
	packet := impair.Packet{Frame: f.Size, Payload: headerLen, ECT: true}
	phase := settings.Flap.Period * time.Duration(run) / time.Duration(runs)
	if every := settings.Loss.Every; every > 1 {
		for range uint64(run) % min(every, uint64(len(f.Sent))) {
			model.Packet(&packet, 0)
		}
		phase += time.Minute // by then they have left
	}
	s := &Flight{Size: f.Size, Sent: f.Sent}
	var begin, now time.Duration
	for i, at := range f.Sent {
		if at == 0 {
			continue
		}
		if begin == 0 {
			begin = at
		}
		now = max(now, at-begin) // a clock may be set back
		v := model.Packet(&packet, now+phase)
		if v.Fate != impair.Passes {
			continue
		}
		a := Arrival{Probe: i, At: v.Departs - phase + begin, Corrupted: v.Flip.Any(), Marked: v.Mark}
		s.Arrivals = append(s.Arrivals, a)
		if v.Twice {
			s.Arrivals = append(s.Arrivals, a)
		}
	}
	slices.SortStableFunc(s.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return s
}
