package dataplane

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/ndklab/ndklab/topology"
)

// A Flow tells packets apart that may take different paths.
type Flow struct {
	From, To netip.Addr
	Port     uint16 // the source port of UDP or TCP
}

// NextHop returns by which interface a node sends packets of a flow, and to which next hop: their destination itself if a subnet
// of the node's has it. Of several next hops that are equally near, flows share those whose link is up. seed is the node's.
// reroutes says that a subnet does not count whose link is down, as in the kernel (node.Config.Reroutes).
func NextHop(n *topology.Node, routes []topology.Route, f Flow, seed uint64, reroutes bool, up func(link int) bool) (face *topology.Interface, via netip.Addr, ok bool) {
	bits := -1
	for i := range n.Interfaces {
		if reroutes && !up(n.Interfaces[i].Link) {
			continue
		}
		for _, a := range n.Interfaces[i].Addresses {
			if a.Bits() > bits && a.Masked().Contains(f.To) {
				face, via, bits = &n.Interfaces[i], f.To, a.Bits()
			}
		}
	}
	var route *topology.Route
	for i := range routes {
		if r := &routes[i]; r.To.Bits() > bits && r.To.Contains(f.To) {
			route, bits = r, r.To.Bits()
		}
	}
	if route == nil {
		return face, via, face != nil
	}
	live := make([]netip.Addr, 0, len(route.Via))
	for _, hop := range route.Via {
		if toward := interfaceToward(n, hop); toward != nil && up(toward.Link) {
			live = append(live, hop)
		}
	}
	if len(live) == 0 {
		live = route.Via
	}
	via = live[share(seed, f)%uint64(len(live))]
	face = interfaceToward(n, via)
	return face, via, face != nil
}

// interfaceToward returns the node's interface in whose subnet an address is; nil if there is none.
func interfaceToward(n *topology.Node, to netip.Addr) *topology.Interface {
	for i := range n.Interfaces {
		for _, a := range n.Interfaces[i].Addresses {
			if a.Masked().Contains(to) {
				return &n.Interfaces[i]
			}
		}
	}
	return nil
}

// share is a hash of a flow. Ports count, so that the queue pairs between two hosts
// part, and each node hashes otherwise, as in a lab (node.Config.Routes), though not by
// the kernel's function.
func share(seed uint64, f Flow) uint64 {
	h := fnv.New64a()
	from, to := f.From.As16(), f.To.As16()
	h.Write(from[:]) // a hash.Hash never fails
	h.Write(to[:])
	h.Write(binary.LittleEndian.AppendUint64(nil, seed))
	h.Write(binary.LittleEndian.AppendUint16(nil, f.Port))
	return h.Sum64() >> 1 // the lowest bit of this hash says little
}
