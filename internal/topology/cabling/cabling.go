// Package cabling follows the links of a topology from interface to interface, and frames through the switches of a segment, as of
// the start of a lab: along the tree of links between switches that are not spare.
//
// It is pure. Routes are not looked at: those who follow packets ask at each next hop. Start reading at Of.
package cabling

import (
	"net/netip"

	"github.com/ndklab/ndklab/topology"
)

// A Port is an interface of a node, by their indices. A port of a switch has the index of its interface.
type Port struct{ Node, Face int }

// Nowhere is the port at the end of a link that is outside the lab.
var Nowhere = Port{-1, -1}

// A Cabling has how the nodes of a topology are joined. It is for one goroutine at a time.
type Cabling struct {
	Peers  [][]Port            // by node and interface: the other end of the link
	Owners map[netip.Addr]Port // by address: the interface that has it

	topo   *topology.Topology
	spare  []bool               // by link: no frames pass it
	toward map[Port]map[int]int // what Toward has returned
}

// Of returns that of a topology.
func Of(t *topology.Topology) *Cabling {
	c := &Cabling{
		Peers: make([][]Port, len(t.Nodes)), Owners: make(map[netip.Addr]Port),
		topo: t, spare: t.SpareLinks(func(link int) bool { return !t.Links[link].Down }), toward: make(map[Port]map[int]int),
	}
	ends := make(map[topology.Endpoint]Port)
	for i := range t.Nodes {
		for j, face := range t.Nodes[i].Interfaces {
			ends[topology.Endpoint{Node: t.Nodes[i].Name, Interface: face.Name}] = Port{i, j}
			for _, a := range face.Addresses {
				c.Owners[a.Addr()] = Port{i, j}
			}
		}
	}
	for i := range t.Nodes {
		for _, face := range t.Nodes[i].Interfaces {
			peer, ok := ends[t.Links[face.Link].Endpoints[1-face.End]]
			if !ok {
				peer = Nowhere
			}
			c.Peers[i] = append(c.Peers[i], peer)
		}
	}
	return c
}

// Toward returns, by switch of a segment, the interface by which frames to one of the segment's interfaces leave it. The map is not to be
// changed.
func (c *Cabling) Toward(to Port) map[int]int {
	faces, known := c.toward[to]
	if known {
		return faces
	}
	faces = make(map[int]int)
	for queue := []Port{to}; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		peer := c.Peers[p.Node][p.Face]
		if peer == Nowhere || c.spare[c.topo.Nodes[p.Node].Interfaces[p.Face].Link] || c.topo.Nodes[peer.Node].Kind != topology.Switch {
			continue
		}
		if _, has := faces[peer.Node]; has {
			continue
		}
		faces[peer.Node] = peer.Face
		for face := range c.Peers[peer.Node] {
			if face != peer.Face {
				queue = append(queue, Port{peer.Node, face})
			}
		}
	}
	c.toward[to] = faces
	return faces
}
