// Package verify holds what probes find out about a link against what the link is set
// to: how many were lost, duplicated, reordered and corrupted, how long they took, and at
// what rate a burst of them left, each within what package probe expects and the link's
// tolerance.
//
// It sends probes with package probe and knows no labs. It changes nothing of the link.
//
// Start reading at Prepare, then at Direction.Fly.
package verify

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// Probes say what is sent in each direction. Values of 0 are replaced by
// those that suit the link.
type Probes struct {
	Count     int // at most MaxProbes
	PerSecond int
	Size      int // bytes from the Ethernet header on: probe.MinSize to the MTU with that header
}

// MaxProbes bounds Probes.Count: each is remembered.
const MaxProbes = 1_000_000

// Defaults of what is sent.
const (
	usualCount     = 1000
	usualPerSecond = 1000
	usualSize      = 128 // bytes
	usualTime      = 10  // seconds at most, where a low rate slows probes down
	usualShare     = 0.5 // of the rate that probes take, at most
)

const etherLen = 14 // bytes of an Ethernet header

// A Direction is one direction of a link that is verified.
type Direction struct {
	Asked topology.Impairment // that the probes meet
	Found report.Probed       // so far, without the name of the endpoint

	fly       Fly
	from      int
	tolerance topology.Tolerance
	mtu       int
	options   probe.Options
}

// A Fly sends probes from an end of the link, 0 or 1, to the other, as probe.Fly does.
type Fly func(ctx context.Context, from int, o probe.Options, until func(*probe.Flight) time.Duration) (*probe.Flight, error)

// Within returns the Fly of a link whose ends this process reaches.
func Within(ends [2]probe.End) Fly {
	return func(ctx context.Context, from int, o probe.Options, until func(*probe.Flight) time.Duration) (*probe.Flight, error) {
		return probe.Fly(ctx, ends, from, o, until)
	}
}

// Prepare decides what to send over a link from one of its ends. The direction is set to what asked says.
func Prepare(spec *topology.Link, fly Fly, from int, asked topology.Impairment, probes Probes) (*Direction, error) {
	p := &Direction{fly: fly, from: from, Asked: asked, tolerance: linkreport.Tolerance(spec), mtu: spec.MTU}
	largest := p.mtu + etherLen
	switch {
	case probes.Size != 0 && (probes.Size < probe.MinSize || probes.Size > largest):
		return nil, control.Errorf(control.Usage, "probes of %d bytes, expected %d to %d on this link", probes.Size, probe.MinSize, largest)
	case probes.Count < 0 || probes.Count > MaxProbes:
		return nil, control.Errorf(control.Usage, "%d probes, expected 1 to %d", probes.Count, MaxProbes)
	case probes.PerSecond < 0 || probes.PerSecond > MaxProbes:
		return nil, control.Errorf(control.Usage, "%d probes each second, expected 1 to %d", probes.PerSecond, MaxProbes)
	}
	o := probe.Options{Count: probes.Count, PerSecond: probes.PerSecond, Size: probes.Size}
	if o.Size == 0 {
		o.Size = min(usualSize, largest)
	}
	if o.PerSecond == 0 {
		o.PerSecond = usualPerSecond
		if asked.Rate > 0 {
			o.PerSecond = int(min(usualPerSecond, usualShare*float64(asked.Rate)/wireBits(o.Size)))
			if o.PerSecond == 0 {
				return nil, control.Errorf(control.Usage, "link %s: its rate of %s is too low for a probe a second, unless you say how many", spec.Endpoints[0], topology.FormatRate(asked.Rate))
			}
		}
	}
	if o.Count == 0 {
		o.Count = min(usualCount, usualTime*o.PerSecond)
	}
	p.options = o
	p.Found = report.Probed{Settings: asked.Settings(), Size: o.Size, PerSecond: o.PerSecond, Findings: []report.Finding{}}
	if p.Found.Settings == nil {
		p.Found.Settings = []string{}
	}
	return p, nil
}

// wireBits returns the bits of a probe on a wire.
func wireBits(size int) float64 { return 8 * float64(impair.WireBytes(size)) }

// expecting flies probes and says what of them was expected.
func (p *Direction) expecting(ctx context.Context, o probe.Options, skip uint64) (*probe.Flight, probe.Expected, error) {
	var expected probe.Expected
	flight, err := p.fly(ctx, p.from, o, func(f *probe.Flight) time.Duration {
		begin := time.Now()
		expected = probe.Expect(f, p.Asked, skip)
		late := max(p.tolerance.DelayP99, patience)
		return max(0, expected.Last-f.Now-time.Since(begin)) + late
	})
	return flight, expected, err
}

// patience is the lateness within which probes are still seen.
const patience = 200 * time.Millisecond

// earliest is the time by which a packet may seem to take less than its delay, as clocks
// are read.
const earliest = 20 * time.Microsecond

