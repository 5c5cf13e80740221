package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// This file names where to look when a workload failed a check: what else went on then,
// what its nodes counted, what its links did, and the captures of its packets.

// troubleCounters are the transport's counters that say why something was slow or failed.
var troubleCounters = []string{"receive_overflow", "send_dropped", "retransmitted", "spurious_retransmissions", "timeouts", "naks_received", "rnr_naks_received", "out_of_sequence", "icrc_errors", "misdirected", "early_dropped", "bad_length", "cnps_received"}

// whereOfWorkload returns where to look because of a metric of a workload.
func whereOfWorkload(t *topology.Topology, r *report.Run, w *report.Workload, m topology.Metric) string {
	names := nodesOf(w)
	var parts []string
	if text := incidents(r, w, names); text != "" {
		parts = append(parts, text)
	}
	if counts := troubleCounts(r, names); len(counts) > 0 {
		parts = append(parts, "counters of "+strings.Join(counts, "; "))
	}
	lossy, bounds := linksBetween(t, r.Links, names, m)
	parts = append(parts, lossy...)
	if bounds != "" {
		parts = append(parts, bounds)
	}
	for _, c := range t.Captures {
		if slices.ContainsFunc(c.Interfaces, func(e topology.Endpoint) bool { return slices.Contains(names, e.Node) }) {
			parts = append(parts, "capture "+c.File)
		}
	}
	if len(parts) == 0 {
		return "the lab's log"
	}
	return strings.Join(parts, "; ")
}

// nodesOf returns the nodes that a workload is about.
func nodesOf(w *report.Workload) []string {
	if w.From != "" {
		return []string{w.From, w.To}
	}
	return w.Nodes
}

// troubleCounts returns what nodes counted that says why something was slow or failed, of
// few of them.
func troubleCounts(r *report.Run, nodes []string) []string {
	const most = 3
	var all []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !slices.Contains(nodes, n.Name) {
			continue
		}
		var some []string
		for _, name := range troubleCounters {
			if count := n.Transport[name]; count > 0 {
				some = append(some, fmt.Sprintf("%s %d", name, count))
			}
		}
		if len(some) == 0 {
			continue
		}
		if len(all) == most {
			return append(all, "and more nodes")
		}
		all = append(all, n.Name+": "+strings.Join(some, ", "))
	}
	return all
}

// incidents returns the first things that befell a workload's nodes while it ran.
func incidents(r *report.Run, w *report.Workload, nodes []string) string {
	const most = 3
	var parts []string
	for _, e := range r.Events {
		at := e.At.Seconds()
		node, _, _ := strings.Cut(e.Link, ":")
		if e.Kind == event.WorkloadStarted || e.Kind == event.WorkloadDone || at < w.Began || at > w.Ended ||
			!slices.Contains(nodes, e.Node) && !slices.Contains(nodes, node) {
			continue
		}
		if len(parts) == most {
			parts = append(parts, "and more")
			break
		}
		parts = append(parts, fmt.Sprintf("%s at %.3f s", e.Text, at))
	}
	return strings.Join(parts, ", ")
}

// lossesBetween returns what links of some nodes, and between them, have lost, and why; "" if
// they have lost nothing.
func lossesBetween(t *topology.Topology, links []report.Link, nodes []string) string {
	lossy, _ := linksBetween(t, links, nodes, topology.Errors)
	return strings.Join(lossy, "; ")
}

// linksBetween returns links of some nodes, and between them: those that lost packets, and
// the one that bounds a metric most.
func linksBetween(t *topology.Topology, links []report.Link, nodes []string, m topology.Metric) (lossy []string, bounds string) {
	const most = 3
	bounded := 0.0
	for i := range min(len(links), len(t.Links)) {
		l := &links[i]
		if slices.ContainsFunc(t.Links[i].Endpoints[:], func(e topology.Endpoint) bool {
			n := t.FindNode(e.Node) // switches and routers are on everybody's way
			return n == nil || n.Kind == topology.Host && !slices.Contains(nodes, e.Node)
		}) {
			continue
		}
		for d := range l.Directions {
			name := fmt.Sprintf("link %s to %s", l.Endpoints[d], l.Endpoints[1-d])
			if lost := losses(&l.Directions[d]); lost != "" {
				lossy = append(lossy, name+": "+lost)
			}
			switch asked := &l.Directions[d].Asked; {
			case perTime(m) && asked.RateGbps != nil && (bounded == 0 || *asked.RateGbps < bounded):
				bounds, bounded = name+", whose rate is "+words.Rate(*asked.RateGbps), *asked.RateGbps
			case isLatency(m) && asked.DelayUS != nil && *asked.DelayUS > bounded:
				bounds, bounded = name+", whose delay is "+words.Duration(*asked.DelayUS), *asked.DelayUS
			}
		}
	}
	if len(lossy) > most {
		lossy = append(lossy[:most:most], "more links that lost packets")
	}
	return lossy, bounds
}

// perTime reports whether a metric is how much in how long.
func perTime(m topology.Metric) bool {
	return m == topology.Throughput || m == topology.MessageRate || m == topology.ConnectRate
}

func isLatency(m topology.Metric) bool { return strings.HasPrefix(string(m), "latency_") }
