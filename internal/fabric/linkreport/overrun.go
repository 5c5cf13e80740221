package linkreport

import (
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// Texts in overruns.
const (
	tooSlow  = "the host could not keep up"
	realTime = "whose link engine has real-time priority"
)

// overruns returns what happened in a direction of a link, at present asked for a
// rate or 0, against the link's tolerance (docs/topology.md, Tolerance). A full
// queue, or anything else that the link itself does, is no overrun: only what the engine did
// later, or less of, than the model says. root says that the lab is root's, whom no remedy
// tells to become that.
func overruns(m *linkstats.Statistics, spec *topology.Link, rate uint64, root bool) []report.Overrun {
	var found []report.Overrun
	exceeds := func(o report.Overrun, asRoot string) {
		if !root {
			o.Remedy += ", or root, " + asRoot
		}
		o.Remedy += "; else a wider tolerance"
		o.Allowed = spec.AllowOverrun
		found = append(found, o)
	}
	t := Tolerance(spec)
	for _, b := range allBeyond(m, t) {
		if b.Packets <= tolerated(m.Lateness.Count, b.Tolerated) {
			continue
		}
		exceeds(report.Overrun{
			Figure: "packets more than " + words.Limit(&b.Late) + " late", Tolerated: "up to " + topology.FormatPercent(b.Tolerated),
			Got:    fmt.Sprintf("%s (%d of %d)", words.Percent(float64(b.Packets)/float64(m.Lateness.Count)), b.Packets, m.Lateness.Count),
			Reason: b.reason, Remedy: "fewer links or slower traffic, more processors",
		}, realTime)
	}
	if m.Early > 0 {
		found = append(found, report.Overrun{
			Figure: "packets that left before their time", Tolerated: "none", Got: fmt.Sprintf("%d of %d", m.Early, m.Lateness.Count),
			Reason: "a fault of the link engine", Remedy: "please report it", Allowed: spec.AllowOverrun,
		})
	}
	if lost := float64(m.LostOverrun); lost > t.Loss*float64(m.Packets) {
		exceeds(report.Overrun{
			Figure: "packets", Tolerated: "up to " + topology.FormatPercent(t.Loss) + " lost",
			Got:    fmt.Sprintf("%s lost (%d of %d)", words.Percent(lost/float64(max(m.Packets, 1))), m.LostOverrun, m.Packets),
			Reason: tooSlow, Remedy: "less traffic or a shorter delay, so that less is on its way at once",
		}, "who gets larger socket buffers")
	}
	if least := leastPeak(rate, m) * (1 - t.Rate); m.PeakRate < least {
		exceeds(report.Overrun{
			Figure: "rate", Tolerated: words.Rate(least/1e9) + " at least while packets wait", Got: words.Rate(m.PeakRate / 1e9),
			Reason: tooSlow, Remedy: "a lower rate, more processors",
		}, realTime)
	}
	return found
}

// A beyond counts the packets that left later than a limit of the tolerance.
type beyond struct {
	report.Late
	reason string // why there are too many, if there are
}

// allBeyond counts by the three limits of a tolerance. A machine that is busy makes packets
// late, but not nine of ten: so many are the engine's own doing.
func allBeyond(m *linkstats.Statistics, t topology.Tolerance) [3]beyond {
	of := func(limit time.Duration, packets uint64, tolerated float64, reason string) beyond {
		return beyond{report.Late{LimitUS: Microseconds(int64(limit)), Packets: packets, Tolerated: tolerated}, reason}
	}
	return [3]beyond{
		of(t.DelayP10, m.Late.P10, 0.9, "the link engine is late all the time"),
		of(t.Delay, m.Late.P50, 0.5, tooSlow),
		of(t.DelayP99, m.Late.P99, 0.01, tooSlow),
	}
}

// tolerated returns the number of packets that make up a share of all: one at least, since
// a single packet says nothing of a share.
func tolerated(packets uint64, share float64) uint64 {
	const parts = 1000 // integers: 0.01 of 2,900 is less than 29 in binary
	return max(1, packets*uint64(math.Round(share*parts))/parts)
}

// peakTime is the time over which linkstats.Statistics.PeakRate is taken, with what the slots there
// may add.
const peakTime = 110 * time.Millisecond

// Tolerance returns the tolerance of a link.
func Tolerance(spec *topology.Link) topology.Tolerance {
	if spec.Tolerance == (topology.Tolerance{}) { // of a topology that no file was read for
		return topology.DefaultTolerance
	}
	return spec.Tolerance
}

// leastPeak returns the rate that the engine has to have reached at its busiest, bits per
// second: for as long as a packet waited in the queue, those before it were to leave at the
// rate. One that came before the rate was set waited for that alone, behind nothing
// that was to leave: so the queue is not taken for longer than what was in it. It is
// 0 if that is not known, because the rate was another before or packets were lost
// behind the queue other than evenly.
func leastPeak(rate uint64, m *linkstats.Statistics) float64 {
	if rate == 0 || rate != m.Asked.Rate || m.LostCut+m.LostFault+m.LostDown > 0 || m.Asked.Burst > 0 {
		return 0
	}
	waited := min(time.Duration(m.Queueing.Max).Seconds(), 8*float64(m.PeakBytes)/float64(rate))
	busy := min(1, waited/peakTime.Seconds())
	return float64(rate) * busy * (1 - m.Asked.Loss)
}
