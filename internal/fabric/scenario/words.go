package scenario

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// This file describes workloads for people.

// onlyClient returns the node of the workload's client; "" if it has several.
func (w *workloadRun) onlyClient() string {
	if len(w.flows) == 1 {
		return w.flows[0].from
	}
	return ""
}

// describe returns what the workload does, in words.
func (w *workloadRun) describe() string {
	s := w.spec
	text := fmt.Sprintf("workload %s: ", s.Name)
	switch {
	case s.Operation == topology.Program:
		return text + w.commands()
	case s.Mixed:
		text += fmt.Sprintf("%s of mixed sizes up to %s", s.Operation, topology.FormatSize(s.Size))
	case len(s.Sizes) > 0:
		text += fmt.Sprintf("%s of %d sizes up to %s", s.Operation, len(s.Sizes), topology.FormatSize(s.Size))
	case s.Operation == topology.Connect:
		text += string(s.Operation)
	default:
		text += fmt.Sprintf("%s of %s", s.Operation, topology.FormatSize(s.Size))
	}
	switch {
	case len(w.flows) == 1:
		return text + fmt.Sprintf(" from %s to %s", w.flows[0].from, w.flows[0].to)
	case s.Operation == topology.AllReduce:
		return text + fmt.Sprintf(" over %d nodes", len(s.Nodes))
	}
	return text + fmt.Sprintf(", %s of %d nodes, flows: %d", s.Pattern, len(s.Nodes), len(w.flows))
}

// outcome returns what came of the workload, in words.
func (w *workloadRun) outcome() string {
	t := &w.totals
	if w.spec.Operation == topology.Program {
		text := fmt.Sprintf("programs: %d, failed: %d", w.jobs.over, w.jobs.failed)
		if f := w.jobs.measured(); f != nil && f.Gbps > 0 {
			text += ", " + words.Rate(f.Gbps)
		}
		return text
	}
	return fmt.Sprintf("messages: %d, errors: %d, %s", t.messages, t.errors, words.Rate(t.gbps()))
}

// commands returns the workload's programs, and where they run: of clients the first one's.
func (w *workloadRun) commands() string {
	s := w.spec
	text := fmt.Sprintf("`%s` in ", words.CommandLine(s.CommandOf(0)))
	if s.Commands == nil {
		return text + nodes(s.Nodes)
	}
	return text + fmt.Sprintf("%s, then `%s` in %s", s.Nodes[0], words.CommandLine(s.CommandOf(1)), nodes(s.Nodes[1:]))
}

// nodes returns a list of nodes' names that is not too long.
func nodes(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
