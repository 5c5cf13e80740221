package text

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteCounters writes the counters of nodes for people, in full: first those of
// NDIS, in their order there, then the transport's.
func WriteCounters(w io.Writer, nodes []report.Node) error {
	p := newPage(w)
	writeCounterTable(p, "NDIS counter", report.NDISNames(), nodes, ndis)
	writeCounterTable(p, "transport counter", report.TransportNames(nodes), nodes, transport)
	writeNodeTrouble(p, nodes)
	return p.flush()
}

// The two sets of counters of a node.
func ndis(n *report.Node) map[string]uint64      { return n.Counters }
func transport(n *report.Node) map[string]uint64 { return n.Transport }

// writeCounterTable writes counters as rows of a table in which each node has a column.
func writeCounterTable(p *page, title string, names []string, nodes []report.Node, of func(*report.Node) map[string]uint64) {
	if len(names) == 0 || len(nodes) == 0 {
		return
	}
	t := table{columns: []column{{title: title}}}
	for i := range nodes {
		t.columns = append(t.columns, column{title: Plain(nodes[i].Name), right: true})
	}
	for _, name := range names {
		row := []string{name}
		for i := range nodes {
			cell := "-"
			if value, known := of(&nodes[i])[name]; known {
				cell = words.Count(value)
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
	p.table(&t)
}

// writeNodeTrouble writes which nodes are not ready, and why.
func writeNodeTrouble(p *page, nodes []report.Node) {
	states := make([]report.NodeState, len(nodes))
	for i := range nodes {
		states[i] = nodes[i].NodeState
	}
	writeNodeStates(p, states)
}

func writeNodeStates(p *page, nodes []report.NodeState) {
	first := true
	for _, n := range nodes {
		if n.State == core.NodeIsReady && n.Reason == "" {
			continue
		}
		if first {
			p.section()
			first = false
		}
		text := n.State
		if n.Reason != "" {
			text += " (" + n.Reason + ")"
		}
		p.paragraph("node "+n.Name+": ", text)
	}
}

// WriteChanges writes what has changed in an interval for people.
func WriteChanges(w io.Writer, c *report.Changes) error {
	p := newPage(w)
	p.section()
	when := fmt.Sprintf("%s, in %s s", c.Time.Format("15:04:05.000"), strconv.FormatFloat(c.Seconds, 'f', 3, 64))
	var names []string
	for _, name := range report.NDISNames() {
		if counted(c.Nodes, name, ndis) {
			names = append(names, name)
		}
	}
	var below []string
	for _, name := range report.TransportNames(c.Nodes) {
		if counted(c.Nodes, name, transport) {
			below = append(below, name)
		}
	}
	if len(names)+len(below) == 0 {
		when += ": nothing counted"
	}
	p.line(p.paint.bold(when))
	p.started = false // no empty line behind this one
	writeCounterTable(p, "NDIS counter", names, c.Nodes, ndis)
	writeCounterTable(p, "transport counter", below, c.Nodes, transport)
	writeNodeTrouble(p, c.Nodes)
	p.line("")
	return p.flush()
}

// counted reports whether any node has counted something.
func counted(nodes []report.Node, name string, of func(*report.Node) map[string]uint64) bool {
	return slices.ContainsFunc(nodes, func(n report.Node) bool { return of(&n)[name] > 0 })
}
