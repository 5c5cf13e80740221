// Package linkreport makes the report of a link's directions out of what was measured
// there (package linkstats): what was asked for beside what was achieved, and each figure
// that left the link's tolerance because the machine did not keep up.
//
// It is pure. It measures nothing, and writes no text but that of an overrun.
//
// Start reading at Judged.
package linkreport

import (
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Judged returns what was measured in a direction of a link, with the overruns of the
// link's tolerance. rate is asked for at present, in bits per second, or 0. root says that
// the lab is root's.
func Judged(m *linkstats.Statistics, spec *topology.Link, rate uint64, root bool) report.Direction {
	d := Direction(m)
	if d.Lateness != nil {
		for _, b := range allBeyond(m, Tolerance(spec)) {
			d.Lateness.Late = append(d.Lateness.Late, b.Late)
		}
	}
	d.Overruns = overruns(m, spec, rate, root)
	return d
}

// Direction returns what was measured in a direction of a link, without judging it.
func Direction(m *linkstats.Statistics) report.Direction {
	d := Counters(m)
	d.Asked, d.Achieved = Asked(&m.Asked), achieved(m)
	d.Lateness, d.Delays, d.Replayed = lateness(m.Lateness), delays(m.Delays), replayed(m.Replayed)
	return d
}

// Counters returns what was counted in a direction of a link, and the delay by bounds.
func Counters(m *linkstats.Statistics) report.Direction {
	d := report.Direction{
		Packets: m.Packets,
		Bytes:   m.Bytes,
		Dropped: m.Dropped,
		Lost:    m.Lost(),

		LostBy:     report.LostBy{Queue: m.LostQueue, Down: m.LostDown, Cut: m.LostCut, Fault: m.LostFault, Overrun: m.LostOverrun},
		Duplicated: m.Duplicated,
		Reordered:  m.Reordered,
		Corrupted:  m.Corrupted,
		Marked:     m.Marked,
		Faulted:    m.Faulted,
		QueuePeak:  &m.PeakBytes,
		Pauses:     m.Pauses,
	}
	if m.DelayBars.Count > 0 {
		d.DelayBars = &m.DelayBars
	}
	return d
}

// Set returns the quality that settings ask for.
func Set(settings topology.Impairment) *report.Quality {
	asked := impair.AskedBy(&settings)
	q := Asked(&asked)
	return &q
}

// Asked returns what was asked of a direction: the mean over the packets that met
// settings, or the present ones if none did. Settings of zero were not asked for.
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
func achieved(m *linkstats.Statistics) report.Quality {
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

func lateness(d linkstats.Distribution) *report.Lateness {
	if d.Count == 0 {
		return nil
	}
	return &report.Lateness{Min: Microseconds(d.Min), P10: Microseconds(d.P10), P50: Microseconds(d.P50), P99: Microseconds(d.P99), Packets: d.Count}
}

func delays(bins []linkstats.Bin) []report.Delays {
	var all []report.Delays
	for _, b := range bins {
		all = append(all, report.Delays{FromUS: Microseconds(b.From), Packets: b.Count})
	}
	return all
}

func replayed(r impair.Replayed) *impair.Replayed {
	if r.Packets+r.Unrecorded == 0 {
		return nil
	}
	return &r
}

// Microseconds returns nanoseconds in the unit that reports have.
func Microseconds(ns int64) float64 { return float64(ns) / 1000 }
