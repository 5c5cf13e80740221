package topology

import (
	"cmp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// linked is the links, and what is asked of them by name.
type linked struct {
	links     []Link
	nodes     map[string]int // index in Topology.Nodes
	nodeNames []string
	index     map[Endpoint]int // index in links
	names     []string         // of endpoints
	joined    map[[2]string]bool
	broken    bool // an endpoint was wrong, so that what is absent here may be a consequence
}

// links checks endpoints and applies defaults and directions.
func (r *reader) links(m topologyMap, nodes []Node) *linked {
	l := &linked{
		nodes:  make(map[string]int),
		index:  make(map[Endpoint]int),
		joined: make(map[[2]string]bool),
	}
	for i, n := range nodes {
		l.nodes[n.Name] = i
		l.nodeNames = append(l.nodeNames, n.Name)
	}
	used := make(map[Endpoint]*yaml.Node)
	for i, link := range m.links {
		forward := m.defaults.impairment.change().Apply(Impairment{})
		forward = link.impairment.change().Apply(forward)
		backward := link.reverse.change().Apply(forward)
		l.links = append(l.links, Link{
			MTU:        link.mtu.orElse(m.defaults.mtu.orElse(defaultMTU)),
			Directions: [2]Impairment{forward, backward},
			Engine:     Linkem,
			Offload:    true,
			Tolerance:  DefaultTolerance,
		})
		if len(link.endpoints) != 2 {
			r.errorf(link.at, "the number of endpoints is %d, expected 2", len(link.endpoints))
			l.broken = true
			continue
		}
		good := true
		for end, e := range link.endpoints {
			if !r.end(e, l) {
				good = false
				continue
			}
			name := Endpoint{e.node.is, e.iface.is}
			if first := used[name]; first != nil {
				r.errorf(e.at, "endpoint %s a second time, expected one that is free (line %d has it)", name, first.Line)
				good = false
				continue
			}
			used[name] = e.at
			l.links[i].Endpoints[end] = name
			l.index[name] = i
			l.names = append(l.names, name.String())
		}
		from, to := l.links[i].Endpoints[0].Node, l.links[i].Endpoints[1].Node
		switch {
		case !good || from != to:
		case from == external:
			r.errorf(link.endpoints[1].at, "both ends of the link are external, expected a node at one")
			good = false
		default:
			r.errorf(link.endpoints[1].at, "both ends of the link are on %s, expected two nodes", from)
			good = false
		}
		if !good {
			l.broken = true
			continue
		}
		l.joined[[2]string{from, to}] = true
		l.joined[[2]string{to, from}] = true
		r.jitterFits(firstOf(link.at, link.impairment), forward, from)
		if !backward.Equal(forward) {
			r.jitterFits(firstOf(link.at, link.reverse, link.impairment), backward, to)
		}
	}
	return l
}

// end reports whether a link can end there, and the error if not.
func (r *reader) end(e endpointMap, l *linked) bool {
	if e.node.ok && e.node.is == external {
		if !e.iface.ok {
			return false
		}
		if !outsideName().MatchString(e.iface.is) {
			r.errorf(e.iface.at, "%s is no name of an external interface, expected letters, digits, _, - and ., a letter or digit first", quote(e.iface.is))
			return false
		}
		return true
	}
	return r.node(e.node, l) && e.iface.ok
}

// outsideName matches the name of an external interface, which is also part of
// names of files and of arguments of programs.
var outsideName = lazily(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// node reports whether v names a node, and the error if not.
func (r *reader) node(v val[string], l *linked) bool {
	if !v.ok {
		return false
	}
	if v.is == external {
		r.errorf(v.at, "external is outside the lab, expected a node: workloads run in nodes")
		return false
	}
	if _, ok := l.nodes[v.is]; !ok {
		if len(l.nodeNames) > 0 { // else that there are none was reported
			r.errorf(v.at, "unknown node %s, %s", quote(v.is), r.expectation(v.is, l.nodeNames))
		}
		return false
	}
	return true
}

// firstOf is where the first of the impairments gives jitter or else delay, or at if
// none does.
func firstOf(at *yaml.Node, impairments ...impairment) *yaml.Node {
	for _, i := range impairments {
		if i.jitter.at != nil {
			return i.jitter.at
		}
		if i.delay.at != nil {
			return i.delay.at
		}
	}
	return at
}

// change is the impairment as Topology has it.
func (i impairment) change() Change {
	return Change{
		Delay:  i.delay.pointer(),
		Jitter: i.jitter.pointer(),
		Loss:   i.loss.pointer(),
		Rate:   i.rate.pointer(),
	}
}

// play goes through the timeline in the order of time, and reports the event
// that leaves a link with a jitter above its delay.
func (r *reader) play(maps []eventMap, events []Event, links []Link) {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[a].At, events[b].At) })
	links = slices.Clone(links)
	for _, i := range order {
		e := events[i]
		for end := range 2 {
			from := links[e.Link].Endpoints[end].Node
			if e.From != "" && e.From != from {
				continue
			}
			direction := &links[e.Link].Directions[end]
			changed := e.Set.Apply(*direction)
			if !changed.Equal(*direction) {
				r.jitterFits(firstOf(maps[i].at, maps[i].set.is), changed, from)
			}
			*direction = changed
		}
	}
}

// FindNode is the node of that name, or nil.
func (t *Topology) FindNode(name string) *Node {
	for i := range t.Nodes {
		if t.Nodes[i].Name == name {
			return &t.Nodes[i]
		}
	}
	return nil
}

// FindLink is the index in Links of the link that has an endpoint, which is
// written node:interface.
func (t *Topology) FindLink(endpoint string) (index int, ok bool) {
	node, iface, _ := strings.Cut(endpoint, ":")
	for i, l := range t.Links {
		if slices.Contains(l.Endpoints[:], Endpoint{node, iface}) {
			return i, true
		}
	}
	return 0, false
}

// Between is the indexes in Links of the links between nodes of different sets;
// nodes in none of them form one more set. An external interface is in the set of
// the node that it is linked to.
func (t *Topology) Between(sets [][]string) []int {
	of := make(map[string]int, len(t.Nodes))
	for i, set := range sets {
		for _, node := range set {
			of[node] = i + 1
		}
	}
	var between []int
	for i, l := range t.Links {
		a, b := l.Endpoints[0], l.Endpoints[1]
		if !a.External() && !b.External() && of[a.Node] != of[b.Node] {
			between = append(between, i)
		}
	}
	return between
}
