package live

import (
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// external is the kind of a Node outside the lab, and what its endpoint has in the place of a node's name.
const external = "external"

// MapOf returns the map of a topology.
func MapOf(t *topology.Topology) *Map {
	m := &Map{Lab: t.Name, Seed: t.Seed, Labels: t.Labels, Dilation: t.Dilation, Nodes: make([]Node, 0, len(t.Nodes)), Links: make([]Link, 0, len(t.Links)), Flows: []Flow{}}
	at := make(map[string]int, len(t.Nodes))
	for i := range t.Nodes {
		n := &t.Nodes[i]
		at[n.Name] = i
		m.Nodes = append(m.Nodes, Node{Name: n.Name, Kind: string(n.Kind)})
	}
	m.join(at, len(t.Links), func(i int) [2]string {
		return [2]string{t.Links[i].Endpoints[0].String(), t.Links[i].Endpoints[1].String()}
	})
	m.group()
	m.place()
	m.Flows = flowsOf(t, at)
	return m
}

// Shows reports whether an observation is of the nodes and links of the map, so that its sample goes with it. Else the topology has changed.
func (m *Map) Shows(o *report.Observation) bool {
	return len(o.Nodes) <= len(m.Nodes) && len(o.Links) == len(m.Links) &&
		(len(o.Nodes) == len(m.Nodes) || m.Nodes[len(o.Nodes)].Kind == external) &&
		!slices.ContainsFunc(m.Nodes[:len(o.Nodes)], func(n Node) bool { return n.Kind == external }) &&
		allOf(o.Nodes, func(i int, n *report.ObservedNode) bool {
			return n.Name == m.Nodes[i].Name && n.Kind == m.Nodes[i].Kind
		}) &&
		allOf(o.Links, func(i int, l *report.Link) bool { return l.Endpoints == m.Links[i].Endpoints })
}

func allOf[T any](values []T, is func(int, *T) bool) bool {
	for i := range values {
		if !is(i, &values[i]) {
			return false
		}
	}
	return true
}
