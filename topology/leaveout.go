package topology

import (
	"slices"
)

// This file is labs of only some of a file's nodes (Options.Nodes).

// A selection leaves out what needs nodes that a lab has not got.
type selection struct {
	*reader
	lab   *Topology
	index []int           // of each link of the whole lab: its index by now, or -1
	stays map[string]bool // nodes
	gone  map[string]bool // workloads
}

// leaveOut leaves of a complete lab the nodes that are asked for. Parts that need other
// nodes are left out with them: links, workloads that cannot reach their peer without
// them, their checks, what a timeline does to their links, and captures there.
func leaveOut(r *reader, t *Topology, m topologyMap) {
	all := t.Nodes
	if t.Nodes = chosen(r, all, m); len(r.errors) > 0 {
		return
	}
	stays := make(map[string]bool, len(t.Nodes))
	for _, n := range t.Nodes {
		stays[n.Name] = true
	}
	index := make([]int, len(t.Links)) // in the links that stay, or -1
	var links []Link
	var maps []*mapping[linkMap]
	for i, l := range t.Links {
		index[i] = -1
		a, b := l.Endpoints[0], l.Endpoints[1]
		if (stays[a.Node] || a.External()) && (stays[b.Node] || b.External()) {
			index[i] = len(links)
			links, maps = append(links, l), append(maps, m.links[i])
		}
	}
	t.Links = links
	for i := range t.Nodes {
		n := &t.Nodes[i]
		n.Interfaces, n.Routes = onLinks(n.Interfaces, index), nil
		n.Setup.WaitFor = without(r, "what "+n.Name+" waits for:", n.Setup.WaitFor, func(w *Wait) (string, bool) { return w.Node, stays[w.Node] })
	}
	t.Externals = onLinks(t.Externals, index)
	isGone := func(n Need) bool { return n.Node != "" && !stays[n.Node] }
	t.Needs, t.NeedsSimulation = slices.DeleteFunc(t.Needs, isGone), slices.DeleteFunc(t.NeedsSimulation, isGone)
	segments := t.segments()
	if slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Kind == Router }) {
		n := network{r, t, segments, maps}
		n.routes(m.at)
	} else {
		t.Convergence = 0
	}
	s := selection{r, t, index, stays, make(map[string]bool)}
	s.leaveOutUses()
}

