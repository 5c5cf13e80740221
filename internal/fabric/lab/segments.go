package lab

import (
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// maxNeighbours is how many addresses of neighbours on one segment a node is told.
// The nodes of larger ones ask for those they need, as ARP and neighbour discovery
// do: entries for each other of 500 nodes would take the kernel 250 MB. Of what is
// asked for, the kernel holds 1024 entries of a family in all nodes together
// (gc_thresh3), which only the host's root can raise.
const maxNeighbours = 256

// segments is who is on the segment of each link, by the index of the link.
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
