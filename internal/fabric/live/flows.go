package live

import (
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/topology/cabling"
	"github.com/ndklab/ndklab/topology"
)

// This file finds the links that the packets of workloads take, as of the start of a lab: hosts and routers look up subnets and
// routes (dataplane.NextHop), and switches pass frames on along the tree of links that are not spare.

// A paths finds the paths of packets through a topology.
type paths struct {
	*cabling.Cabling
	topo     *topology.Topology
	segments []int
}

// flowsOf returns the flows of a topology's workloads. at has the index of each node.
func flowsOf(t *topology.Topology, at map[string]int) []Flow {
	flows := []Flow{}
	if len(t.Workloads) == 0 {
		return flows
	}
	p := &paths{Cabling: cabling.Of(t), topo: t, segments: t.Segments()}
	for i := range t.Workloads {
		for _, pair := range t.Workloads[i].Flows {
			f := Flow{Workload: t.Workloads[i].Name, From: at[pair.From], To: at[pair.To], Hops: []Hop{}}
			if hops, shared, ok := p.find(f.From, f.To); ok {
				f.Hops, f.Shared = hops, shared
			}
			flows = append(flows, f)
		}
	}
	return flows
}

// mostHops bounds the nodes on a path: the hop limit of packets.
const mostHops = 64

// find returns the path from a host to another. shared is true where several are equally near.
func (p *paths) find(from, to int) (hops []Hop, shared, ok bool) {
	path, ok := p.topo.PathIn(&p.topo.Nodes[from], &p.topo.Nodes[to], p.segments)
	if !ok {
		return nil, false, false
	}
	flow := dataplane.Flow{From: path.From.Address, To: path.To.Address}
	up := func(link int) bool { return !p.topo.Links[link].Down }
	for at := from; len(hops) <= mostHops; {
		n := &p.topo.Nodes[at]
		out, via, ok := dataplane.NextHop(n, n.Routes, flow, 0, false, up)
		next, known := p.Owners[via]
		if !ok || !known {
			return nil, false, false
		}
		by := slices.IndexFunc(n.Interfaces, func(f topology.Interface) bool { return f.Link == out.Link && f.End == out.End })
		across, ok := p.cross(cabling.Port{Node: at, Face: by}, next)
		if !ok {
			return nil, false, false
		}
		hops = append(hops, across...)
		shared = shared || via != flow.To && several(n, flow.To)
		if at = next.Node; at == to {
			return hops, shared, true
		}
	}
	return nil, false, false
}

// several reports whether a node has more than one next hop for an address.
func several(n *topology.Node, to netip.Addr) bool {
	bits, hops := -1, 0
	for i := range n.Routes {
		if r := &n.Routes[i]; r.To.Bits() > bits && r.To.Contains(to) {
			bits, hops = r.To.Bits(), len(r.Via)
		}
	}
	return hops > 1
}

// cross returns the hops from an interface to another in the same segment.
func (p *paths) cross(from, to cabling.Port) (hops []Hop, ok bool) {
	for range len(p.topo.Nodes) {
		out := &p.topo.Nodes[from.Node].Interfaces[from.Face]
		hops = append(hops, Hop{out.Link, out.End})
		peer := p.Peers[from.Node][from.Face]
		if peer == to {
			return hops, true
		}
		face, on := p.Toward(to)[peer.Node]
		if !on {
			return nil, false
		}
		from = cabling.Port{Node: peer.Node, Face: face}
	}
	return nil, false
}