// chosen is the nodes that are asked for.
func chosen(r *reader, all []Node, m topologyMap) []Node {
	names := textsOf(all, func(n Node) string { return n.Name })
	asked := make(map[string]bool)
	for _, pattern := range r.Nodes {
		for _, name := range r.each(val[string]{m.at, pattern, true}, "node", names) {
			if !slices.Contains(names, name.is) {
				r.errorf(m.at, "no node is %s, %s", quote(name.is), r.expectation(name.is, names))
				return nil
			}
			asked[name.is] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(n Node) bool { return !asked[n.Name] })
}

// onLinks is the interfaces at links that stay, which have other indices by now.
func onLinks(interfaces []Interface, index []int) []Interface {
	var stay []Interface
	for _, i := range interfaces {
		if i.Link = index[i.Link]; i.Link >= 0 {
			stay = append(stay, i)
		}
	}
	return stay
}

// leaveOutUses leaves out what uses nodes and links that are not there.
func (s *selection) leaveOutUses() {
	r, t, index, stays, gone := s.reader, s.lab, s.index, s.stays, s.gone
	in := segmentOf(t.segments(), len(t.Links))
	t.Workloads = without(r, "workloads", t.Workloads, func(w *Workload) (string, bool) {
		gone[w.Name] = !t.reaches(w, in)
		return w.Name, !gone[w.Name]
	})
	t.Timeline = s.leaveOutEvents()
	snapshots := map[string]bool{"": true}
	for _, e := range t.Timeline {
		snapshots[e.Snapshot] = true
	}
	t.Chaos = without(r, "chaos", t.Chaos, func(c *Chaos) (string, bool) {
		var links []int
		for _, i := range c.Links {
			if index[i] >= 0 {
				links = append(links, index[i])
			}
		}
		c.Links, c.Nodes = links, staying(c.Nodes, stays)
		return string(c.Kind), len(links)+len(c.Nodes) > 0
	})
	t.Checks = without(r, "checks of", t.Checks, func(c *Check) (string, bool) {
		switch {
		case c.Workload != "":
			return c.Workload, !gone[c.Workload]
		case c.OfLink:
			c.Link = index[c.Link]
			return "a link", c.Link >= 0
		case c.OfBuffer:
			return c.Switch, c.Switch == "" || stays[c.Switch]
		}
		name := c.Node
		if c.Counter != "" {
			name = "the counter " + c.Counter
		}
		return name, (c.Node == "" || stays[c.Node]) && snapshots[c.Snapshot]
	})
	if b := t.Baseline; b != nil && b.Workloads != nil {
		b.Workloads = slices.DeleteFunc(b.Workloads, func(name string) bool { return gone[name] })
		if len(b.Workloads) == 0 {
			t.Baseline = nil
		}
	}
	t.Captures = without(r, "captures to", t.Captures, func(c *Capture) (string, bool) {
		c.Interfaces = slices.DeleteFunc(slices.Clone(c.Interfaces), func(e Endpoint) bool {
			_, ok := t.FindLink(e.String())
			return !ok
		})
		return c.File, len(c.Interfaces) > 0
	})
}

// reaches reports whether all nodes of a workload are there, and reach those that they
// reach in the whole lab.
func (t *Topology) reaches(w *Workload, in []int) bool {
	if slices.ContainsFunc(w.Nodes, func(name string) bool { return t.FindNode(name) == nil }) {
		return false
	}
	all := w.Flows
	if w.Pattern == Permutation {
		all = flows(Ring, w.Nodes)
	}
	return !slices.ContainsFunc(all, func(f Flow) bool {
		from, to := t.FindNode(f.From), t.FindNode(f.To)
		if from == nil || to == nil {
			return true
		}
		_, ok := t.PathIn(from, to, in)
		return !ok
	})
}

// staying is the nodes that stay.
func staying(names []string, stays map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !stays[name] })
}

// leaveOutEvents is the timeline without what happens to what is not there, and without
// what waits for that or for anything that is left out.
func (s *selection) leaveOutEvents() []Event {
	t := s.lab
	left := make(map[string]bool) // names of events that are left out
	for _, i := range inOrder(t.Timeline) {
		e := t.Timeline[i] // a copy, which eventStays changes
		if left[e.After] || !s.eventStays(&e) {
			left[e.Name] = e.Name != ""
		}
	}
	return without(s.reader, "timeline entries at", t.Timeline, func(e *Event) (string, bool) {
		at := FormatDuration(e.At)
		if e.Name != "" {
			at = e.Name
		}
		return at, !left[e.After] && s.eventStays(e)
	})
}

// eventStays reports whether what an event is about is there, and gives the event the
// index that its link has now, or the sets that its partition has.
func (s *selection) eventStays(e *Event) bool {
	t, stays, gone := s.lab, s.stays, s.gone
	if w := e.When; w != nil && (gone[w.Workload] || w.Node != "" && !stays[w.Node]) {
		return false
	}
	switch {
	case e.OfLink():
		e.Link = s.index[e.Link]
		return e.Link >= 0
	case len(e.Partition) > 0:
		var sets [][]string
		for _, set := range e.Partition {
			if set = staying(set, stays); len(set) > 0 {
				sets = append(sets, set)
			}
		}
		e.Partition = sets
		return len(t.Between(sets)) > 0
	}
	return !gone[e.Workload] && (e.Node == "" || stays[e.Node])
}

// without is the items for which stays says so, which may change them and says what
// they are called. Others are told of by what they all are.
func without[T any](r *reader, what string, items []T, stays func(*T) (name string, ok bool)) []T {
	var stay []T
	var names []string
	for _, item := range items {
		if name, ok := stays(&item); ok {
			stay = append(stay, item)
		} else {
			names = append(names, name)
		}
	}
	if len(names) > 0 && r.LeftOut != nil {
		r.LeftOut(what + " " + few(names))
	}
	return stay
}
