package topology

import (
	"slices"
)

// A segment is the links that switches join, between which frames pass as they
// are. A link between two hosts or routers is a segment of its own.
type segment struct {
	links []int     // indices in Topology.Links, ascending
	ends  []linkEnd // those that are not at switches, in the order of the file
}

// A network is the segments of a lab, with what the file says of its links. It reports what
// cannot work.
type network struct {
	*reader
	lab      *Topology
	segments []segment
	links    []*mapping[linkMap]
}

// A linkEnd is one end of a link.
type linkEnd struct {
	link int // index in Topology.Links
	end  int // index in its Endpoints
}

// segments is the segments of the lab, in the order of their first links. It
// needs no addresses.
func (t *Topology) segments() []segment {
	switches := make(map[string]int) // name: one of its links, or -1
	for _, n := range t.Nodes {
		if n.Kind == Switch {
			switches[n.Name] = -1
		}
	}
	p := newPartition(len(t.Links))
	for i, l := range t.Links {
		for _, e := range l.Endpoints {
			other, ok := switches[e.Node]
			switch {
			case ok && other < 0:
				switches[e.Node] = i
			case ok:
				p.join(i, other)
			}
		}
	}
	var segments []segment
	index := make([]int, len(t.Links)) // by a part's first link, plus 1
	for i, l := range t.Links {
		first := p.find(i)
		if index[first] == 0 {
			segments = append(segments, segment{})
			index[first] = len(segments)
		}
		s := &segments[index[first]-1]
		s.links = append(s.links, i)
		for end, e := range l.Endpoints {
			if _, ok := switches[e.Node]; !ok {
				s.ends = append(s.ends, linkEnd{i, end})
			}
		}
	}
	return segments
}

// Segments is the number of the segment that each link is in, from 0. Nodes at links
// of one number hear each other without a router, over switches if it is several
// links.
func (t *Topology) Segments() []int { return segmentOf(t.segments(), len(t.Links)) }

// segmentOf is the number of the segment that each link is in.
func segmentOf(segments []segment, links int) []int {
	in := make([]int, links)
	for i, s := range segments {
		for _, l := range s.links {
			in[l] = i
		}
	}
	return in
}

// parts is the part of the lab that each link is in: packets reach other parts
// over neither switches nor routers.
func (t *Topology) parts(segments []segment) []int {
	p := newPartition(len(t.Links))
	for _, s := range segments {
		for _, i := range s.links {
			p.join(i, s.links[0])
		}
	}
	for _, n := range t.Nodes {
		if n.Kind != Router {
			continue
		}
		for _, i := range n.Interfaces {
			p.join(i.Link, n.Interfaces[0].Link)
		}
	}
	parts := make([]int, len(t.Links))
	for i := range parts {
		parts[i] = p.find(i)
	}
	return parts
}

// meet reports whether two nodes are in a common part.
func meet(a, b *Node, parts []int) bool {
	in := make(map[int]bool)
	for _, x := range a.Interfaces {
		in[parts[x.Link]] = true
	}
	return slices.ContainsFunc(b.Interfaces, func(y Interface) bool { return in[parts[y.Link]] })
}

// A partition is the numbers from 0 in disjoint parts (union-find).
type partition []int

// newPartition has n parts of one number each.
func newPartition(n int) partition {
	p := make(partition, n)
	for i := range p {
		p[i] = i
	}
	return p
}

// find is the number that stands for the part that i is in.
func (p partition) find(i int) int {
	for p[i] != i {
		p[i] = p[p[i]]
		i = p[i]
	}
	return i
}

// join makes one part of two, and reports whether they were two.
func (p partition) join(i, j int) bool {
	i, j = p.find(i), p.find(j)
	p[max(i, j)] = min(i, j)
	return i != j
}

// SpareLinks is, by link, those between switches that a tree of all switches has no use for. The tree prefers
// links that are up, and of those the ones that come first; it is not the tree that the kernel would choose.
func (t *Topology) SpareLinks(up func(link int) bool) []bool {
	number := make(map[string]int) // of a switch
	for _, n := range t.Nodes {
		if n.Kind == Switch {
			number[n.Name] = len(number)
		}
	}
	spare, p := make([]bool, len(t.Links)), newPartition(len(number))
	for _, is := range []bool{true, false} {
		for i := range t.Links {
			a, aSwitch := number[t.Links[i].Endpoints[0].Node]
			b, bSwitch := number[t.Links[i].Endpoints[1].Node]
			if aSwitch && bSwitch && up(i) == is {
				spare[i] = !p.join(a, b)
			}
		}
	}
	return spare
}

