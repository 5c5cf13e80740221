package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file is where to look when a workload was not as it was to be: what else went on
// then, what its nodes counted, what its links did, and who has recorded its packets.

// telling are the transport's counters that say why something was slow or failed.
var telling = []string{"retransmitted", "timeouts", "naks_received", "rnr_naks_received", "out_of_sequence", "icrc_errors", "misdirected", "cnps_received"}

// whereOfWorkload is where to look because of a workload.
func whereOfWorkload(t *topology.Topology, r *report.Run, w *report.Workload) string {
	names := nodesOf(w)
	var parts []string
	if text := incidents(r, names); text != "" {
		parts = append(parts, text)
	}
	var counts []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !slices.Contains(names, n.Name) {
			continue
		}
		var some []string
		for _, name := range telling {
			if count := n.Transport[name]; count > 0 {
				some = append(some, fmt.Sprintf("%s %d", name, count))
			}
		}
		if len(some) > 0 {
			counts = append(counts, n.Name+": "+strings.Join(some, ", "))
		}
	}
	if len(counts) > 0 {
		parts = append(parts, "counters of "+strings.Join(shortened(counts), "; "))
	}
	if links := busyLinks(t, r, names); len(links) > 0 {
		parts = append(parts, strings.Join(links, "; "))
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

// nodesOf is the nodes that a workload is about.
func nodesOf(w *report.Workload) []string {
	if w.From != "" {
		return []string{w.From, w.To}
	}
	return w.Nodes
}

func shortened(parts []string) []string {
	const most = 3
	if len(parts) > most {
		return append(parts[:most:most], fmt.Sprintf("%d more nodes", len(parts)-most))
	}
	return parts
}

// incidents are the first things that befell some nodes during the run.
func incidents(r *report.Run, nodes []string) string {
	const most = 2
	var parts []string
	for _, e := range r.Events {
		node, _, _ := strings.Cut(e.Link, ":")
		if e.Kind == WorkloadStarted || e.Kind == WorkloadDone || !slices.Contains(nodes, e.Node) && (node == "" || !slices.Contains(nodes, node)) {
			continue
		}
		if len(parts) == most {
			parts = append(parts, "and what followed")
			break
		}
		parts = append(parts, fmt.Sprintf("%s at %.3f s", e.Text, e.At))
	}
	return strings.Join(parts, ", ")
}

// busyLinks are the links of some nodes, and those on the way from one to another, that
// did something to packets.
func busyLinks(t *topology.Topology, r *report.Run, nodes []string) []string {
	const most = 3
	var parts []string
	for i := range r.Links {
		l := &r.Links[i]
		for d := range l.Directions {
			m := &l.Directions[d]
			var did []string
			if lost := losses(m); lost != "" {
				did = append(did, lost)
			}
			if m.Asked.RateGbps != nil {
				did = append(did, "a rate of "+report.Rate(*m.Asked.RateGbps))
			}
			if m.Asked.DelayUS != nil && *m.Asked.DelayUS > 0 {
				did = append(did, "a delay of "+report.Duration(*m.Asked.DelayUS))
			}
			ends := i < len(t.Links) && slices.ContainsFunc(t.Links[i].Endpoints[:], func(e topology.Endpoint) bool {
				n := t.FindNode(e.Node)
				return slices.Contains(nodes, e.Node) || n != nil && n.Kind != topology.Host // a switch or a router is on somebody's way
			})
			if len(did) == 0 || m.Packets == 0 || !ends {
				continue
			}
			if len(parts) == most {
				return append(parts, "more links in the report")
			}
			parts = append(parts, fmt.Sprintf("link %s to %s: %s", l.Endpoints[d], l.Endpoints[1-d], strings.Join(did, ", ")))
		}
	}
	return parts
}
