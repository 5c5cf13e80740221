package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// counted returns the changes of a carrier's counters since before.
func counted(c *Carrier, before map[string]uint64) map[string]uint64 {
	change := map[string]uint64{}
	for name, n := range c.Counters() {
		if n != before[name] {
			change[name] = n - before[name]
		}
	}
	return change
}

// host is a route's destination of one address.
func host(address netip.Addr) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
}

// onEth0 does something to eth0 of a namespace.
func onEth0(t *testing.T, ns netns.NsHandle, f func(netlink.Link) error) {
	t.Helper()
	within(t, ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return f(eth0)
	})
}

// TestRefusedByRoutes: routes of every kind that refuse have packets be lost and
// counted, one by one or as super-packets, and neither the error nor its like is
// taken for anything else: what goes elsewhere from the same socket goes on.
func TestRefusedByRoutes(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	peer := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	peer.Listen(arrived)
	for i, nowhere := range []string{"192.0.2.1", "2001:db8::1"} {
		good := flowBetween(c, peer, i)
		bad := good
		bad.Remote = netip.MustParseAddr(nowhere)
		for _, kind := range []int{0, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE} {
			if kind != 0 { // else there is no route
				within(t, ends[0], func() error {
					return netlink.RouteReplace(&netlink.Route{Type: kind, Dst: host(bad.Remote)})
				})
			}
			packets := append([]roce.Packet{acknowledgement(0)}, writes(random(64<<10), 4<<10)...)
			before := c.Counters()
			mustSend(t, c, bad, packets)
			mustSend(t, c, bad, packets)
			if n := counted(c, before); n["send_dropped"] != 2*uint64(len(packets)) || n["packets_sent"] != 0 {
				t.Errorf("%s, route of type %d: %v", nowhere, kind, n)
			}
			before = c.Counters()
			mustSend(t, c, good, packets)
			arrived.take(t, len(packets))
			if n := counted(c, before); n["packets_sent"] != uint64(len(packets)) || n["super_packets_sent"] != 1 || n["send_dropped"] != 0 {
				t.Errorf("to the peer, after a route of type %d: %v", kind, n)
			}
		}
	}
}

