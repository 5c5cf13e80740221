package live

import (
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/graph"
)

// mapOfRun returns the map of a run. A report has no routes: a flow has the path with the fewest links.
func mapOfRun(r *report.Run) *Map {
	m := &Map{Lab: r.Lab, Seed: r.Seed, Dilation: r.Dilation, Replay: true, Runs: 1, Nodes: make([]Node, 0, len(r.Nodes)), Links: make([]Link, 0, len(r.Links)), Flows: []Flow{}}
	at := make(map[string]int, len(r.Nodes))
	for i := range r.Nodes {
		at[r.Nodes[i].Name] = i
		m.Nodes = append(m.Nodes, Node{Name: r.Nodes[i].Name, Kind: r.Nodes[i].Kind})
	}
	m.join(at, len(r.Links), func(i int) [2]string { return r.Links[i].Endpoints })
	m.group()
	m.place()
	near := m.directions()
	for i := range r.Workloads {
		w := &r.Workloads[i]
		for _, f := range flowsOfWorkload(w) {
			from, ok := at[f.From]
			to, known := at[f.To]
			if ok && known {
				flow := Flow{Workload: w.Name, From: from, To: to}
				flow.Hops, flow.Shared = m.shortest(near, from, to)
				m.Flows = append(m.Flows, flow)
			}
		}
	}
	return m
}

// flowsOfWorkload returns who exchanges messages with whom in a workload, as far as its report says.
func flowsOfWorkload(w *report.Workload) []report.Flow {
	if len(w.Flows) == 0 && w.From != "" && w.To != "" {
		return []report.Flow{{From: w.From, To: w.To}}
	}
	return w.Flows
}

// directions returns the hops that leave each node.
func (m *Map) directions() [][]Hop {
	near := make([][]Hop, len(m.Nodes))
	for i, l := range m.Links {
		for end, node := range l.Nodes {
			near[node] = append(near[node], Hop{i, end})
		}
	}
	return near
}

// shortest returns a path with the fewest links, and whether there are several. Hosts and what is outside pass nothing on.
func (m *Map) shortest(near [][]Hop, from, to int) (hops []Hop, shared bool) {
	distance, paths, by := make([]int, len(m.Nodes)), make([]int, len(m.Nodes)), make([]Hop, len(m.Nodes))
	distance[from], paths[from] = 1, 1 // 0 is not reached
	for queue := []int{from}; len(queue) > 0 && distance[to] == 0 || len(queue) > 0 && distance[queue[0]] < distance[to]; queue = queue[1:] {
		at := queue[0]
		if kind := m.Nodes[at].Kind; at != from && (kind == string(graph.Host) || kind == external) {
			continue
		}
		for _, h := range near[at] {
			next := m.Links[h.Link].Nodes[1-h.End]
			if distance[next] == 0 {
				distance[next], by[next] = distance[at]+1, h
				queue = append(queue, next)
			}
			if distance[next] == distance[at]+1 {
				paths[next] = min(paths[next]+paths[at], 2)
			}
		}
	}
	hops = make([]Hop, max(0, distance[to]-1))
	for at, i := to, len(hops)-1; i >= 0; i-- {
		hops[i] = by[at]
		at = m.Links[by[at].Link].Nodes[by[at].End]
	}
	return hops, paths[to] > 1
}
