package topology

import "net/netip"

// A Path says where traffic from one node to another leaves the first and arrives
// at the second. Both addresses are of one family.
type Path struct {
	From, To Hop
}

// A Hop is one end of a Path.
type Hop struct {
	Node      string
	Interface string
	Address   netip.Addr
}

// Path returns how one node reaches another: over the first link that joins them, else
// over the first segment that both are in, else over routers, to the first
// address for which there is a route. Addresses in a common subnet are the first
// IPv4 ones, or IPv6 ones if there are none. ok is false if the one does not reach
// the other.
func (t *Topology) Path(from, to string) (p Path, ok bool) {
	a, b := t.FindNode(from), t.FindNode(to)
	if a == nil || b == nil || a == b {
		return Path{}, false
	}
	if x, y, ok := t.adjacent(a, b); ok { // which takes no knowledge of the others
		return between(a, b, x, y)
	}
	return t.PathIn(a, b, t.Segments())
}

// adjacent is the interfaces at the first link that joins two nodes, if there is one.
func (t *Topology) adjacent(a, b *Node) (x, y Interface, ok bool) {
	for _, x := range a.Interfaces {
		if e := t.Links[x.Link].Endpoints[1-x.End]; e.Node == b.Name {
			return x, *b.face(e.Interface), true
		}
	}
	return x, y, false
}

// PathIn is Path, where the nodes and the segment of each link (Segments) are known.
func (t *Topology) PathIn(a, b *Node, in []int) (Path, bool) {
	if x, y, ok := t.adjacent(a, b); ok {
		return between(a, b, x, y)
	}
	faces := make(map[int]Interface) // of b, by segment
	for _, y := range b.Interfaces {
		faces[in[y.Link]] = y
	}
	for _, x := range a.Interfaces {
		if y, ok := faces[in[x.Link]]; ok {
			return between(a, b, x, y)
		}
	}
	return routed(a, b)
}

// face is the node's interface of that name, or nil.
func (n *Node) face(name string) *Interface {
	for i := range n.Interfaces {
		if n.Interfaces[i].Name == name {
			return &n.Interfaces[i]
		}
	}
	return nil
}

// between is the path between interfaces in one segment.
func between(a, b *Node, x, y Interface) (Path, bool) {
	from, to, ok := sharing(x.Addresses, y.Addresses, netip.Addr.Is4)
	if !ok {
		from, to, ok = sharing(x.Addresses, y.Addresses, netip.Addr.Is6)
	}
	if !ok {
		return Path{}, false
	}
	return Path{Hop{a.Name, x.Name, from}, Hop{b.Name, y.Name, to}}, true
}

// routed is the path from a to the first address of b for which a has a route,
// IPv4 before IPv6. It leaves a from the address that is in the subnet of the
// route's first next hop.
func routed(a, b *Node) (Path, bool) {
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		for _, y := range b.Interfaces {
			for _, to := range y.Addresses {
				if !family(to.Addr()) {
					continue
				}
				if x, from, ok := a.source(to.Addr()); ok {
					return Path{Hop{a.Name, x, from}, Hop{b.Name, y.Name, to.Addr()}}, true
				}
			}
		}
	}
	return Path{}, false
}

// source is the interface and the address from which the node's packets to an
// address leave if there is a route for that.
func (n *Node) source(to netip.Addr) (name string, from netip.Addr, ok bool) {
	for _, r := range n.Routes {
		if !r.To.Contains(to) {
			continue
		}
		for _, i := range n.Interfaces {
			for _, a := range i.Addresses {
				if a.Masked().Contains(r.Via[0]) {
					return i.Name, a.Addr(), true
				}
			}
		}
	}
	return "", netip.Addr{}, false
}
