package lab

import (
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// maxNeighbours is the number of neighbours on one segment up to which a node is told their
// addresses. The nodes of larger segments ask for those they need, by ARP and neighbour
// discovery, as idle hosts do (node.Config.Idle): entries of each of 500 nodes for each other would take the kernel 250 MB. Of
// entries that were asked for, the kernel holds 1024 of a family in all nodes together
// (gc_thresh3), which only the host's root can raise.
const maxNeighbours = 256

// segments returns the interfaces on the segment of each link, by the index of the link.
func segments(topo *topology.Topology) [][]node.Neighbour {
	of := topo.Segments()
	members := make(map[int][]node.Neighbour)
	for _, n := range topo.Nodes {
		for _, i := range n.Interfaces {
			for _, a := range i.Addresses {
				members[of[i.Link]] = append(members[of[i.Link]], node.Neighbour{Addr: a.Addr(), MAC: link.MAC(topo.Links[i.Link].Number, i.End)})
			}
		}
	}
	byLink := make([][]node.Neighbour, len(of))
	for i, segment := range of {
		byLink[i] = members[segment]
	}
	return byLink
}
