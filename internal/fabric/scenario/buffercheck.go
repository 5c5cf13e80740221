package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// judgeBuffer compares what befell packets in the buffer of a switch or router, or how many
// deadlocks there were, with a check.
func judgeBuffer(r *report.Run, c *topology.Check) []report.Check {
	var all []report.Check
	for _, b := range c.Bounds {
		v := report.Check{Name: strings.TrimSpace(c.Switch + " " + string(b.Metric)), Expected: bound(b)}
		of := slices.DeleteFunc(slices.Clone(r.Buffers), func(of report.Buffer) bool { return of.Node != c.Switch })
		switch {
		case b.Metric == topology.Deadlocks:
			judgeDeadlocks(&v, b, r.Deadlocks, c.Switch)
		case len(of) == 0:
			v.Got, v.Where = "nothing was measured", states(r.Nodes, c.Switch)
		default:
			got, where := inBuffer(of, b.Metric)
			v.Got, v.Passed = inUnit(b.Metric, got), b.Holds(got)
			if !v.Passed {
				v.Where = where
			}
		}
		all = append(all, v)
	}
	return all
}

// judgeDeadlocks compares the number of deadlocks with a bound: of all or, where a node is given,
// of those that a queue of it was part of.
func judgeDeadlocks(v *report.Check, b topology.Bound, all []report.Deadlock, node string) {
	var parts []string
	for i := range all {
		if node == "" || slices.ContainsFunc(all[i].Queues, func(endpoint string) bool { return strings.HasPrefix(endpoint, node+":") }) {
			parts = append(parts, words.Deadlock(&all[i]))
		}
	}
	v.Got, v.Passed = fmt.Sprint(len(parts)), b.Holds(float64(len(parts)))
	if v.Passed {
		return
	}
	v.Where = atPlaces(parts)
}

// atPlaces returns the first of some places.
func atPlaces(places []string) string {
	if len(places) == 0 {
		return "the tables of buffers in the report"
	}
	const most = 3
	if len(places) > most {
		places = append(places[:most:most], fmt.Sprintf("and %d more", len(places)-most))
	}
	return strings.Join(places, "; ")
}

// inBuffer returns a metric of a node's buffer, in the unit of topology.Metric, and where it comes
// from.
func inBuffer(of []report.Buffer, m topology.Metric) (got float64, where string) {
	queues := report.Queues(of)
	if m == topology.BufferDrops {
		var parts []string
		for _, q := range queues {
			if n := q.Drops(); n > 0 {
				got += float64(n)
				parts = append(parts, fmt.Sprintf("queue %s, class %d: %s", q.Endpoint, q.Class, words.Drops(q.BufferClass)))
			}
		}
		return got, atPlaces(parts)
	}
	if m == topology.PauseTime {
		const ns = 1e3 // of a microsecond
		pauses := report.Pauses(of)
		if len(pauses) == 0 {
			return 0, atPlaces(nil)
		}
		p := pauses[0] // the longest
		return p.US * ns, fmt.Sprintf("%s, which paused %s in class %d, by %s", p.By, p.Whom, p.Class, words.Plural(int(p.Frames), "frame"))
	}
	length := func(q report.Queue) uint64 { return q.Queue.P99 }
	if m == topology.QueuePeak {
		length = func(q report.Queue) uint64 { return q.Queue.Peak }
	}
	where = atPlaces(nil)
	for _, q := range queues {
		if n := float64(length(q)); n > got {
			got, where = n, fmt.Sprintf("queue %s, class %d: %s at the median, %s at the 99th percentile, %s at most", q.Endpoint, q.Class,
				words.Size(q.Queue.P50), words.Size(q.Queue.P99), words.Size(q.Queue.Peak))
		}
	}
	return got, where
}
