package lab

import (
	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/topology"
)

// maxNeighbours is how many neighbours on one segment a node is told of. On larger
// ones, nodes ask for those they need, as ARP and neighbour discovery do: entries for
// each other of 500 nodes would take the kernel 250 MB.
const maxNeighbours = 64

// segments is who is on each link, or on all the links that switches join, by the
// index of the link. The nodes on a segment hear each other without a router.
func segments(topo *topology.Topology) [][]node.Neighbour {
	of := make([]int, len(topo.Links)) // the first link of each one's segment
	for i := range of {
		of[i] = i
	}
	first := func(i int) int {
		for of[i] != i {
			of[i] = of[of[i]] // so that the next search is shorter
			i = of[i]
		}
		return i
	}
	for _, n := range topo.Nodes {
		if n.Kind != topology.Switch {
			continue
		}
		for _, i := range n.Interfaces {
			of[first(i.Link)] = first(n.Interfaces[0].Link)
		}
	}
	members := make([][]node.Neighbour, len(topo.Links))
	for _, n := range topo.Nodes {
		for _, i := range n.Interfaces {
			segment := first(i.Link)
			for _, a := range i.Addresses {
				members[segment] = append(members[segment], node.Neighbour{Addr: a.Addr(), MAC: link.MAC(i.Link, i.End)})
			}
		}
	}
	for i := range members {
		members[i] = members[first(i)]
	}
	return members
}
