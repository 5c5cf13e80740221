package lab

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/fabric/gauge"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// fewest is how many packets of a direction are judged: of fewer, one that the
// machine paused for is more than its share.
const fewest = 100

// peakTime is what gauge.Measured.PeakRate is measured over, with what the slots
// there may add.
const peakTime = 110 * time.Millisecond

// overruns holds what happened in a direction of a link, at present asked for a
// rate or 0, against the link's tolerance. What the link itself does, such as a
// full queue, is no overrun: only what the engine did later, or less of, than the
// model says. root is whether the lab is root's, who cannot be told to become that.
func overruns(spec *topology.Link, rate uint64, m *gauge.Measured, root bool) []report.Overrun {
	var found []report.Overrun
	exceeds := func(figure, tolerated, got, remedy, asRoot string) {
		if !root {
			remedy += ", or root, " + asRoot
		}
		remedy += "; else a wider tolerance"
		found = append(found, report.Overrun{
			Figure: figure, Tolerated: tolerated, Got: got, Reason: "the host could not keep up", Remedy: remedy, Allowed: spec.AllowOverrun,
		})
	}
	t := tolerance(spec)
	late := func(figure string, limit time.Duration, got int64, share float64) {
		if got > int64(limit) && !onePause(m, limit, share) {
			exceeds(figure, "up to "+topology.FormatDuration(limit)+" late", report.Duration(gauge.Microseconds(got))+" late",
				"fewer links or slower traffic, more processors", "whose link engine has real-time priority")
		}
	}
	if m.Lateness.Count >= fewest {
		late("median delay", t.Delay, m.Lateness.P50, 0.5)
		late("99th percentile of the delay", t.DelayP99, m.Lateness.P99, 0.01)
	}
	if lost := float64(m.LostOverrun); m.Packets >= fewest && lost > t.Loss*float64(m.Packets) {
		exceeds("packets", "up to "+topology.FormatPercent(t.Loss)+" lost", fmt.Sprintf("%s lost (%d)", report.Percent(lost/float64(m.Packets)), m.LostOverrun),
			"less traffic or a shorter delay, so that less is on its way at once", "who gets larger socket buffers")
	}
	if least := leastPeak(rate, m) * (1 - t.Rate); m.PeakRate < least {
		exceeds("rate", report.Rate(least/1e9)+" at least while packets wait", report.Rate(m.PeakRate/1e9),
			"a lower rate, more processors", "whose link engine has real-time priority")
	}
	return found
}

// longestPause is how long any machine may do nothing for a lab now and then: its
// processors are somebody else's.
const longestPause = 100 * time.Millisecond

// onePause reports whether a single pause of the machine, as long as the latest
// packet was late, would have made that share of the packets later than limit, had
// they come evenly. In a short run it does, and says nothing of whether the machine
// keeps up.
func onePause(m *gauge.Measured, limit time.Duration, share float64) bool {
	pause := min(time.Duration(m.Lateness.Max)-limit, longestPause)
	return pause.Seconds() > share*span(m)
}

// span is about how long packets left the direction, from the first to the last,
// in seconds.
func span(m *gauge.Measured) float64 {
	if m.MeanRate == 0 {
		return 0
	}
	return float64(m.Bytes) * 8 / m.MeanRate
}

// tolerance is a link's.
func tolerance(spec *topology.Link) topology.Tolerance {
	if spec.Tolerance == (topology.Tolerance{}) { // of a topology that no file was read for
		return topology.DefaultTolerance
	}
	return spec.Tolerance
}

// leastPeak is what the engine has to have reached at its busiest, bits per second:
// for as long as a packet waited in the queue, those before it were to leave at the
// rate. One that came before the rate was set waited for that alone, behind nothing
// that was to leave: so the queue is not taken for longer than what was in it. It is
// 0 if that is not known, because the rate was another before or packets were lost
// behind the queue other than evenly.
func leastPeak(rate uint64, m *gauge.Measured) float64 {
	if rate == 0 || rate != m.Asked.Rate || m.LostCut+m.LostFault+m.LostDown > 0 || m.Asked.Burst > 0 {
		return 0
	}
	waited := min(time.Duration(m.Queueing.Max).Seconds(), 8*float64(m.PeakBytes)/float64(rate))
	busy := min(1, waited/peakTime.Seconds())
	return float64(rate) * busy * (1 - m.Asked.Loss)
}
