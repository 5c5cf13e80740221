package topology

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// This file is labs of only some of a file's nodes (Options.Nodes).

// leaveOut leaves of a complete lab the nodes that are asked for. What needs others
// is left out with them: links, workloads that cannot reach their peer without
// them, their checks, what a timeline does to their links, and captures there.
func (r *reader) leaveOut(t *Topology, m topologyMap) {
	all := t.Nodes
	if t.Nodes = r.chosen(all, m); len(r.errors) > 0 {
		return
	}
	stays := make(map[string]bool, len(t.Nodes))
	for _, n := range t.Nodes {
		stays[n.Name] = true
	}
	index := make([]int, len(t.Links)) // in the links that stay, or -1
	var links []Link
	var maps []linkMap
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
	t.Needs = slices.DeleteFunc(t.Needs, func(n Need) bool { return !stays[n.Node] })
	segments := t.segments()
	if slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Kind == Router }) {
		r.routes(t, segments, maps, m.at)
	}
	r.leaveOutUses(t, index, stays)
}

// chosen is the nodes that are asked for.
func (r *reader) chosen(all []Node, m topologyMap) []Node {
	var names []string
	for _, n := range all {
		names = append(names, n.Name)
	}
	asked := make(map[string]bool)
	for _, pattern := range r.Nodes {
		found := false
		for _, name := range names {
			matches, err := path.Match(pattern, name)
			if err != nil {
				r.errorf(m.at, "%s is no pattern of names, expected one such as leaf-*", quote(pattern))
				return nil
			}
			asked[name] = asked[name] || matches
			found = found || matches
		}
		if !found {
			r.errorf(m.at, "no node is %s, %s", quote(pattern), r.expectation(pattern, names))
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
func (r *reader) leaveOutUses(t *Topology, index []int, stays map[string]bool) {
	in := segmentOf(t.segments(), len(t.Links))
	gone := make(map[string]bool)
	t.Workloads = without(r, "workloads", t.Workloads, func(w *Workload) (string, bool) {
		from, to := t.FindNode(w.From), t.FindNode(w.To)
		reaches := from != nil && to != nil
		if reaches {
			_, reaches = t.path(from, to, in)
		}
		gone[w.Name] = !reaches
		return w.Name, reaches
	})
	t.Checks = without(r, "checks of workloads", t.Checks, func(c *Check) (string, bool) { return c.Workload, !gone[c.Workload] })
	t.Timeline = without(r, "timeline entries at", t.Timeline, func(e *Event) (string, bool) {
		at := FormatDuration(e.At)
		switch {
		case e.Heal:
			return at, true
		case len(e.Partition) == 0:
			e.Link = index[e.Link]
			return at, e.Link >= 0
		}
		var sets [][]string
		for _, set := range e.Partition {
			if set = slices.DeleteFunc(slices.Clone(set), func(name string) bool { return !stays[name] }); len(set) > 0 {
				sets = append(sets, set)
			}
		}
		e.Partition = sets
		return at, len(t.Between(sets)) > 0
	})
	t.Captures = without(r, "captures to", t.Captures, func(c *Capture) (string, bool) {
		c.Interfaces = slices.DeleteFunc(slices.Clone(c.Interfaces), func(e Endpoint) bool {
			_, ok := t.FindLink(e.String())
			return !ok
		})
		return c.File, len(c.Interfaces) > 0
	})
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
		text := strings.Join(names[:min(len(names), listed)], ", ")
		if len(names) > listed {
			text += fmt.Sprintf(", ... (%d in all)", len(names))
		}
		r.LeftOut(what + " " + text)
	}
	return stay
}
