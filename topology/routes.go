package topology

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"gopkg.in/yaml.v3"
)

// maxRoutes bounds routers times subnets, and thereby the time that routes take to
// find and to install.
const maxRoutes = 1 << 23

// families are those of addresses, IPv4 first as everywhere.
var families = [2]func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6}

// A subnet is one of a segment.
type subnet struct {
	prefix  netip.Prefix
	segment int
}

// routes gives hosts and routers their routes. A router has one to every subnet
// that it gets to, but that subnets which lie together and have the same next hops
// share one; so has a host, which has a default route instead where all that it
// gets to has the same next hops. A route covers no address of another segment,
// and a router has no default route: packets to what does not exist come to an end.
func (r *network) routes(at *yaml.Node) {
	t, segments := r.lab, r.segments
	r.addressed()
	subnets := t.subnets(segments)
	r.subnetsDiffer(subnets)
	routers := 0
	for _, n := range t.Nodes {
		if n.Kind == Router {
			routers++
		}
	}
	if routers*len(subnets) > maxRoutes {
		r.tooManyRoutes(at, routers, len(subnets))
	}
	if len(r.errors) > 0 {
		return
	}
	wide := func(m *mesh) bool { return t.sameMTU(m) || r.routedMTU(m) }
	if !t.fillRoutes(segments, subnets, maxRoutes, wide) {
		r.tooManyRoutes(at, len(t.Nodes), len(subnets))
	}
}

// fillRoutes adds routes to the subnets of segments to the nodes, by either family. It
// ends and returns false when hosts have more than so many routes, or when check does,
// which is called for each mesh that the routes lead through.
func (t *Topology) fillRoutes(segments []segment, subnets []subnet, most int, check func(*mesh) bool) bool {
	in := segmentOf(segments, len(t.Links))
	var of *mesh
	var before []bool
	for _, family := range families {
		takesPart := make([]bool, len(segments))
		var theirs []subnet
		for _, s := range subnets {
			if family(s.prefix.Addr()) {
				takesPart[s.segment] = true
				theirs = append(theirs, s)
			}
		}
		if of == nil || !slices.Equal(takesPart, before) {
			of, before = newMesh(t, in, takesPart), takesPart
			if !check(of) {
				return false
			}
		}
		table := table{mesh: of, topology: t, family: family, subnets: theirs}
		if !table.fill(most) {
			return false
		}
	}
	return true
}

func (r *network) tooManyRoutes(at *yaml.Node, nodes, subnets int) {
	r.errorf(at, "%d nodes with routes to %d subnets are too many, expected switches in the place of some routers", nodes, subnets)
}

// addressed reports ends without an address in a subnet of their segment, where a router
// is in that: whatever the router can send there must arrive.
func (r *network) addressed() {
	t, links := r.lab, r.links
	addresses := t.endAddresses()
	for _, s := range t.routedSegments(r.segments) {
		own, first := s.subnets(addresses)
		for _, e := range s.ends {
			for i, p := range own {
				if f := first[i]; !slices.ContainsFunc(addresses[e.link][e.end], func(a netip.Prefix) bool { return a.Masked() == p }) {
					r.errorf(links[e.link].is.endpoints[e.end].at, "%s has no address in %s, expected one: %s (line %d) has, and a router is in the segment",
						t.Links[e.link].Endpoints[e.end], p, t.Links[f.link].Endpoints[f.end], links[f.link].is.endpoints[f.end].at.Line)
				}
			}
		}
	}
}

// endAddresses is the addresses of the ends of all links.
func (t *Topology) endAddresses() [][2][]netip.Prefix {
	addresses := make([][2][]netip.Prefix, len(t.Links))
	for _, n := range t.Nodes {
		for _, i := range n.Interfaces {
			addresses[i.Link][i.End] = i.Addresses
		}
	}
	for _, i := range t.Externals {
		addresses[i.Link][i.End] = i.Addresses
	}
	return addresses
}

// routedSegments is those of the segments that a router is in, by their numbers.
func (t *Topology) routedSegments(segments []segment) iter.Seq2[int, segment] {
	router := make(map[string]bool)
	for _, n := range t.Nodes {
		router[n.Name] = n.Kind == Router
	}
	isRouter := func(e linkEnd) bool { return router[t.Links[e.link].Endpoints[e.end].Node] }
	return func(yield func(int, segment) bool) {
		for i, s := range segments {
			if slices.ContainsFunc(s.ends, isRouter) && !yield(i, s) {
				return
			}
		}
	}
}

// subnets is those that the segment's ends have addresses in, and the first end of each.
func (s segment) subnets(addresses [][2][]netip.Prefix) (own []netip.Prefix, first []linkEnd) {
	for _, e := range s.ends {
		for _, a := range addresses[e.link][e.end] {
			if !slices.Contains(own, a.Masked()) {
				own, first = append(own, a.Masked()), append(first, e)
			}
		}
	}
	return own, first
}

// subnets is the subnets of the segments that a router is in, in the order of their
// addresses.
func (t *Topology) subnets(segments []segment) []subnet {
	addresses := t.endAddresses()
	var all []subnet
	for number, s := range t.routedSegments(segments) {
		own, _ := s.subnets(addresses)
		for _, p := range own {
			all = append(all, subnet{p, number})
		}
	}
	slices.SortFunc(all, func(a, b subnet) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.segment, b.segment))
	})
	return all
}

