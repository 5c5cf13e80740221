package simulate

import (
	"math"
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

// This file is which way packets go. Hosts and routers look up subnets and routes as
// the kernel does in a lab; switches pass frames on along the one way that there is, or
// that a spanning tree leaves.

// A way is the wires that the packets of a flow take, from one adapter to another. It
// has none within a host.
type way struct {
	flow  roce.Flow // as the sender sees it
	wires []*dataplane.Wire[*frame]
	to    *node
	mtu   int // of all links on it, bytes of IP packet
}

// mostHops bounds the routers on a way: the hop limit of packets.
const mostHops = 64

// way is the way of a flow from a host; nil if its packets do not arrive anywhere.
func (n *network) way(from *node, flow roce.Flow) *way {
	w, known := from.shard.ways[flow]
	if !known {
		w = n.find(from, flow)
		from.shard.ways[flow] = w
	}
	return w
}

func (n *network) find(from *node, flow roce.Flow) *way {
	w, at := &way{flow: flow, mtu: math.MaxInt}, from
	for range mostHops {
		if place, ok := n.places[flow.Remote]; ok && place.node == at {
			w.to = at
			return w
		}
		face, via, ok := n.next(at, flow.Remote, flow)
		if !ok {
			return nil
		}
		to, ok := n.places[via]
		if !ok {
			return nil // nobody has the address
		}
		wires := n.cross(n.links[face.Link].wires[face.End], n.links[to.face.Link].wires[1-to.face.End])
		if wires == nil {
			return nil
		}
		for _, wire := range wires {
			w.wires = append(w.wires, wire)
			w.mtu = min(w.mtu, n.links[wire.Link].spec.MTU)
		}
		at = to.node
	}
	return nil
}

// next is by which interface a node sends packets to an address, and to which next hop:
// the address itself if a subnet of the node's has it. Of several next hops that are
// equally near, flows share those whose link is up.
func (n *network) next(at *node, to netip.Addr, flow roce.Flow) (face *topology.Interface, via netip.Addr, ok bool) {
	if p, own := n.places[to]; own && p.node == at {
		return p.face, to, true
	}
	up := func(link int) bool { return n.links[link].on }
	f := dataplane.Flow{From: flow.Local, To: to, Port: flow.SourcePort}
	return dataplane.NextHop(at.spec, at.routes, f, at.seed, n.topo.Convergence > 0, up)
}

// cross is the wires from one, on which frames leave a host or router, to another, on
// which they arrive at one: the two are the same, or switches join them. It is nil if
// none do.
func (n *network) cross(from, to *dataplane.Wire[*frame]) []*dataplane.Wire[*frame] {
	if from == to {
		return []*dataplane.Wire[*frame]{from}
	}
	at := n.end(from)
	if at == nil || at.spec.Kind != topology.Switch {
		return nil
	}
	for _, face := range at.spec.Interfaces {
		if face.Link == from.Link || n.blocked[face.Link] {
			continue
		}
		if rest := n.cross(n.links[face.Link].wires[face.End], to); rest != nil {
			return append([]*dataplane.Wire[*frame]{from}, rest...)
		}
	}
	return nil
}

// end is the node at the end of a wire.
func (n *network) end(w *dataplane.Wire[*frame]) *node { return n.links[w.Link].nodes[1-w.Direction] }