// Fly sends the probes that tell of everything but the rate, and judges what became of
// them.
func (p *Direction) Fly(ctx context.Context) error {
	flight, expected, err := p.expecting(ctx, p.options, 0)
	if err != nil {
		return err
	}
	if flight.Missed > 0 {
		return control.Errorf(control.Unable, "the kernel had no room for %d probes or other packets that were to be seen: fewer each second, or root, help", flight.Missed)
	}
	got := flight.Figures(0)
	r := &p.Found
	r.Sent, r.Received, r.Lost, r.Duplicated = got.Sent, got.Received, got.Lost, got.Duplicated
	r.Reordered, r.Corrupted, r.Marked = got.Reordered, got.Corrupted, got.Marked
	r.Delay = report.Latency{Min: micros(got.DelayMin), P50: micros(got.DelayP50), P99: micros(got.DelayP99), Max: micros(got.DelayMax)}
	r.JitterUS = micros(got.Jitter)
	if flight.Unsure > 0 {
		unsure := micros(flight.Unsure)
		r.ClockErrorUS = &unsure
	}
	if got.Received > 0 {
		p.judgeDelay("delay p50", got.DelayP50, expected.DelayP50, p.tolerance.Delay, flight.Unsure)
		p.judgeDelay("delay p99", got.DelayP99, expected.DelayP99, p.tolerance.DelayP99, flight.Unsure)
	}
	p.judgeCount("lost", got.Lost, expected.Lost, p.tolerance.Loss*float64(got.Sent))
	p.judgeCount("duplicated", got.Duplicated, expected.Duplicated, 0)
	p.judgeCount("reordered", got.Reordered, expected.Reordered, 0)
	p.judgeCount("corrupted", got.Corrupted, expected.Corrupted, 0)
	p.judgeCount("marked", got.Marked, expected.Marked, 0)
	return nil
}

func micros(d time.Duration) float64 { return linkreport.Microseconds(int64(d)) }

// judgeDelay judges a delay, which may be wrong by unsure.
func (p *Direction) judgeDelay(figure string, got time.Duration, expected probe.Range, tolerance, unsure time.Duration) {
	low, high := max(0, linkreport.Microseconds(int64(expected.Low))-micros(earliest)), linkreport.Microseconds(int64(expected.High))+micros(tolerance)
	if unsure > 0 { // packets of a link without delay may seem to arrive before they are sent
		low, high = low-micros(unsure), high+micros(unsure)
	}
	p.judge(figure, micros(got), low, high, words.Duration)
}

func (p *Direction) judgeCount(figure string, got int, expected probe.Range, tolerance float64) {
	low, high := max(0, math.Floor(expected.Low-tolerance)), math.Ceil(expected.High+tolerance)
	p.judge(figure, float64(got), low, high, func(n float64) string { return fmt.Sprint(int(n)) })
}

func (p *Direction) judge(figure string, got, low, high float64, format func(float64) string) {
	f := report.Finding{Figure: figure, Low: low, High: high, Got: got, Passed: got >= low && got <= high, Expected: format(low), Found: format(got)}
	if high > low {
		f.Expected += " to " + format(high)
	}
	p.Found.Findings = append(p.Found.Findings, f)
}

// Parameters of a burst that shows a rate.
const (
	burstTime   = 200 * time.Millisecond // how long the link takes for it
	burstLeast  = 50                     // probes
	burstMost   = 20_000                 // probes
	burstFaster = 2                      // times the rate, to be sent at
	burstLimit  = 5 * time.Second        // for the least
)

// queued returns the number of probes of a size, up to most, that pass an idle link's rate if all
// come at once.
func queued(asked topology.Impairment, size, most int) int {
	model := impair.New(0, "queue", 0)
	model.Set(topology.Impairment{Rate: asked.Rate, Burst: asked.Burst, Queue: asked.Queue}, 0)
	p := impair.Packet{Frame: size}
	for n := range most {
		if model.Packet(&p, 0).Fate != impair.Passes {
			return n
		}
	}
	return most
}

// Burst sends more than the rate lets through, if there is one, and judges the rate.
func (p *Direction) Burst(ctx context.Context) error {
	if p.Asked.Rate == 0 {
		return nil
	}
	rate := float64(p.Asked.Rate)
	// Probes as large as fit, unless that would be too few.
	size := min(p.mtu+etherLen, max(probe.MinSize, int(rate*burstTime.Seconds()/8/burstLeast)))
	o := probe.Options{
		Size:      size,
		PerSecond: max(1, int(burstFaster*rate/wireBits(size))),
		Count:     max(burstLeast, min(burstMost, int(rate*burstTime.Seconds()/wireBits(size)))) + int(float64(p.Asked.Burst)*8/wireBits(size)),
	}
	// Probes that a full queue drops have not crossed: a burst is no more than the queue
	// holds, in probes small enough that this is a burst.
	if n := queued(p.Asked, size, o.Count); n < o.Count {
		if n < burstLeast {
			size = max(probe.MinSize, size*n/burstLeast)
			n = queued(p.Asked, size, o.Count)
		}
		if n < burstLeast {
			p.Found.Remark = fmt.Sprintf("the rate was not measured: the queue before it holds %d probes of %d B, a burst has %d", n, size, burstLeast)
			return nil
		}
		o.Size, o.Count, o.PerSecond = size, n, max(1, int(burstFaster*rate/wireBits(size)))
	}
	if seconds := float64(o.Count) * wireBits(size) / rate; seconds > burstLimit.Seconds() {
		p.Found.Remark = fmt.Sprintf("the rate was not measured: a burst would take %s", words.Duration(seconds*1e6))
		return nil
	}
	flight, expected, err := p.expecting(ctx, o, p.Asked.Burst)
	if err != nil {
		return err
	}
	got := flight.Figures(p.Asked.Burst)
	switch {
	case flight.Missed > 0:
		p.Found.Remark = fmt.Sprintf("the rate was not measured: the kernel had no room for %d packets that were to be seen, which is different for root", flight.Missed)
		return nil
	case got.Rate == 0:
		p.Found.Remark = "the rate was not measured: too few of a burst arrived"
		return nil
	}
	gbps := got.Rate / 1e9
	p.Found.RateGbps = &gbps
	low, high := expected.Rate.Low*(1-p.tolerance.Rate)/1e9, expected.Rate.High*(1+p.tolerance.Rate)/1e9
	p.judge("rate", gbps, low, high, words.Rate)
	if expected.Rate.High < 0.9*rate {
		p.Found.Remark = fmt.Sprintf("the rate is what the machine sent: no more than %s", words.Rate(expected.Rate.High/1e9))
	}
	return nil
}
