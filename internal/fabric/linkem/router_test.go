package linkem

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/topology"
)

// routed is a and b behind two routers in a row. MTUs differ.
const routed = `
name: routed
seed: 1
topology:
  defaults: {adapter: {roce_frame_size: 1024}, link: {rate: 1gbit, delay: 40us, mtu: 4200}}
  nodes: {"r[0-1]": {kind: router, buffer: hpcc}, a: , b: }
  links:
    - {endpoints: [{node: a, interface: eth0, addresses: [10.0.0.1/24, "fd00::1/64"]}, {node: r0, interface: a, addresses: [10.0.0.2/24, "fd00::2/64"]}]}
    - {endpoints: [{node: b, interface: eth0, addresses: [10.0.1.1/24, "fd00:1::1/64"]}, {node: r1, interface: b, addresses: [10.0.1.2/24, "fd00:1::2/64"]}]}
    - {endpoints: [{node: r0, interface: e, addresses: [10.0.2.1/24, "fd00:2::1/64"]}, {node: r1, interface: e, addresses: [10.0.2.2/24, "fd00:2::2/64"]}], mtu: 1500}
`

// ipFrame is a UDP frame of n packets from a, of the link and end 0 of which the address of Ethernet to is, to an IP address.
func ipFrame(to MAC, dst netip.Addr, limit uint8, n, size int) []byte {
	v6 := dst.Is6()
	raw := superPacket(n, size)
	payload := raw[frame.HeaderLen+42:]
	ip := 20
	if v6 {
		ip = 40
	}
	f := append(make([]byte, frame.HeaderLen), to[:]...)
	f = append(f, 2, 0, 0, 0, 0, 0)
	if v6 {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(8+len(payload)))
		f = append(f, 17, limit)
		src := netip.MustParseAddr("fd00::1").As16()
		f = append(f, src[:]...)
	} else {
		f = append(f, 8, 0, 0x45, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(28+len(payload)))
		f = append(f, 0, 9, 0, 0, limit, 17, 0, 0)
		f = append(f, 10, 0, 0, 1)
	}
	f = append(f, dst.AsSlice()...)
	if !v6 {
		binary.BigEndian.PutUint16(f[frame.HeaderLen+24:], headerSum(f[frame.HeaderLen+14:frame.HeaderLen+34]))
	}
	f = append(f, 0xc0, 1, 0x12, 0xb7)
	f = binary.BigEndian.AppendUint16(f, uint16(8+len(payload)))
	f = append(f, 0, 0)
	f = append(f, payload...)
	if n > 1 {
		copy(f, raw[:frame.HeaderLen])
		binary.NativeEndian.PutUint16(f[6:], uint16(14+ip))
	}
	return f
}