// subnetsDiffer reports segments that have addresses in common although routers
// lead to both.
func (r *network) subnetsDiffer(subnets []subnet) {
	t, segments, links := r.lab, r.segments, r.links
	parts := t.parts(segments)
	last := make(map[int]subnet) // that reaches farthest, by part
	for _, s := range subnets {
		link := segments[s.segment].links[0]
		part := parts[link]
		before, ok := last[part]
		if !ok || !before.prefix.Overlaps(s.prefix) {
			last[part] = s
			continue
		}
		if other := segments[before.segment].links[0]; before.segment != s.segment {
			r.errorf(links[link].at, "the subnet %s of the link %s has addresses of %s, which the link %s has (line %d), expected another: routers lead to both",
				s.prefix, t.Links[link].name(), before.prefix, t.Links[other].name(), links[other].at.Line)
		}
	}
}

// A table makes the routes of one family.
type table struct {
	*mesh
	topology *Topology
	family   func(netip.Addr) bool
	subnets  []subnet       // in the order of their addresses
	via      [][]netip.Addr // by index in sets, as far as it was asked for
	run      []run          // reused
}

// A run is subnets that lie together and have the same next hops.
type run struct {
	to  netip.Prefix
	via int // index in sets
}

// fill adds the routes to the nodes. It reports whether those of hosts are at most so many.
func (t *table) fill(most int) bool {
	for v, i := range t.routers {
		t.run = t.run[:0]
		for _, s := range t.subnets {
			if w := t.ways[t.wayTo[s.segment]]; w.far[v] > 0 {
				t.add(s.prefix, w.via[v])
			}
		}
		t.topology.Nodes[i].Routes = append(t.topology.Nodes[i].Routes, t.routes()...)
	}
	work := 0
	known := make(map[string][]Route) // by the segments that a host is in
	var key bytes.Buffer
	for i := range t.topology.Nodes {
		n := &t.topology.Nodes[i]
		gates := t.gates(i)
		if n.Kind != Host || len(gates) == 0 {
			continue
		}
		key.Reset()
		for _, p := range t.byNode[i] {
			fmt.Fprintln(&key, t.ports[p].segment)
		}
		routes, ok := known[key.String()]
		if !ok {
			if len(gates) > 1 {
				if work += len(t.subnets); work > most {
					return false
				}
			}
			routes = t.host(i, gates)
			known[key.String()] = routes
		}
		n.Routes = append(n.Routes, routes...)
	}
	return true
}

// host is the routes of a host.
func (t *table) host(i int, gates []int) []Route {
	here := make(map[int]bool) // segments
	for _, p := range t.byNode[i] {
		here[t.ports[p].segment] = true
	}
	t.run = t.run[:0]
	if len(gates) == 1 {
		// All that is not here lies behind the one router, or there is nothing.
		for _, p := range t.byNode[t.ports[gates[0]].node] {
			if !here[t.ports[p].segment] {
				return []Route{{t.everything(), t.addresses(t.set(gates))}}
			}
		}
		return nil
	}
	same := true
	for _, s := range t.subnets {
		if here[s.segment] {
			continue
		}
		if hops := t.nearest(gates, t.wayTo[s.segment]); len(hops) > 0 {
			via := t.set(hops)
			t.add(s.prefix, via)
			same = same && t.run[0].via == via
		}
	}
	if same && len(t.run) > 0 {
		return []Route{{t.everything(), t.addresses(t.run[0].via)}}
	}
	return t.routes()
}

// add adds a subnet to the run, which lies behind those that are in it. Two halves
// of a larger one become that. Of a subnet whose switches have come apart, the run has
// the first part.
func (t *table) add(to netip.Prefix, via int) {
	if last := len(t.run) - 1; last >= 0 && t.run[last].to.Contains(to.Addr()) {
		return
	}
	for len(t.run) > 0 {
		last := t.run[len(t.run)-1]
		bits := to.Bits() - 1
		if last.via != via || last.to.Bits() != to.Bits() || netip.PrefixFrom(last.to.Addr(), bits).Masked() != netip.PrefixFrom(to.Addr(), bits).Masked() {
			break
		}
		t.run = t.run[:len(t.run)-1]
		to = netip.PrefixFrom(last.to.Addr(), bits)
	}
	t.run = append(t.run, run{to, via})
}

// routes is the run as routes.
func (t *table) routes() []Route {
	routes := make([]Route, 0, len(t.run))
	for _, r := range t.run {
		routes = append(routes, Route{r.to, t.addresses(r.via)})
	}
	return routes
}

// addresses is the addresses of next hops.
func (t *table) addresses(set int) []netip.Addr {
	for len(t.via) < len(t.sets) {
		t.via = append(t.via, nil)
	}
	if t.via[set] == nil {
		for _, p := range t.sets[set] {
			i := t.topology.Nodes[t.ports[p].node].Interfaces[t.ports[p].face]
			at := slices.IndexFunc(i.Addresses, func(a netip.Prefix) bool { return t.family(a.Addr()) })
			t.via[set] = append(t.via[set], i.Addresses[at].Addr())
		}
	}
	return t.via[set]
}

// everything is all addresses of the family.
func (t *table) everything() netip.Prefix {
	if t.family(netip.IPv4Unspecified()) {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
