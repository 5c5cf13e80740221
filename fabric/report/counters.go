package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// WriteJSONLine writes v, a value of this package, as one JSON value on a line.
func WriteJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteCounters writes the counters of nodes for people, in full: first those of
// NDIS, in their order there, then the transport's.
func WriteCounters(w io.Writer, nodes []Node) error {
	p := newPage(w)
	p.matrix("NDIS counter", NDISNames(), nodes, ndis)
	p.matrix("transport counter", TransportNames(nodes), nodes, transport)
	p.trouble(nodes)
	return p.flush()
}

// The two sets of counters of a node.
func ndis(n *Node) map[string]uint64      { return n.Counters }
func transport(n *Node) map[string]uint64 { return n.Transport }

// NDISNames are the names of the counters of an adapter, in the order of
// NDIS_NDK_PERFORMANCE_COUNTERS.
func NDISNames() []string {
	names := make([]string, len(nodeCounters))
	for i, c := range nodeCounters {
		names[i] = c.name
	}
	return names
}

// TransportNames are the names of the transport's counters that any of the nodes has, sorted.
func TransportNames(nodes []Node) []string { return namesOf(nodes, transport) }

// CounterNames are the names of the counters, of either set, that any of the nodes has,
// sorted.
func CounterNames(nodes []Node) []string { return namesOf(nodes, ndis, transport) }

func namesOf(nodes []Node, sets ...func(*Node) map[string]uint64) []string {
	all := map[string]bool{}
	for i := range nodes {
		for _, set := range sets {
			for name := range set(&nodes[i]) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Sum adds up a counter, of either set, over nodes. found is false if none of them has it.
func Sum(nodes []Node, counter string) (sum uint64, found bool) {
	for i := range nodes {
		for _, counters := range []map[string]uint64{nodes[i].Counters, nodes[i].Transport} {
			value, ok := counters[counter]
			sum, found = sum+value, found || ok
		}
	}
	return sum, found
}

// matrix writes counters as rows of a table in which each node has a column.
func (p *page) matrix(title string, names []string, nodes []Node, of func(*Node) map[string]uint64) {
	if len(names) == 0 || len(nodes) == 0 {
		return
	}
	t := table{columns: []column{{title: title}}}
	for i := range nodes {
		t.columns = append(t.columns, column{title: plain(nodes[i].Name), right: true})
	}
	for _, name := range names {
		row := []string{name}
		for i := range nodes {
			cell := "-"
			if value, known := of(&nodes[i])[name]; known {
				cell = count(value)
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
	p.table(&t)
}

// trouble says which nodes are not ready, and why.
func (p *page) trouble(nodes []Node) {
	states := make([]NodeState, len(nodes))
	for i := range nodes {
		states[i] = nodes[i].NodeState
	}
	p.states(states)
}

func (p *page) states(nodes []NodeState) {
	first := true
	for _, n := range nodes {
		if n.State == NodeReady && n.Reason == "" {
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

// Changes holds what nodes counted in an interval.
type Changes struct {
	Lab     string    `json:"lab"`
	Time    time.Time `json:"time"`    // of the interval's end
	Seconds float64   `json:"seconds"` // of the interval
	Nodes   []Node    `json:"nodes"`   // ActiveConnection is how many there are at the end
}

// Since returns what nodes have counted since before, which holds the same nodes.
func Since(before, now []Node) []Node {
	changed := slices.Clone(now)
	for i := range changed {
		n := &changed[i]
		n.Counters, n.Transport = since(before[i].Counters, n.Counters), since(before[i].Transport, n.Transport)
		n.Usage = n.Usage.since(before[i].Usage)
	}
	return changed
}

func since(before, now map[string]uint64) map[string]uint64 {
	changed := map[string]uint64{}
	for name, value := range now {
		was, known := before[name]
		switch {
		case name == gauge:
			changed[name] = value
		case known: // else the node did not answer then
			changed[name] = value - min(value, was)
		}
	}
	return changed
}

// gauge is the one counter that may decrease.
const gauge = "ActiveConnection"

// WriteChanges writes what has changed in an interval for people.
func WriteChanges(w io.Writer, c *Changes) error {
	p := newPage(w)
	p.section()
	when := fmt.Sprintf("%s, in %s s", c.Time.Format("15:04:05.000"), strconv.FormatFloat(c.Seconds, 'f', 3, 64))
	var names []string
	for _, name := range NDISNames() {
		if counted(c.Nodes, name, ndis) {
			names = append(names, name)
		}
	}
	var below []string
	for _, name := range TransportNames(c.Nodes) {
		if counted(c.Nodes, name, transport) {
			below = append(below, name)
		}
	}
	if len(names)+len(below) == 0 {
		when += ": nothing counted"
	}
	p.line(p.paint.bold(when))
	p.started = false // no empty line behind this one
	p.matrix("NDIS counter", names, c.Nodes, ndis)
	p.matrix("transport counter", below, c.Nodes, transport)
	p.trouble(c.Nodes)
	p.line("")
	return p.flush()
}

// counted reports whether any node has counted something.
func counted(nodes []Node, name string, of func(*Node) map[string]uint64) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return of(&n)[name] > 0 })
}
