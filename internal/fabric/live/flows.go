package live

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/topology"
)

// This file finds the links that the packets of workloads take, as of the start of a lab: hosts and routers look up subnets and
// routes (dataplane.NextHop), and switches pass frames on along the tree of links that are not spare.

// A face is an interface of a node, by their indices.
type face struct{ node, face int }

// paths finds the paths of packets through a topology.
type paths struct {
	topo     *topology.Topology
	segments []int
	spare    []bool // by link: no frames pass it
	ends     map[topology.Endpoint]face
	faces    map[netip.Addr]face
	trees    map[face]map[int]Hop // by the interface that frames go to, what each switch of its segment sends them by
}

// flowsOf returns the flows of a topology's workloads. at has the index of each node.
func flowsOf(t *topology.Topology, at map[string]int) []Flow {
	flows := []Flow{}
	if len(t.Workloads) == 0 {
		return flows
	}
	p := &paths{topo: t, segments: t.Segments(), spare: t.SpareLinks(func(link int) bool { return !t.Links[link].Down }), ends: map[topology.Endpoint]face{}, faces: map[netip.Addr]face{}, trees: map[face]map[int]Hop{}}
	for i := range t.Nodes {
		for j, f := range t.Nodes[i].Interfaces {
			p.ends[topology.Endpoint{Node: t.Nodes[i].Name, Interface: f.Name}] = face{i, j}
			for _, a := range f.Addresses {
				p.faces[a.Addr()] = face{i, j}
			}
		}
	}
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
		next, known := p.faces[via]
		if !ok || !known {
			return nil, false, false
		}
		across, ok := p.cross(Hop{out.Link, out.End}, next)
		if !ok {
			return nil, false, false
		}
		hops = append(hops, across...)
		shared = shared || via != flow.To && several(n, flow.To)
		if at = next.node; at == to {
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

// cross returns the hops from a first one to an interface in the same segment.
func (p *paths) cross(first Hop, to face) ([]Hop, bool) {
	hops := []Hop{first}
	for range len(p.topo.Nodes) {
		last := hops[len(hops)-1]
		end, ok := p.ends[p.topo.Links[last.Link].Endpoints[1-last.End]]
		if ok && end == to {
			return hops, true
		}
		next, on := p.tree(to)[end.node]
		if !ok || !on {
			return nil, false
		}
		hops = append(hops, next)
	}
	return nil, false
}

// tree returns, of each switch in a segment, the hop by which frames to an interface leave it.
func (p *paths) tree(to face) map[int]Hop {
	hops, known := p.trees[to]
	if known {
		return hops
	}
	hops = make(map[int]Hop)
	for queue := []face{to}; len(queue) > 0; queue = queue[1:] {
		out := &p.topo.Nodes[queue[0].node].Interfaces[queue[0].face]
		peer, ok := p.ends[p.topo.Links[out.Link].Endpoints[1-out.End]]
		if !ok || p.spare[out.Link] || p.topo.Nodes[peer.node].Kind != topology.Switch {
			continue
		}
		if _, has := hops[peer.node]; has {
			continue
		}
		hops[peer.node] = Hop{out.Link, 1 - out.End}
		for i := range p.topo.Nodes[peer.node].Interfaces {
			if i != peer.face {
				queue = append(queue, face{peer.node, i})
			}
		}
	}
	p.trees[to] = hops
	return hops
}