// headerSum is the checksum of an IPv4 header, over words (RFC 791).
func headerSum(h []byte) uint16 {
	sum := 0
	for i := 0; i < len(h); i += 2 {
		sum += int(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Routers forward by their routes: with the next hop's address of Ethernet, one less of the hop limit for each, and an IPv4
// checksum that is right. The node's kernel gets as it is all that needs more than a route.
func TestRoutersForward(t *testing.T) {
	topo, err := topology.Parse("routed.yaml", []byte(routed))
	must(t, err)
	b := newFabricBenchOf(t, topo)
	r0 := MAC{2, 0, 0, 0, 0, 1}
	at := time.Duration(0)
	for _, c := range []struct {
		what, to string
		mac      MAC
		limit    uint8
		n, size  int
		arrives  string // the link and end of the port where it leaves
		hops     int
	}{
		{"IPv4", "10.0.1.1", r0, 64, 1, 1000, "b:eth0", 2},
		{"IPv6", "fd00:1::1", r0, 64, 1, 1000, "b:eth0", 2},
		{"a super-packet", "10.0.1.1", r0, 64, 5, 1000, "b:eth0", 2},
		{"a super-packet of IPv6", "fd00:1::1", r0, 64, 5, 1000, "b:eth0", 2},
		{"the last hop", "10.0.1.1", r0, 3, 3, 1000, "b:eth0", 2},
		{"out of hops at the second", "10.0.1.1", r0, 2, 3, 1000, "r0:e", 1},
		{"out of hops at once", "10.0.1.1", r0, 1, 1, 1000, "a:eth0", 0},
		{"for the first router", "10.0.0.2", r0, 64, 1, 100, "a:eth0", 0},
		{"for the second router", "10.0.2.2", r0, 64, 2, 100, "r0:e", 1},
		{"no route", "10.9.9.9", r0, 64, 1, 100, "a:eth0", 0},
		{"nobody has it", "10.0.1.77", r0, 64, 1, 100, "r0:e", 1},
		{"too long for the next link", "10.0.1.1", r0, 64, 2, 2000, "a:eth0", 0},
		{"for another station", "10.0.1.1", MAC{2, 8, 8, 8, 8, 8}, 64, 1, 100, "a:eth0", 0},
		{"broadcast", "10.0.1.1", MAC{255, 255, 255, 255, 255, 255}, 64, 1, 100, "a:eth0", 0},
		{"multicast", "239.1.1.1", MAC{1, 0, 0x5e, 1, 1, 1}, 64, 1, 100, "a:eth0", 0},
	} {
		b.arrive(t, "a", ipFrame(c.mac, netip.MustParseAddr(c.to), c.limit, c.n, c.size), at)
		at += time.Second
		b.advance(at)
		got := map[string][][]byte{}
		for name := range b.sockets {
			if all := b.sendTo(t, name); all != nil {
				got[name] = all
			}
		}
		// Where a router's kernel gets it, it leaves at the router's end of the link.
		want := map[string]string{"a:eth0": "a:eth0 1", "r0:e": "r0:e 1", "b:eth0": "b:eth0 0"}[c.arrives]
		packets := got[want]
		if len(got) != 1 || len(packets) != c.n {
			t.Errorf("%s: %d packets leave at %s, and somewhere else: %v", c.what, len(packets), want, len(got))
			continue
		}
		for i, p := range packets {
			limit, sum := p[21], uint16(0)
			if p[12] == 8 {
				limit, sum = p[22], headerSum(p[14:34])
			}
			if int(limit) != int(c.limit)-c.hops || sum != 0 || p[len(p)-1] != byte(i) {
				t.Errorf("%s: packet %d has the limit %d, a checksum that is wrong by %#x and the payload %d", c.what, i, limit, sum, p[len(p)-1])
			}
			if c.hops == 2 {
				if to, from := MAC(p), MAC(p[6:]); to != (MAC{2, 0, 0, 0, 1, 0}) || from != (MAC{2, 0, 0, 0, 1, 1}) {
					t.Errorf("%s: from %x to %x", c.what, from, to)
				}
			}
		}
	}
}

// Flows share next hops that are equally near, packets of one flow stay together, and a next hop whose link is down gets none.
func TestRoutersShare(t *testing.T) {
	topo, err := topology.Parse("shares.yaml", []byte(routed))
	must(t, err)
	b := newFabricBenchOf(t, topo)
	r := b.fabric.routers["r0"]
	to := netip.MustParsePrefix("10.7.0.0/16")
	vias := []netip.Addr{netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("10.0.0.1")}
	must(t, b.fabric.setRoutes(routesParams{"r0", []topology.Route{{To: to, Via: vias}}}))
	count := func() (n [2]int) {
		for port := range uint16(1000) {
			flow := flowOf("10.0.1.1", "10.7.0.1", port)
			h := r.next(flow, b.fabric)
			if again := r.next(flow, b.fabric); h != again || !h.known {
				t.Fatalf("%+v and %+v", h, again)
			}
			n[h.out]++
		}
		return n
	}
	if n := count(); n[0] < 400 || n[1] < 400 {
		t.Errorf("the next hops have %v of 1000 flows", n)
	}
	must(t, b.links.carry(carryParams{"a:eth0", false}))
	if n := count(); n != [2]int{0, 1000} {
		t.Errorf("with one link down the next hops have %v of 1000 flows", n)
	}
	must(t, b.links.carry(carryParams{"r0:e", false}))
	if h := r.next(flowOf("10.0.1.1", "10.7.0.1", 1), b.fabric); h.known {
		t.Errorf("with both links down: %+v", h)
	}
	for i := range 3 * mostFlows {
		r.next(flowOf("10.0.1.1", fmt.Sprintf("10.7.%d.%d", i>>8&255, i&255), uint16(i)), b.fabric)
	}
	if len(r.found) > mostFlows {
		t.Errorf("%d flows are kept", len(r.found))
	}
	if err := b.fabric.setRoutes(routesParams{"a", nil}); err == nil || err.Error() != "a is no router with a buffer" {
		t.Error(err)
	}
}
