package scenario

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// This file compares a report with the checks of its topology. It looks at nothing else,
// but for how the programs of checks have ended.

// judge returns the verdicts of all checks, one for each of their bounds, and those of the
// baseline.
func judge(t *topology.Topology, r *report.Run, exits programExits) []report.Check {
	verdicts := []report.Check{}
	for i := range t.Checks {
		c := &t.Checks[i]
		var all []report.Check
		switch {
		case len(c.Command) > 0:
			x := exits[i]
			all = []report.Check{judgeProgram(r.Lab, c, &x)}
		case c.Workload != "":
			all = judgeWorkload(t, r, c)
		case c.Counter != "":
			all = judgeCounter(r, c)
		case c.OfLink:
			all = judgeLink(t, r, c)
		case c.OfBuffer:
			all = judgeBuffer(r, c)
		case c.Left:
			all = judgeLeft(r, c)
		}
		for j := range all {
			if c.Place.Line > 0 {
				all[j].At = c.Place.String()
			}
		}
		verdicts = append(verdicts, all...)
	}
	if t.Baseline != nil {
		verdicts = append(verdicts, compare(t, r)...)
	}
	return verdicts
}

// passed reports whether a run has: no problem has come up, every check has passed, and no
// workload had errors but those whose errors a check is about.
func passed(t *topology.Topology, r *report.Run) bool {
	if len(r.Problems) > 0 {
		return false
	}
	for _, c := range r.Checks {
		if !c.Passed {
			return false
		}
	}
	for i := range r.Workloads {
		if r.Workloads[i].Errors > 0 && !t.ChecksErrors(r.Workloads[i].Name) {
			return false
		}
	}
	return true
}

// judgeWorkload compares a workload with a check.
func judgeWorkload(t *topology.Topology, r *report.Run, c *topology.Check) []report.Check {
	w := workloadOf(r, c.Workload)
	if w == nil {
		return []report.Check{{Name: c.Workload, Expected: "a workload", Got: "none of that name has run"}}
	}
	var all []report.Check
	for _, b := range c.Bounds {
		v := report.Check{Name: w.Name + " " + string(b.Metric), Expected: bound(b)}
		got, known := measured(w, b.Metric)
		switch {
		case !known && isProgram(w):
			v.Got = "none was printed by its programs"
		case !known:
			v.Got = "no message completed"
		default:
			v.Got = inUnit(b.Metric, got)
			v.Passed = b.Holds(got)
		}
		if !v.Passed {
			v.Got += firstError(w)
			v.Where = whereOfWorkload(t, r, w, b.Metric)
		}
		all = append(all, v)
	}
	if c.Verified {
		v := report.Check{Name: w.Name + " verified", Expected: "every payload compared, and right", Got: "verified", Passed: w.Verified}
		switch spec := t.FindWorkload(w.Name); {
		case w.Verified:
		case spec != nil && !spec.Verify:
			v.Got, v.Where = "nothing was compared", fmt.Sprintf("workload %s in the file, which has no `verify: true`", w.Name)
		case w.Errors > 0:
			v.Got, v.Where = words.Plural(int(w.Errors), "error")+firstError(w), whereOfWorkload(t, r, w, topology.Errors)
		case w.Messages == 0:
			v.Got, v.Where = "no message completed", whereOfWorkload(t, r, w, topology.Errors)
		default:
			v.Got, v.Where = "some were compared by a server whose node went down before it could tell", whereOfWorkload(t, r, w, topology.Errors)
		}
		all = append(all, v)
	}
	return all
}

// firstError returns the first error of a workload, to stand behind something else.
func firstError(w *report.Workload) string {
	if w.Error == "" {
		return ""
	}
	return "; the first error: " + w.Error
}

func workloadOf(r *report.Run, name string) *report.Workload {
	for i := range r.Workloads {
		if r.Workloads[i].Name == name {
			return &r.Workloads[i]
		}
	}
	return nil
}

func isProgram(w *report.Workload) bool { return w.Operation == string(topology.Program) }

// measured returns a metric of a workload, in the unit of topology.Metric. known is false if
// there is none since nothing was completed, or no program has printed it.
func measured(w *report.Workload, m topology.Metric) (got float64, known bool) {
	got, known = figure(w, m)
	switch {
	case !isProgram(w) || m == topology.Errors:
	case m == topology.LatencyJitter:
		known = w.Latency.P50 > 0 && w.Latency.P99 > 0
	default:
		known = got > 0
	}
	return got, known
}

// figure returns a metric as the report has it, where what is not known is 0.
func figure(w *report.Workload, m topology.Metric) (got float64, known bool) {
	const ns, s = 1e3, 1e9 // of a microsecond and of a second, in nanoseconds
	perSecond := func(n uint64) float64 {
		if w.Seconds <= 0 {
			return 0
		}
		return float64(n) / w.Seconds
	}
	l := &w.Latency
	latencies := map[topology.Metric]float64{
		topology.LatencyMin: l.Min, topology.LatencyP50: l.P50, topology.LatencyP90: l.P90, topology.LatencyP99: l.P99,
		topology.LatencyP999: l.P999, topology.LatencyP9999: l.P9999, topology.LatencyMax: l.Max, topology.LatencyJitter: l.P99 - l.P50,
	}
	if us, ok := latencies[m]; ok {
		return us * ns, w.Messages > 0
	}
	switch m {
	case topology.Errors:
		return float64(w.Errors), true
	case topology.Throughput:
		return w.Gbps * 1e9, true
	case topology.MessageCount:
		return float64(w.Messages), true
	case topology.MessageRate:
		if isProgram(w) {
			return w.MessageRate, true
		}
		return perSecond(w.Messages), true
	case topology.Connections:
		return float64(w.Connections), true
	case topology.ConnectRate:
		return perSecond(w.Connections), true
	case topology.Reconnects:
		return float64(w.Reconnects), true
	case topology.Recovered:
		got = w.Recovered * s
	case topology.Fairness:
		if got = w.Fairness; len(w.Flows) == 0 {
			got = 1 // one flow has all that there is
		}
	}
	return got, w.Messages > 0
}

// inUnit returns a measured value as files have such values, to four digits.
func inUnit(m topology.Metric, v float64) string {
	switch m {
	case topology.Throughput, topology.LinkRate:
		return topology.FormatRate(uint64(digits(v)))
	case topology.Errors, topology.MessageCount, topology.Connections, topology.Reconnects,
		topology.LinkDropped, topology.LinkOverruns, topology.OpenConnections, topology.Leftovers, topology.BufferDrops:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case topology.MessageRate, topology.ConnectRate:
		return strconv.FormatFloat(digits(v), 'f', -1, 64) + "/s"
	case topology.Fairness:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case topology.QueueP99, topology.QueuePeak:
		return topology.FormatSize(uint64(v))
	case topology.LinkLoss:
		return strconv.FormatFloat(v*100, 'g', 4, 64) + "%"
	}
	return topology.FormatDuration(time.Duration(digits(v)))
}

// digits returns a value of four digits and more, without those behind the fourth.
func digits(v float64) float64 {
	unit := 1.0
	for limit := 1e4; v >= limit; limit *= 10 {
		unit *= 10
	}
	return math.Round(v/unit) * unit
}
