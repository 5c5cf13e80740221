package scenario

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// moreIsBetter are the metrics of which more is better than less.
var moreIsBetter = []topology.Metric{
	topology.Throughput, topology.MessageCount, topology.MessageRate, topology.Connections, topology.ConnectRate, topology.Fairness,
}

// compare compares the workloads of a run with those of an earlier one.
func compare(t *topology.Topology, r *report.Run) []report.Check {
	b := t.Baseline
	base, err := report.ReadRun(b.Content, r.Lab)
	if err != nil {
		return []report.Check{at(b, report.Check{Name: "baseline", Expected: "the report of an earlier run", Got: err.Error(), Where: b.File})}
	}
	metrics := b.Metrics
	if metrics == nil {
		metrics = []topology.Metric{topology.Throughput, topology.LatencyP99}
	}
	var all []report.Check
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if b.Workloads != nil && !slices.Contains(b.Workloads, w.Name) {
			continue
		}
		before := workloadOf(base, w.Name)
		if before == nil {
			if b.Workloads != nil {
				all = append(all, at(b, report.Check{Name: w.Name + " against baseline", Expected: "a workload of that name in the baseline", Got: "none", Where: b.File}))
			}
			continue
		}
		for _, m := range metrics {
			if c, ok := against(b, m, before, w); ok {
				if !c.Passed {
					c.Where = fmt.Sprintf("workload %s in %s; %s", w.Name, b.File, whereOfWorkload(t, r, w, m))
				}
				all = append(all, at(b, c))
			}
		}
	}
	return all
}

func at(b *topology.Baseline, c report.Check) report.Check {
	if b.Place.Line > 0 {
		c.At = b.Place.String()
	}
	return c
}

// against compares one metric of a workload with what it was. There is no verdict if it
// was not measured then.
func against(b *topology.Baseline, m topology.Metric, before, now *report.Workload) (report.Check, bool) {
	was, known := measured(before, m)
	if !known {
		return report.Check{}, false
	}
	limit, relation, sign := was*(1+b.Tolerance), "<=", "plus"
	if slices.Contains(moreIsBetter, m) {
		limit, relation, sign = was*(1-b.Tolerance), ">=", "less"
	}
	c := report.Check{
		Name:     now.Name + " " + string(m) + " against baseline",
		Expected: fmt.Sprintf("%s %s (%s %s %s)", relation, inUnit(m, limit), inUnit(m, was), sign, topology.FormatPercent(b.Tolerance)),
	}
	got, known := measured(now, m)
	if !known {
		c.Got = "no message completed" + firstError(now)
	} else {
		c.Got = inUnit(m, got)
		c.Passed = topology.Bound{Relation: relation, Value: limit}.Holds(got)
	}
	return c, true
}
