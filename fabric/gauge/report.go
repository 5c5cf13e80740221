package gauge

import (
	"github.com/ndklab/ndklab/fabric/impair"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Judged returns the figures of a direction of a link in the form of reports, with the
// overruns of the link's tolerance. rate is asked for at present, or 0. root says that the
// lab is root's.
func (m *Measured) Judged(spec *topology.Link, rate uint64, root bool) report.Direction {
	d := m.Report()
	if d.Lateness != nil {
		for _, b := range m.beyond(Tolerance(spec)) {
			d.Lateness.Late = append(d.Lateness.Late, b.Late)
		}
	}
	d.Overruns = m.overruns(spec, rate, root)
	return d
}

// Report returns the figures in the form of reports.
func (m *Measured) Report() report.Direction {
	return report.Direction{
		Packets:  m.Packets,
		Bytes:    m.Bytes,
		Dropped:  m.Dropped,
		Lost:     m.LostQueue + m.LostDown + m.LostCut + m.LostFault + m.LostOverrun,
		Asked:    Asked(&m.Asked),
		Achieved: achieved(m),

		LostBy:     report.LostBy{Queue: m.LostQueue, Down: m.LostDown, Cut: m.LostCut, Fault: m.LostFault, Overrun: m.LostOverrun},
		Duplicated: m.Duplicated,
		Reordered:  m.Reordered,
		Corrupted:  m.Corrupted,
		Marked:     m.Marked,
		Faulted:    m.Faulted,
		QueuePeak:  &m.PeakBytes,
		Lateness:   lateness(m.Lateness),
		Delays:     delays(m.Delays),
		Replayed:   replayed(m.Replayed),
	}
}

// Set returns the quality that settings ask for.
func Set(settings topology.Impairment) *report.Quality {
	asked := impair.AskedBy(&settings)
	q := Asked(&asked)
	return &q
}

// Asked returns what was asked of a direction: the mean over the packets that met
// settings, or the present ones if none did. What is zero was not asked for.
func Asked(a *impair.Asked) report.Quality {
	var q report.Quality
	for _, v := range []struct {
		field **float64
		value float64
	}{
		{&q.DelayUS, Microseconds(int64(a.Delay))},
		{&q.JitterUS, Microseconds(int64(a.Jitter))},
		{&q.Loss, a.Loss},
		{&q.RateGbps, float64(a.Rate) / 1e9},
		{&q.Burst, a.Burst},
		{&q.Duplicate, a.Duplicate},
		{&q.Reorder, a.Reorder},
		{&q.Corrupt, a.Corrupt},
	} {
		if v.value != 0 {
			*v.field = &v.value
		}
	}
	return q
}

// achieved returns what the engine measured.
func achieved(m *Measured) report.Quality {
	var q report.Quality
	set := func(field **float64, value float64) { *field = &value }
	if m.Delay.Count > 0 {
		set(&q.DelayUS, Microseconds(m.Delay.P50))
		set(&q.JitterUS, Microseconds(m.Delay.P99-m.Delay.P1)/2)
		if a := &m.Asked; a.Reach > 0 {
			// Of the distribution asked for, this range is that of this spread.
			*q.JitterUS *= float64(a.Jitter) / float64(a.Reach)
		}
	}
	met := float64(m.Asked.Packets)
	if met == 0 {
		return q
	}
	set(&q.Loss, float64(m.Dropped)/met)
	set(&q.RateGbps, m.PeakRate/1e9)
	set(&q.Duplicate, float64(m.Duplicated)/met)
	set(&q.Reorder, float64(m.Reordered)/met)
	set(&q.Corrupt, float64(m.Corrupted)/met)
	set(&q.Marked, float64(m.Marked)/met)
	if m.Bursts > 0 {
		set(&q.Burst, float64(m.Dropped)/float64(m.Bursts))
	}
	return q
}

func lateness(d Distribution) *report.Lateness {
	if d.Count == 0 {
		return nil
	}
	return &report.Lateness{Min: Microseconds(d.Min), P10: Microseconds(d.P10), P50: Microseconds(d.P50), P99: Microseconds(d.P99), Packets: d.Count}
}

func delays(bins []Bin) []report.Delays {
	var all []report.Delays
	for _, b := range bins {
		all = append(all, report.Delays{FromUS: Microseconds(b.From), Packets: b.Count})
	}
	return all
}

func replayed(r impair.Replayed) *report.Replayed {
	if r.Packets+r.Unrecorded == 0 {
		return nil
	}
	return &report.Replayed{Packets: r.Packets, Diverged: r.Diverged, Unrecorded: r.Unrecorded}
}

// Microseconds is a duration of so many nanoseconds as reports have it.
func Microseconds(ns int64) float64 { return float64(ns) / 1000 }
