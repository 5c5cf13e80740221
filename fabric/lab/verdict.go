package lab

import (
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// check holds workloads' results against the bounds of the topology.
func check(checks []topology.Check, workloads []report.Workload) []report.Check {
	verdicts := []report.Check{}
	for _, c := range checks {
		for i := range workloads {
			if workloads[i].Name != c.Workload {
				continue
			}
			for _, b := range c.Bounds {
				verdicts = append(verdicts, judge(b, &workloads[i]))
			}
		}
	}
	return verdicts
}

func judge(b topology.Bound, w *report.Workload) report.Check {
	const ns = 1e3 // per microsecond
	verdict := report.Check{Name: w.Name + " " + string(b.Metric), Expected: b.Text}
	var got float64
	measured := w.Messages > 0
	switch b.Metric {
	case topology.Errors:
		got, measured = float64(w.Errors), true
		verdict.Got = fmt.Sprint(w.Errors)
	case topology.Throughput:
		got, measured = w.Gbps*1e9, true
		verdict.Got = topology.FormatRate(uint64(math.Round(got/1e6)) * 1e6)
	case topology.LatencyMin:
		got = w.Latency.Min * ns
	case topology.LatencyP50:
		got = w.Latency.P50 * ns
	case topology.LatencyP99:
		got = w.Latency.P99 * ns
	case topology.LatencyMax:
		got = w.Latency.Max * ns
	}
	switch {
	case !measured:
		verdict.Got = "no message completed"
		return verdict
	case verdict.Got == "":
		verdict.Got = topology.FormatDuration(rounded(got))
	}
	verdict.Passed = b.Holds(got)
	return verdict
}

// verdict is whether a run has passed: every check has, and no workload had
// errors but those whose errors a check is about.
func verdict(checks []topology.Check, r *report.Run) bool {
	for _, c := range r.Checks {
		if !c.Passed {
			return false
		}
	}
	judged := map[string]bool{}
	for _, c := range checks {
		for _, b := range c.Bounds {
			if b.Metric == topology.Errors {
				judged[c.Workload] = true
			}
		}
	}
	for i := range r.Workloads {
		if r.Workloads[i].Errors > 0 && !judged[r.Workloads[i].Name] {
			return false
		}
	}
	return true
}

// rounded is a time in nanoseconds, to four digits.
func rounded(ns float64) time.Duration {
	unit := time.Duration(1)
	for limit := 1e4; ns >= limit; limit *= 10 {
		unit *= 10
	}
	return time.Duration(ns).Round(unit)
}
