package scenario

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// judgeLink compares what a link achieved with a check: in one direction, or in each of
// both.
func judgeLink(t *topology.Topology, r *report.Run, c *topology.Check) []report.Check {
	name := fmt.Sprintf("link %s", t.Links[c.Link].Endpoints[0])
	if c.From != "" {
		name += " from " + c.From
	}
	var all []report.Check
	for _, b := range c.Bounds {
		v := report.Check{Name: name + " " + string(b.Metric), Expected: bound(b), Passed: true}
		if c.Link >= len(r.Links) {
			v.Passed, v.Got = false, "nothing: the state of the links could not be had"
			all = append(all, v)
			continue
		}
		l := &r.Links[c.Link]
		var got, missed []string
		for d, e := range t.Links[c.Link].Endpoints {
			if c.From != "" && e.Node != c.From {
				continue
			}
			text, known := "not measured", false
			value, ok := achieved(&l.Directions[d], b.Metric)
			if ok {
				text, known = inUnit(b.Metric, value), b.Holds(value)
			}
			got = append(got, fmt.Sprintf("%s from %s", text, l.Endpoints[d]))
			if known {
				continue
			}
			v.Passed = false
			missed = append(missed, whereOfDirection(l, d, ok))
		}
		v.Got = strings.Join(got, ", ")
		v.Where = strings.Join(missed, "; ")
		all = append(all, v)
	}
	return all
}

// achieved returns a metric of a direction, in the unit of topology.Metric, if it was measured.
func achieved(d *report.Direction, m topology.Metric) (got float64, known bool) {
	const ns = 1e3 // of a microsecond
	switch m {
	case topology.LinkDropped:
		return float64(d.Dropped + d.Lost), true
	case topology.LinkLoss:
		if d.Packets == 0 {
			return 0, true
		}
		return float64(d.Dropped+d.Lost) / float64(d.Packets), true
	case topology.LinkOverruns:
		return float64(len(d.Overruns)), true
	case topology.LinkRate:
		if d.Achieved.RateGbps != nil {
			return *d.Achieved.RateGbps * 1e9, true
		}
	case topology.LinkDelay:
		if d.Achieved.DelayUS != nil {
			return *d.Achieved.DelayUS * ns, true
		}
	case topology.LinkDelayP99:
		us, ok := delayPercentile(d.Delays, 0.99)
		return us * ns, ok
	}
	return 0, false
}

// delayPercentile returns the delay, in microseconds, that a fraction of the packets had at
// most, as exactly as the histogram tells: the end of the bar in which it lies.
func delayPercentile(bars []report.Delays, fraction float64) (us float64, known bool) {
	var all, below uint64
	for _, b := range bars {
		all += b.Packets
	}
	for i, b := range bars {
		below += b.Packets
		if all > 0 && float64(below) >= fraction*float64(all) {
			if i+1 < len(bars) {
				return bars[i+1].FromUS, true
			}
			return b.FromUS, true
		}
	}
	return 0, false
}

// whereOfDirection returns what explains how packets of a direction fared.
func whereOfDirection(l *report.Link, d int, measured bool) string {
	m := &l.Directions[d]
	name := fmt.Sprintf("%s to %s", l.Endpoints[d], l.Endpoints[1-d])
	switch {
	case !measured && l.Engine == "netem":
		return name + ": what netem does is not measured"
	case !measured && m.Packets == 0:
		return name + ", which carried no packet"
	case !measured:
		return name + ", on which nothing is measured as long as it has no impairment"
	}
	text := fmt.Sprintf("%s, which carried %d packets", name, m.Packets)
	if lost := losses(m); lost != "" {
		text += ": " + lost
	}
	for _, o := range m.Overruns {
		text += "; overrun: " + words.Overrun(&o)
	}
	return text
}

// losses returns why packets of a direction were lost.
func losses(d *report.Direction) string {
	var parts []string
	for _, l := range []struct {
		n     uint64
		words string
	}{
		{d.Dropped, "dropped by asked-for loss"}, {d.LostBy.Queue, "lost to a full queue before the rate"}, {d.LostBy.Down, "lost while it was down"},
		{d.LostBy.Cut, "lost while it was cut"}, {d.LostBy.Fault, "dropped by faults"},
		{d.LostBy.Overrun, "lost because the link engine did not keep up"}, {d.LostBy.Kernel, "lost by the kernel"},
	} {
		if l.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", l.n, l.words))
		}
	}
	return strings.Join(parts, ", ")
}
