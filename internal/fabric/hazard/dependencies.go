package hazard

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/topology/cabling"
	"github.com/ndklab/ndklab/topology"
)

// This file finds the queues that packets may take one after another: a queue that is paused waits until
// the next one drains. Where a node without a shared buffer lies between them nobody pauses the first.

// deadlocks returns a line for a cycle of queues of each class.
func (f *fabric) deadlocks() (found []string) {
	follow := f.dependencies()
	order := slices.SortedFunc(maps.Keys(follow), func(a, b [2]place) int {
		return cmp.Or(compare(a[0], b[0]), compare(a[1], b[1]))
	})
	for class := range mmu.Classes {
		next := make(map[mmu.Queue][]mmu.Queue)
		var queues []mmu.Queue
		for _, pair := range order {
			a, b := f.shared[pair[0].Node], f.shared[pair[1].Node]
			if !a.has(class) || !b.has(class) || follow[pair]&a.dscps[class]&b.dscps[class] == 0 {
				continue
			}
			q := mmu.Queue{Switch: pair[0].Node, Port: pair[0].Face, Class: class}
			if next[q] == nil {
				queues = append(queues, q)
			}
			next[q] = append(next[q], mmu.Queue{Switch: pair[1].Node, Port: pair[1].Face, Class: class})
		}
		cycle := mmu.FindCycle(queues, func(q mmu.Queue, visit func(mmu.Queue)) {
			for _, n := range next[q] {
				visit(n)
			}
		})
		if cycle != nil {
			name := func(q mmu.Queue) string { return f.name(place{Node: q.Switch, Face: q.Port}) }
			remedy := ", expected paths without such a cycle, or a watchdog"
			if slices.ContainsFunc(cycle, func(q mmu.Queue) bool { return f.topo.Nodes[q.Switch].Watchdog != nil }) {
				remedy = ", until a watchdog ends that"
			}
			found = append(found, fmt.Sprintf("%s may deadlock: each queue of class %d waits for the next%s", mmu.FormatCycle(cycle, name), class, remedy))
		}
	}
	return found
}

func compare(p, q place) int {
	return cmp.Or(cmp.Compare(p.Node, q.Node), cmp.Compare(p.Face, q.Face))
}

// dependencies returns the DSCPs, as bits, of packets that may take one queue and then another, by both.
func (f *fabric) dependencies() map[[2]place]uint64 {
	follow := make(map[[2]place]uint64)
	var hosts []int
	for i := range f.topo.Nodes {
		if f.topo.Nodes[i].Kind == topology.Host {
			hosts = append(hosts, i)
		}
	}
	for _, to := range hosts {
		walks := make(map[walkKey]*walk)
		for _, from := range hosts {
			if from == to || f.pairs != nil && !f.pairs[[2]int{from, to}] {
				continue
			}
			address, ok := f.destination(from, to)
			if !ok {
				continue
			}
			key := walkKey{address, f.senders[from].all}
			w := walks[key]
			if w == nil {
				w = &walk{fabric: f, to: address, dscps: key.dscps, follow: follow, routed: make(map[int][]place), switched: make(map[crossing][]place)}
				walks[key] = w
			}
			w.hops(from, func(face int, via place) { w.cross(place{Node: from, Face: face}, via) })
		}
	}
	return follow
}

// destination returns the address that a host's packets to another go to.
func (f *fabric) destination(from, to int) (netip.Addr, bool) {
	a, b := &f.topo.Nodes[from], &f.topo.Nodes[to]
	if len(b.Interfaces) == 1 && len(b.Interfaces[0].Addresses) > 0 && b.Interfaces[0].Addresses[0].Addr().Is4() {
		return b.Interfaces[0].Addresses[0].Addr(), true // as Topology.PathIn has it, where there is a path
	}
	p, ok := f.topo.PathIn(a, b, f.segments)
	return p.To.Address, ok
}

// A walkKey has the packets that make a walk of their own.
type walkKey struct {
	to    netip.Addr
	dscps uint64
}

// A walk follows packets to an address from wherever they come. It passes each router, and each switch on
// the path to a next hop, once.
type walk struct {
	*fabric
	to       netip.Addr
	dscps    uint64
	follow   map[[2]place]uint64  // of all walks
	routed   map[int][]place      // by router: the queues that packets take first from there on
	switched map[crossing][]place // likewise, by switch and next hop
}

// A crossing is a switch on the path to a next hop.
type crossing struct {
	node int
	via  place
}

// onward returns the queues that packets take first from a router on.
func (w *walk) onward(node int) []place {
	first, known := w.routed[node]
	if known || w.topo.Nodes[node].Kind != topology.Router {
		return first
	}
	w.routed[node] = nil // where routes go round, it ends
	w.hops(node, func(face int, via place) { first = append(first, w.leave(place{Node: node, Face: face}, via)...) })
	w.routed[node] = first
	return first
}

// leave returns the queue by which packets leave a node for a next hop; none if the node pauses nobody.
func (w *walk) leave(by, via place) []place {
	next := w.cross(by, via)
	if w.shared[by.Node] == nil {
		return nil
	}
	for _, n := range next {
		w.follow[[2]place{by, n}] |= w.dscps
	}
	return []place{by}
}

// cross returns the queues that packets take first beyond a link.
func (w *walk) cross(link, via place) []place {
	peer := w.Peers[link.Node][link.Face]
	switch {
	case peer == via:
		return w.onward(via.Node)
	case peer == cabling.Nowhere || w.topo.Nodes[peer.Node].Kind != topology.Switch:
		return nil // nobody takes them
	}
	key := crossing{peer.Node, via}
	first, known := w.switched[key]
	if known {
		return first
	}
	if port, ok := w.Toward(via)[peer.Node]; ok {
		first = w.leave(place{Node: peer.Node, Face: port}, via)
	}
	w.switched[key] = first
	return first
}

// hops calls each with all interfaces by which a node may send packets to the walk's address, and the next
// hop: the interface that has the address if a subnet of the node's has it, else the routers of the route that
// fits best.
func (w *walk) hops(node int, each func(face int, via place)) {
	n := &w.topo.Nodes[node]
	bits, direct := -1, -1
	for i := range n.Interfaces {
		for _, a := range n.Interfaces[i].Addresses {
			if a.Bits() > bits && a.Masked().Contains(w.to) {
				bits, direct = a.Bits(), i
			}
		}
	}
	var route *topology.Route
	for i := range n.Routes {
		if r := &n.Routes[i]; r.To.Bits() > bits && r.To.Contains(w.to) {
			route, bits = r, r.To.Bits()
		}
	}
	if route == nil {
		if via, ok := w.Owners[w.to]; ok && direct >= 0 {
			each(direct, via)
		}
		return
	}
	for _, hop := range route.Via {
		via, ok := w.Owners[hop]
		face := slices.IndexFunc(n.Interfaces, func(i topology.Interface) bool {
			return slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Masked().Contains(hop) })
		})
		if ok && face >= 0 {
			each(face, via)
		}
	}
}
