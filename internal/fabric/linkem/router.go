package linkem

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/topology"
)

// A router forwards the packets of a router with a packet buffer, as one does in hardware: the node's kernel gets those that
// are for itself, and all that need more than a route, such as an ICMP error. It belongs to the loop's thread.
type router struct {
	spec   *topology.Node
	seed   uint64 // of the shares that flows have in next hops
	routes []topology.Route
	found  map[dataplane.Flow]hop // since routes and links last changed
}

// A hop names the interface and the station that packets go to next.
type hop struct {
	out   int // interface
	to    MAC
	known bool // else the node's kernel decides
}

// mostFlows bounds the flows that a router has found hops for. Beyond it, it finds them again.
const mostFlows = 8192

// newRouter returns the router of a node.
func (f *fabric) newRouter(n *topology.Node) *router {
	return &router{spec: n, seed: f.topology.SeedOf("node " + n.Name), routes: n.Routes, found: map[dataplane.Flow]hop{}}
}

// setRoutes has a router take other routes from now on.
func (r *router) setRoutes(routes []topology.Route) {
	r.routes = routes
	clear(r.found)
}

// next returns the next hop of a flow.
func (r *router) next(flow dataplane.Flow, f *fabric) hop {
	h, ok := r.found[flow]
	if !ok {
		h = r.find(flow, f)
		if len(r.found) >= mostFlows {
			clear(r.found)
		}
		r.found[flow] = h
	}
	return h
}

// find looks a next hop up.
func (r *router) find(flow dataplane.Flow, f *fabric) hop {
	for i := range r.spec.Interfaces {
		for _, a := range r.spec.Interfaces[i].Addresses {
			if a.Addr() == flow.To {
				return hop{} // its own
			}
		}
	}
	up := func(link int) bool { return f.lines[link][0].wire.Carries() }
	face, via, ok := dataplane.NextHop(r.spec, r.routes, flow, r.seed, f.topology.Convergence > 0, up)
	mac, known := f.neighbours[via]
	if !ok || !known || !up(face.Link) {
		return hop{}
	}
	return hop{slices.IndexFunc(r.spec.Interfaces, func(i topology.Interface) bool { return i.Name == face.Name }), mac, true}
}

// route has a router forward a packet that came in by a port.
func (f *fabric) route(p *packet, at *dataplane.Buffer[*packet], r *router, by *dataplane.Wire[*packet]) {
	flow, limit, ok := p.flow()
	if to, _ := p.addresses(); !ok || to != f.macs[by.Link][1-by.Direction] {
		f.toKernel(p, by)
		return
	}
	h := r.next(flow, f)
	if !h.known {
		f.toKernel(p, by)
		return
	}
	out := &r.spec.Interfaces[h.out]
	if limit <= p.hops+1 || f.Size(p) > dataplane.EthernetLen+f.topology.Links[out.Link].MTU {
		f.toKernel(p, by)
		return
	}
	p.hops++
	p.to, p.from = h.to, f.macs[out.Link][out.End]
	if p.held.frame.Segments() == 1 {
		p.rewrite(p.held.frame.Packet())
		p.hops = 0
	}
	at.Take(p, by.In, h.out)
}

// toKernel hands a packet to the kernel of the node at the end of a wire, which has counted it.
func (f *fabric) toKernel(p *packet, by *dataplane.Wire[*packet]) {
	p.by, p.transit, p.counted = f.lineOf(by), dataplane.Transit{Departs: f.clock.Now()}, true
	f.leave(p)
}

// Offsets in an IP packet.
const (
	etherIPv4, etherIPv6 = 0x0800, 0x86dd
	ipv4TTL, ipv6Hops    = 8, 7
	ipv4Checksum         = 10
)

// addresses returns the addresses of Ethernet that a packet has by now.
func (p *packet) addresses() (to, from MAC) {
	if p.hops > 0 {
		return p.to, p.from
	}
	b := p.held.frame.Packet()
	return MAC(b), MAC(b[6:])
}

// flow returns the flow of an IP packet, and its hop limit as it was sent.
func (p *packet) flow() (flow dataplane.Flow, limit uint8, ok bool) {
	b := p.held.frame.Packet()
	ip := b[dataplane.EthernetLen:]
	switch ethertype := binary.BigEndian.Uint16(b[dataplane.EthernetLen-2:]); {
	case ethertype == etherIPv4 && len(ip) >= 20 && ip[0]>>4 == 4:
		flow.From, flow.To, limit = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), ip[ipv4TTL]
	case ethertype == etherIPv6 && len(ip) >= 40 && ip[0]>>4 == 6:
		flow.From, flow.To, limit = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:])), ip[ipv6Hops]
	default:
		return flow, 0, false
	}
	if flow.To.IsMulticast() || flow.To.IsLinkLocalUnicast() {
		return flow, 0, false
	}
	if p.layers.L4 > 0 && len(b) >= p.layers.L4+2 {
		flow.Port = binary.BigEndian.Uint16(b[p.layers.L4:])
	}
	return flow, limit, true
}

// rewrite has the bytes of a packet, or of its headers, be as routers have made them: with other addresses of Ethernet, and less
// of the hop limit.
func (p *packet) rewrite(b []byte) {
	if p.hops == 0 {
		return
	}
	copy(b, p.to[:])
	copy(b[6:], p.from[:])
	ip := b[dataplane.EthernetLen:]
	if ip[0]>>4 == 6 {
		ip[ipv6Hops] -= p.hops
		return
	}
	// RFC 1624: the sum changes by what the word of the TTL does.
	was := binary.BigEndian.Uint16(ip[ipv4TTL:])
	ip[ipv4TTL] -= p.hops
	is := binary.BigEndian.Uint16(ip[ipv4TTL:])
	sum := uint32(^binary.BigEndian.Uint16(ip[ipv4Checksum:])) + uint32(^was) + uint32(is)
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[ipv4Checksum:], ^uint16(sum))
}