// segmentsWork reports what cannot work in a segment: loops of switches that do
// not break them, nodes that are in it twice, and links of different MTU.
func (r *network) segmentsWork() {
	t, links := r.lab, r.links
	r.portsSuffice()
	r.loops()
	for _, s := range r.segments {
		first := s.links[0]
		for _, i := range s.links[1:] {
			if t.Links[i].MTU != t.Links[first].MTU {
				r.errorf(firstAt(links[i].place("mtu"), links[i].at), "MTU %d in one segment with the link %s, whose MTU is %d (line %d), expected one MTU: a switch passes no frame that is too large for a link",
					t.Links[i].MTU, t.Links[first].name(), t.Links[first].MTU, firstAt(links[first].place("mtu"), links[first].at).Line)
			}
		}
		if len(s.links) == 1 {
			continue // both of its ends being on one node was reported
		}
		in := make(map[string]linkEnd)
		for _, e := range s.ends {
			name := t.Links[e.link].Endpoints[e.end]
			before, twice := in[name.Node]
			if twice && name.Node != "" && !name.External() {
				r.errorf(links[e.link].is.endpoints[e.end].at, "%s is in the same segment a second time, expected once (line %d): with two addresses in one subnet, packets leave by either interface; give each its own switch",
					name.Node, links[before.link].is.endpoints[before.end].at.Line)
				continue
			}
			in[name.Node] = e
		}
	}
}

// maxPorts is the number of links that a switch takes, which is a bridge of the kernel
// (net/bridge/br_if.c, find_portno).
const maxPorts = 1023

// portsSuffice reports the switches at which too many links end.
func (r *network) portsSuffice() {
	t, links := r.lab, r.links
	ports := make(map[string]int)
	for _, n := range t.Nodes {
		if n.Kind == Switch {
			ports[n.Name] = 0
		}
	}
	for i, l := range t.Links {
		for end, e := range l.Endpoints {
			used, isSwitch := ports[e.Node]
			if isSwitch && used == maxPorts {
				r.errorf(links[i].is.endpoints[end].at, "switch %s has more than %d links, expected fewer: a second switch, joined to it by a link, takes the others", e.Node, maxPorts)
			}
			if isSwitch {
				ports[e.Node] = used + 1
			}
		}
	}
}

// loops reports the loops of switches, unless spanning tree is on in all of one.
//
// It looks at those that one link each closes in a tree of the others. That is
// enough: every other loop is made of these, so that each of its switches is in
// one of them.
func (r *network) loops() {
	t, links := r.lab, r.links
	type edge struct{ link, to int }
	number := make(map[string]int) // of a switch
	var tree []bool                // spanning tree is on
	for _, n := range t.Nodes {
		if n.Kind == Switch {
			number[n.Name] = len(tree)
			tree = append(tree, n.SpanningTree)
		}
	}
	if !slices.Contains(tree, false) {
		return
	}
	p := newPartition(len(tree))
	near := make([][]edge, len(tree))
	var closing []int
	for i, l := range t.Links {
		a, aSwitch := number[l.Endpoints[0].Node]
		b, bSwitch := number[l.Endpoints[1].Node]
		switch {
		case !aSwitch || !bSwitch || a == b:
		case p.join(a, b):
			near[a] = append(near[a], edge{i, b})
			near[b] = append(near[b], edge{i, a})
		default:
			closing = append(closing, i)
		}
	}
	// Each switch's way to the root of its tree.
	up := make([]edge, len(tree))
	depth := make([]int, len(tree))
	for root := range tree {
		if p.find(root) != root {
			continue
		}
		up[root] = edge{-1, root}
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			for _, e := range near[queue[0]] {
				if e.link != up[queue[0]].link {
					up[e.to], depth[e.to] = edge{e.link, queue[0]}, depth[queue[0]]+1
					queue = append(queue, e.to)
				}
			}
		}
	}
	told := 0
	for _, i := range closing {
		a, b := number[t.Links[i].Endpoints[0].Node], number[t.Links[i].Endpoints[1].Node]
		loop, broken := []int{i}, tree[a] && tree[b]
		for a != b {
			if depth[a] < depth[b] {
				a, b = b, a
			}
			loop = append(loop, up[a].link)
			a = up[a].to
			broken = broken && tree[a]
		}
		if broken {
			continue
		}
		slices.Sort(loop)
		r.errorf(links[i].at, "the links %s make a loop of switches, in which frames would go round for ever, expected no loop, or stp: true on each of its switches", t.linkNames(loop))
		if told++; told == shownErrors {
			return
		}
	}
}

// linkNames names links, not all if they are many.
func (t *Topology) linkNames(links []int) string {
	return few(textsOf(links, func(i int) string { return t.Links[i].name() }))
}

// name is the link by its ends.
func (l *Link) name() string { return l.Endpoints[0].String() + "-" + l.Endpoints[1].String() }
