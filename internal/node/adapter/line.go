package adapter

import (
	"net/netip"

	"github.com/ndklab/ndklab/topology"
)

// LineRates returns the rate at which each address of a node may send, in bits per second: that of
// the direction of its link that leads away from the node. Addresses whose links have no rate
// are not in it.
func LineRates(node *topology.Node, links []topology.Link) map[netip.Addr]uint64 {
	rates := make(map[netip.Addr]uint64)
	for _, face := range node.Interfaces {
		rate := links[face.Link].Directions[face.End].Rate
		for _, prefix := range face.Addresses {
			if a := prefix.Addr(); rate != 0 && Takes(a) {
				rates[a] = rate
			}
		}
	}
	return rates
}
