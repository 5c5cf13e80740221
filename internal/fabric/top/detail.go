package top

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// detailLines returns all that is known of a row: its figures, what can be done to it, and what happened to it last.
func (m *model) detailLines(r *row) []string {
	columns, cells := columnsOf[m.tab], m.cells(m.tab, *r)
	lines := []string{cells[0], ""}
	add := func(name, value string) { lines = append(lines, fmt.Sprintf("  %-12s %s", name, value)) }
	for i := 1; i < len(columns); i++ {
		add(columns[i].title, cells[i])
	}
	var about func(*event.Event) bool
	switch m.tab {
	case nodesTab:
		n := &m.of.Nodes[r.index]
		add("kind", line(n.Kind))
		about = func(e *event.Event) bool { return e.Node == n.Name }
	case linksTab:
		l := &m.of.Links[r.index]
		for end, d := range m.sample.Links[r.index].Ends {
			settings := "nothing is set"
			if len(d.Set) > 0 {
				settings = line(strings.Join(d.Set, " "))
			}
			add("from", line(l.Endpoints[end])+": "+settings)
		}
		about = func(e *event.Event) bool { return e.Link == l.Endpoints[0] || e.Link == l.Endpoints[1] }
	case flowsTab:
		w := &m.sample.Workloads[r.index]
		for _, f := range m.of.Flows {
			if f.Workload == w.Name && f.From == w.Node {
				add("path", m.path(f))
			}
		}
		about = func(e *event.Event) bool { return e.Workload == w.Name }
	}
	if actions := m.actions(r); len(actions) > 0 {
		lines = append(lines, "")
		for _, a := range actions {
			add(a.key, line(a.change.Command(m.lab)))
		}
	}
	if about != nil {
		lines = append(lines, "")
		for i := len(m.events) - 1; i >= 0; i-- { // the latest first
			if e := &m.events[i]; about(e) {
				lines = append(lines, "  "+eventLine(e))
			}
		}
	}
	return lines
}

// path returns the nodes that a flow passes.
func (m *model) path(f live.Flow) string {
	names := []string{line(m.of.Nodes[f.From].Name)}
	for _, h := range f.Hops {
		names = append(names, line(m.of.Nodes[m.of.Links[h.Link].Nodes[1-h.End]].Name))
	}
	if len(f.Hops) == 0 {
		names = append(names, "...", line(m.of.Nodes[f.To].Name))
	}
	text := strings.Join(names, " > ")
	if f.Shared {
		text += " (one of several that are equally near)"
	}
	return text
}
