package topology

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// A nameIndex finds the nodes and links of a lab by their names, and reports names that are of
// none, or of one that cannot be used so.
type nameIndex struct {
	*reader
	lab       *Topology // with its nodes
	links     []Link
	nodes     map[string]int // index in Topology.Nodes
	nodeNames []string
	linkOf    map[Endpoint]int // index in links
	endpoints []string         // of links
	broken    bool             // an endpoint was wrong, so that what is absent here may be a consequence
}

// indexNodes returns the index of the nodes of a lab, as yet without links.
func indexNodes(r *reader, t *Topology) *nameIndex {
	l := &nameIndex{reader: r, lab: t, nodes: make(map[string]int, len(t.Nodes)), nodeNames: make([]string, len(t.Nodes)), linkOf: make(map[Endpoint]int)}
	for i := range t.Nodes {
		l.nodeNames[i] = t.Nodes[i].Name
		l.nodes[l.nodeNames[i]] = i
	}
	return l
}

// links checks endpoints and applies defaults, ports and directions.
func (r *reader) links(m topologyMap, t *Topology, ports map[string][]portMap) *nameIndex {
	l := indexNodes(r, t)
	l.links, l.endpoints = make([]Link, 0, len(m.links)), make([]string, 0, 2*len(m.links))
	l.linkOf = make(map[Endpoint]int, 2*len(m.links))
	r.buffered = make(map[string]bool)
	for i := range t.Nodes {
		r.buffered[t.Nodes[i].Name] = t.Nodes[i].Buffer != nil
	}
	used := make(map[Endpoint]*yaml.Node, 2*len(m.links))
	for i, link := range m.links {
		var of [2][]portMap // of the two ends
		for end, e := range link.is.endpoints[:min(2, len(link.is.endpoints))] {
			of[end] = ports[e.node.is]
		}
		all := layers[linkMap]{link, m.defaults.link}
		l.links = append(l.links, resolveLink(all, of))
		if at := all.find("engine").at; at != nil {
			l.links[i].EngineAt = r.place(at)
		}
		if len(link.is.endpoints) != 2 {
			r.errorf(link.at, "the number of endpoints is %d, expected 2", len(link.is.endpoints))
			l.broken = true
			continue
		}
		good := true
		for end, e := range link.is.endpoints {
			if !l.end(e) {
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
			if n, ok := l.nodes[name.Node]; ok && t.Nodes[n].Kind == Switch && len(e.addresses) > 0 {
				r.errorf(e.addresses[0].at, "an address is given to the switch %s, expected none: only hosts and routers have addresses", name.Node)
			}
			l.links[i].Endpoints[end] = name
			l.linkOf[name] = i
			l.endpoints = append(l.endpoints, name.String())
		}
		from, to := l.links[i].Endpoints[0].Node, l.links[i].Endpoints[1].Node
		switch {
		case !good || from != to:
		case from == external:
			r.errorf(link.is.endpoints[1].at, "both ends of the link are external, expected a node at one")
			good = false
		default:
			r.errorf(link.is.endpoints[1].at, "both ends of the link are on %s, expected two nodes", from)
			good = false
		}
		if !good {
			l.broken = true
			continue
		}
		directions(r, &l.links[i], all, of)
	}
	return l
}

// resolveLink returns the link as Topology has it, but for its endpoints, addresses and those
// faults that are for one direction. Settings of the link come before those of the ports at
// its ends, and these before the defaults.
func resolveLink(all layers[linkMap], ports [2][]portMap) Link {
	m := linkMap{Link: Link{MTU: defaultMTU, Engine: Linkem, Offload: true, Tolerance: DefaultTolerance}}
	all.apply(&m)
	for end := range m.Directions {
		var i Impairment
		if defaults := all[1]; defaults != nil {
			i = defaults.is.impairment.change.Apply(i)
		}
		for _, p := range slices.Backward(ports[end]) {
			i = p.impairment.change.Apply(i)
		}
		m.Directions[end] = all[0].is.impairment.change.Apply(i)
	}
	m.Directions[1] = m.reverse.change.Apply(m.Directions[1])
	return m.Link
}

// directions gives each direction of a link, whose endpoints are known by now, its
// faults, and checks what became of it.
func directions(r *reader, l *Link, all layers[linkMap], ports [2][]portMap) {
	link, defaults := all[0], impairment{}
	if all[1] != nil {
		defaults = all[1].is.impairment
	}
	from, to, m := l.Endpoints[0].Node, l.Endpoints[1].Node, &link.is
	for _, s := range m.impairment.senders {
		if s.ok && !r.is(s, from) && !r.is(s, to) {
			r.errorf(s.at, "%s is not on the link, expected %s or %s", quote(s.is), from, to)
		}
	}
	forward, backward := &l.Directions[0], &l.Directions[1]
	replace(&forward.Faults, faultsFrom(r, m.impairment, from))
	if m.reverse.change.Faults == nil {
		replace(&backward.Faults, faultsFrom(r, m.impairment, to))
	}
	fits(r, l, *forward, from, link.at, impairments(ports[0], m.impairment)...)
	if !backward.Equal(*forward) {
		fits(r, l, *backward, to, link.at, impairments(ports[1], m.reverse, m.impairment)...)
	}
	fitsPort(r, *forward, from, link.at, append(impairments(ports[0], m.impairment), defaults)...)
	fitsPort(r, *backward, to, link.at, append(impairments(ports[1], m.reverse, m.impairment), defaults)...)
}

// impairments returns the parts of a direction, that of more precedence first.
func impairments(ports []portMap, of ...impairment) []impairment {
	for _, p := range ports {
		of = append(of, p.impairment)
	}
	return of
}

// end reports whether a link can end there, and the error if not.
func (l *nameIndex) end(e endpointMap) bool {
	if e.node.ok && e.node.is == external {
		if !e.iface.ok {
			return false
		}
		if !outsideName.compiled().MatchString(e.iface.is) {
			l.errorf(e.iface.at, "%s is no name of an external interface, expected letters, digits, _, - and ., a letter or digit first", quote(e.iface.is))
			return false
		}
		return true
	}
	return l.node(e.node) && e.iface.ok
}

// outsideName matches the name of an external interface, which is also part of
// names of files and of arguments of programs.
var outsideName = &pattern{text: `^[A-Za-z0-9][A-Za-z0-9_.-]*$`}

// node reports whether v names a node, and the error if not.
func (l *nameIndex) node(v val[string]) bool {
	if !v.ok {
		return false
	}
	if v.is == external {
		l.errorf(v.at, "external is outside the lab, expected a node: workloads run in nodes")
		return false
	}
	if _, ok := l.nodes[v.is]; !ok {
		if len(l.nodeNames) > 0 { // else that there are none was reported
			l.errorf(v.at, "unknown node %s, %s", quote(v.is), l.expectation(v.is, l.nodeNames))
		}
		return false
	}
	return true
}

// ofKind reports whether v names a node of one of some kinds, and the error, with the reason,
// if not.
func (l *nameIndex) ofKind(v val[string], why string, kinds ...Kind) bool {
	if !l.node(v) {
		return false
	}
	if n := l.lab.Nodes[l.nodes[v.is]]; !slices.Contains(kinds, n.Kind) {
		l.errorf(v.at, "%s is a %s, expected a %s: %s", n.Name, n.Kind, alternatives(texts(kinds)), why)
		return false
	}
	return true
}

// host, hasAdapter and runsCommands are ofKind for what the three take.
func (l *nameIndex) host(v val[string]) bool { return l.ofKind(v, "workloads run in hosts", Host) }
func (l *nameIndex) hasAdapter(v val[string]) bool {
	return l.ofKind(v, "only hosts have adapters", Host)
}
func (l *nameIndex) runsCommands(v val[string]) bool {
	return l.ofKind(v, "a switch has no processes", Host, Router)
}

// firstAt is the first of the places that the file has.
func firstAt(places ...*yaml.Node) *yaml.Node {
	for _, at := range places {
		if at != nil {
			return at
		}
	}
	return nil
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

// BufferedLinks reports of each link whether its frames wait in a packet buffer: it ends at a node that has one, or at a host
// beside such a node, or at one with an adapter that pauses or receives at a rate of its own.
func (t *Topology) BufferedLinks() []bool {
	has := map[string]bool{}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		has[n.Name] = n.Buffer != nil
	}
	buffered := make([]bool, len(t.Links))
	for i := range t.Nodes {
		n := &t.Nodes[i]
		waits := has[n.Name]
		if n.Kind == Host {
			waits = n.Adapter.PFC != nil || n.Adapter.ReceiveRate != nil || slices.ContainsFunc(n.Interfaces, func(face Interface) bool {
				return has[t.Links[face.Link].Endpoints[1-face.End].Node]
			})
		}
		for _, face := range n.Interfaces {
			buffered[face.Link] = buffered[face.Link] || waits
		}
	}
	return buffered
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