// TestPathChanges: whatever happens to the path, the carrier goes on when it is
// over, as fast as before.
func TestPathChanges(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	peer := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	peer.Listen(arrived)
	packets := writes(random(60<<10), 4<<10)
	setMTU := func(mtu int) {
		onEth0(t, ends[0], func(l netlink.Link) error { return netlink.LinkSetMTU(l, mtu) })
	}
	routeMTU := func(change func(*netlink.Route) error, mtu int) {
		onEth0(t, ends[0], func(l netlink.Link) error {
			for _, remote := range addressesOf(1) {
				if err := change(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: host(remote), MTU: mtu}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	prohibit := func(change func(*netlink.Route) error) {
		within(t, ends[0], func() error {
			for _, remote := range addressesOf(1) {
				if err := change(&netlink.Route{Type: unix.RTN_PROHIBIT, Dst: host(remote)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, test := range []struct {
		name         string
		worse, again func()
		lost         string // the counter
	}{
		{"the interface goes down and up",
			func() { onEth0(t, ends[0], netlink.LinkSetDown) },
			func() {
				onEth0(t, ends[0], netlink.LinkSetUp)
				// The kernel takes IPv6 addresses away from an interface that is down.
				onEth0(t, ends[0], func(l netlink.Link) error {
					return netlink.AddrReplace(l, &netlink.Addr{Flags: unix.IFA_F_NODAD,
						IPNet: &net.IPNet{IP: addressesOf(0)[1].AsSlice(), Mask: net.CIDRMask(64, 128)}})
				})
				for i, ns := range ends {
					awaitUp(t, ns, addressesOf(i)[1])
				}
			}, "send_dropped"},
		{"the interface's MTU becomes smaller, and what it was", func() { setMTU(1500) }, func() { setMTU(4200) }, "send_too_big"},
		{"the route's MTU does", func() { routeMTU(netlink.RouteReplace, 1500) }, func() { routeMTU(netlink.RouteDel, 1500) }, "send_too_big"},
		{"the route is another for a while", func() { prohibit(netlink.RouteReplace) }, func() { prohibit(netlink.RouteDel) }, "send_dropped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.worse()
			for i := range addressesOf(0) {
				before := c.Counters()
				mustSend(t, c, flowBetween(c, peer, i), packets)
				mustSend(t, c, flowBetween(c, peer, i), packets)
				if n := counted(c, before); n[test.lost] != 2*uint64(len(packets)) || n["packets_sent"] != 0 {
					t.Errorf("meanwhile, over IPv%d: %v", 4+2*i, n)
				}
			}
			test.again()
			for i := range addressesOf(0) {
				before := c.Counters()
				mustSend(t, c, flowBetween(c, peer, i), packets)
				arrived.take(t, len(packets))
				if n := counted(c, before); n["packets_sent"] != uint64(len(packets)) || n["super_packets_sent"] != 1 {
					t.Errorf("afterwards, over IPv%d: %v", 4+2*i, n)
				}
			}
		})
	}
}

// TestPortUnreachable: what a host without an adapter answers harms nobody.
func TestPortUnreachable(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	arrived := newCollector()
	c.Listen(arrived)
	fd := sniff(t, ends[0])
	for i, remote := range addressesOf(1) {
		flow := roce.Flow{Local: c.Addresses()[i], Remote: remote, SourcePort: c.SourcePort(c.Addresses()[i], 1)}
		mustSend(t, c, flow, []roce.Packet{acknowledgement(0)})
		for buf := make([]byte, 1<<16); ; { // until the ICMP message has come
			n, err := sniffed(fd, buf)
			if err != nil {
				t.Fatal(err)
			}
			v4 := n > 21 && buf[0] == 0x45 && buf[9] == unix.IPPROTO_ICMP && buf[20] == 3
			v6 := n > 41 && buf[0]>>4 == 6 && buf[6] == unix.IPPROTO_ICMPV6 && buf[40] == 1
			if v4 || v6 {
				break
			}
		}
		before := c.Counters()
		for range 3 {
			mustSend(t, c, flow, []roce.Packet{acknowledgement(1)})
		}
		mustSend(t, c, flowBetween(c, c, i), []roce.Packet{acknowledgement(2)})
		arrived.take(t, 1)
		if n := counted(c, before); n["packets_sent"] != 4 || n["packets_received"] != 1 || n["send_dropped"] != 0 {
			t.Errorf("%v: %v", remote, n)
		}
	}
}

// TestMarks: the fields of the IP header that switches change, and the UDP
// checksum, are sent as roce.md 1 has them, and taken whatever they are (4).
func TestMarks(t *testing.T) {
	ends := newLink(t, 4200)
	segmentInSoftware(t, ends[0])
	from := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	to := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	to.Listen(arrived)
	fd := sniff(t, ends[1])
	seen := func(i int) []byte {
		t.Helper()
		for {
			buf := make([]byte, 1<<16)
			n, err := sniffed(fd, buf)
			if err != nil {
				t.Fatal(err)
			}
			udp := []int{20, 40}[i]
			if n > udp+8 && buf[[]int{9, 6}[i]] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(buf[udp+2:]) == roce.Port {
				return buf[:n]
			}
		}
	}
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(0)})
	if b := seen(0); b[0] != 0x45 || b[1] != 0 || b[6] != 0x40 || b[7] != 0 || b[8] != 64 {
		t.Errorf("sent with the IPv4 header %x", b[:20])
	}
	mustSend(t, from, flowBetween(from, to, 1), []roce.Packet{acknowledgement(0)})
	if b := seen(1); binary.BigEndian.Uint32(b)&0xFFF00000 != 6<<28 || b[7] != 64 {
		t.Errorf("sent with the IPv6 header %x", b[:40])
	}
	arrived.take(t, 2)

	var raw int
	within(t, ends[0], func() (err error) {
		raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	defer unix.Close(raw)
	flow := flowBetween(from, to, 0)
	remote := &unix.SockaddrInet4{Addr: flow.Remote.As4()}
	for i, change := range []func(b []byte){
		func(b []byte) {},
		func(b []byte) { b[1] = 0x03 },            // congestion experienced
		func(b []byte) { b[1] = 0xB8 },            // DSCP 46
		func(b []byte) { b[8] = 1 },               // the last hop
		func(b []byte) { b[28+4] |= 0x80 | 0x3F }, // FECN and what is reserved beside it
	} {
		packet := acknowledgement(uint32(i))
		b := new(roce.Sealer).AppendIP(nil, &flow, 0, &packet)
		change(b)
		if err := unix.Sendto(raw, b, 0, remote); err != nil {
			t.Fatal(err)
		}
		if got := arrived.take(t, 1)[0].Header.PSN; got != uint32(i) {
			t.Errorf("packet %d arrived instead of %d", got, i)
		}
	}
	if n := to.Counters()["icrc_errors"]; n != 0 {
		t.Errorf("%d ICRC errors", n)
	}
}

// TestLongestDatagram: a datagram as long as there can be is taken whole and
// dropped for what it is.
func TestLongestDatagram(t *testing.T) {
	c := open(t, "127.0.0.1")
	arrived := newCollector()
	c.Listen(arrived)
	stranger, err := net.Dial("udp4", "127.0.0.1:4791")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	b := make([]byte, maxUDPPayload)
	b[0] = byte(roce.SendOnly)
	for range 3 * receiveMessages {
		if _, err := stranger.Write(b[:len(b)-3]); err != nil { // a multiple of 4
			t.Fatal(err)
		}
		mustSend(t, c, flowBetween(c, c, 0), []roce.Packet{acknowledgement(0)})
		arrived.take(t, 1)
	}
	if malformed, _ := awaitRefused(t, c, 3*receiveMessages); malformed != 0 {
		t.Errorf("%d malformed", malformed)
	}
}

// TestTooBigOnOlderKernels: where packets that are too big had the kernel refuse
// to segment, as up to Linux 6.13, it is asked to again. Nor are they cut into
// fragments then, over either family.
func TestTooBigOnOlderKernels(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	peer := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	peer.Listen(arrived)
	packets := writes(random(60<<10), 4<<10)
	for i := range addressesOf(0) {
		flow := flowBetween(c, peer, i)
		onEth0(t, ends[0], func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
		c.senders[sourceOf(flow)].plain.Store(true)
		before := c.Counters()
		mustSend(t, c, flow, packets)
		if n := counted(c, before); n["send_too_big"] != uint64(len(packets)) || n["packets_sent"] != 0 {
			t.Error(n)
		}
		onEth0(t, ends[0], func(l netlink.Link) error { return netlink.LinkSetMTU(l, 4200) })
		before = c.Counters()
		mustSend(t, c, flow, packets)
		arrived.take(t, len(packets))
		if n := counted(c, before); n["super_packets_sent"] != 1 {
			t.Error(n)
		}
	}
}

// TestQueueingDiscipline: what a queueing discipline drops was sent, as far as
// the carrier can tell, and it goes on sending.
func TestQueueingDiscipline(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	var err error
	onEth0(t, ends[0], func(l netlink.Link) error {
		attributes := netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
		err = netlink.QdiscReplace(&netlink.Tbf{QdiscAttrs: attributes, Rate: 100_000, Limit: 20_000, Buffer: 10_000})
		return nil
	})
	if err != nil {
		t.Skip("this kernel has no token bucket filter:", err)
	}
	packets := writes(random(400<<10), 4<<10)
	for i, remote := range addressesOf(1) {
		before := c.Counters()
		flow := roce.Flow{Local: c.Addresses()[i], Remote: remote, SourcePort: c.SourcePort(c.Addresses()[i], 1)}
		for i := range packets {
			mustSend(t, c, flow, packets[i:i+1])
		}
		if n := counted(c, before); n["packets_sent"] != uint64(len(packets)) || len(n) != 1 {
			t.Error(n)
		}
	}
}
