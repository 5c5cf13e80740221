package topology

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// This file gives nodes what they wait for.

// waits gives nodes what they wait for, and reports what nobody can wait for.
func (r *nodeReader) waits(nodes []Node, of []val[[]waitMap]) {
	if !slices.ContainsFunc(of, func(v val[[]waitMap]) bool { return len(v.is) > 0 }) {
		return
	}
	index := make(map[string]int, len(nodes))
	var names []string
	for i, n := range nodes {
		index[n.Name] = i
		names = append(names, n.Name)
	}
	// Many nodes may have one list from what they have in common.
	resolved := make(map[*yaml.Node]*waitList)
	lists := make([]*waitList, len(nodes))
	for i, v := range of {
		if len(v.is) == 0 {
			continue
		}
		if resolved[v.at] == nil {
			resolved[v.at] = r.waitList(v.is, nodes, index, names)
		}
		lists[i] = resolved[v.at]
		nodes[i].Setup.WaitFor = lists[i].waits
	}
	w := waitWalk{nodes: nodes, lists: lists, state: make([]waitState, len(nodes))}
	for i := range nodes {
		w.from(r.reader, i)
	}
}

// A waitList is a list of wait_for with the places of its nodes in Topology.Nodes.
type waitList struct {
	waits []Wait
	nodes []int
	at    []*yaml.Node // where each names its node
}

func (r *nodeReader) waitList(maps []waitMap, nodes []Node, index map[string]int, names []string) *waitList {
	l := new(waitList)
	for _, m := range maps {
		if !m.node.ok || !m.stage.ok {
			continue
		}
		for _, node := range r.each(m.node, "node", names) {
			i, ok := index[node.is]
			switch {
			case !ok:
				r.unknown(node, "node", names)
				continue
			case nodes[i].Kind == Switch:
				r.errorf(node.at, "%s is a switch, expected a host or router: a switch has no stages", node.is)
				continue
			}
			l.waits = append(l.waits, Wait{node.is, m.stage.is})
			l.nodes = append(l.nodes, i)
			l.at = append(l.at, node.at)
		}
	}
	return l
}

// A waitWalk finds nodes that wait for each other. Waiting for created or configured
// holds nobody up who comes that far without waiting.
type waitWalk struct {
	nodes []Node
	lists []*waitList
	state []waitState
	path  []int // from where the walk began
}

type waitState uint8

const (
	unwalked waitState = iota
	onPath
	walked
)

// from reports each way from a node back to itself that was not walked yet. The way
// is kept aside, not in calls: it may be as long as there are nodes.
func (w *waitWalk) from(r *reader, start int) {
	if w.state[start] != unwalked {
		return
	}
	next := []int{0} // for each node of the path, its entry that comes next
	w.path, w.state[start] = []int{start}, onPath
	for len(w.path) > 0 {
		last := len(w.path) - 1
		i := w.path[last]
		l := w.lists[i]
		if l == nil || next[last] == len(l.waits) {
			w.state[i] = walked
			w.path, next = w.path[:last], next[:last]
			continue
		}
		wait, to, at := l.waits[next[last]], l.nodes[next[last]], l.at[next[last]]
		next[last]++
		switch {
		case to == i:
			r.errorf(at, "%s waits for itself, expected other nodes", wait.Node)
		case wait.Stage != Executed && wait.Stage != Healthy:
		case w.state[to] == onPath:
			r.errorf(at, "nodes wait for each other: %s, expected one of them not to", w.cycle(to))
		case w.state[to] == unwalked:
			w.state[to] = onPath
			w.path, next = append(w.path, to), append(next, 0)
		}
	}
}

// cycle is the names on the path from a node on, and back to it.
func (w *waitWalk) cycle(from int) string {
	way := w.path[slices.Index(w.path, from):]
	var names []string
	for _, i := range way[:min(len(way), listed)] {
		names = append(names, w.nodes[i].Name)
	}
	if len(way) > listed {
		names = append(names, fmt.Sprintf("... (%d in all)", len(way)))
	}
	return strings.Join(append(names, w.nodes[from].Name), " -> ")
}
