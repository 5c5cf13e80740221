package udp

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// segmentInSoftware has eth0 take packets one by one, so that the kernel cuts
// super-packets apart before them.
func segmentInSoftware(tb testing.TB, ns netns.NsHandle) {
	tb.Helper()
	within(tb, ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetGSOMaxSegs(eth0, 1)
	})
}

// sniff opens a packet socket that receives IP packets on eth0 of a namespace.
func sniff(tb testing.TB, ns netns.NsHandle) (fd int) {
	tb.Helper()
	within(tb, ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			return err
		}
		tb.Cleanup(func() { _ = unix.Close(fd) })
		limit := unix.NsecToTimeval(patience.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: eth0.Attrs().Index})
	})
	return fd
}

// sniffed reads what a packet socket has received next. A read with a time limit ends with
// EINTR when a signal comes, as the Go runtime sends itself, or the process was stopped.
func sniffed(fd int, buf []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, buf); err != unix.EINTR {
			return n, err
		}
	}
}

// TestWire looks at the packets on the wire as a peer that sees the
// whole of them.
func TestWire(t *testing.T) {
	ends := newLink(t, 4200)
	segmentInSoftware(t, ends[0])
	from := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	to := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	to.Listen(arrived)
	fd := sniff(t, ends[1])
	memory := random(64 << 10)
	packets := append(writes(memory, 64<<10), acknowledgement(99))
	for i := range packets[2:] {
		packets[2+i].Class = data26
	}
	wantID := []uint16{0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14} // First and Middle; the rest
	for i, name := range []string{"IPv4", "IPv6"} {
		t.Run(name, func(t *testing.T) {
			flow := flowBetween(from, to, i)
			want := wants(t, flow, packets)
			mustSend(t, from, flow, packets)
			if d := diff(want, arrived.take(t, len(packets))); d != "" {
				t.Errorf("arrived: want (-), got (+):\n%s", d)
			}
			var verifier roce.Verifier
			var onWire []roce.Received
			buf := make([]byte, 1<<16)
			for len(onWire) < len(packets) {
				n, err := sniffed(fd, buf)
				if err != nil {
					t.Fatalf("%d packets on the wire, then: %v", len(onWire), err)
				}
				var p roce.Received
				if err := verifier.DecodeIP(buf[:n], &p); err == roce.ErrNotRoCE {
					continue // ARP and neighbour discovery
				} else if err != nil {
					t.Fatalf("packet %d on the wire: %v", len(onWire), err)
				}
				if id := binary.BigEndian.Uint16(buf[4:]); i == 0 && id != wantID[len(onWire)] {
					t.Errorf("packet %d on the wire has IPv4 identification %d", len(onWire), id)
				}
				p.Payload = bytes.Clone(p.Payload)
				onWire = append(onWire, p)
			}
			if d := diff(want, onWire); d != "" {
				t.Errorf("on the wire: want (-), got (+):\n%s", d)
			}
		})
	}
	if n := to.Counters()["super_packets_received"]; n != 0 {
		t.Errorf("%d super-packets crossed the wire", n)
	}
}

// TestIdentification sends packets from a raw socket with identifications as
// our peers' packets have them, also single ones out of a super-packet, and as
// a peer that counts them.
func TestIdentification(t *testing.T) {
	ends := newLink(t, 4200)
	to := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	to.Listen(arrived)
	var fd int
	within(t, ends[0], func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	defer unix.Close(fd)
	flow := roce.Flow{Local: addressesOf(0)[0], Remote: addressesOf(1)[0], SourcePort: 0xC000}
	remote := &unix.SockaddrInet4{Addr: flow.Remote.As4()}
	var sealer roce.Sealer
	send := func(id uint16, psn uint32, damage byte) {
		t.Helper()
		packet := acknowledgement(psn)
		packet.Payload = [][]byte{random(100)}
		b := sealer.AppendIP(nil, &flow, id, &packet)
		b[len(b)-10] ^= damage
		if err := unix.Sendto(fd, b, 0, remote); err != nil {
			t.Fatal(err)
		}
	}
	var psn uint32
	for _, id := range []uint16{0, 5, 127, 1, 0} {
		psn++
		send(id, psn, 0)
	}
	send(128, 99, 0) // what a peer of our kind does not send
	send(1, 99, 1)
	for _, id := range []uint16{0xFFFE, 0xFFFF, 0, 1, 130, 131, 129, 132} {
		psn++
		send(id, psn, 0)
	}
	send(133, 99, 1)
	psn++
	send(134, psn, 0)
	for i, p := range arrived.take(t, int(psn)) {
		if p.Header.PSN != uint32(i+1) {
			t.Fatalf("packet %d arrived instead of %d", p.Header.PSN, i+1)
		}
	}
	if n := to.Counters()["icrc_errors"]; n != 3 {
		t.Errorf("%d ICRC errors", n)
	}
}

// TestNoChecksum sends packets whose UDP checksum is 0, as those of Linux rxe are
// over IPv6, too, also to a share.
func TestNoChecksum(t *testing.T) {
	ends := newLink(t, 4200)
	to := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	to.Listen(arrived)
	var sockets []*os.File
	within(t, ends[1], func() (err error) {
		sockets, err = to.Share(1)
		return err
	})
	var member *Carrier
	within(t, ends[1], func() (err error) {
		member, err = Open(Config{Addresses: addressesOf(1), Sockets: sockets})
		return err
	})
	closeLater(t, member)
	arrivedThere := newCollector()
	member.Listen(arrivedThere)
	for _, f := range sockets {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fd := sniff(t, ends[0])
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := bound.(*unix.SockaddrLinklayer)
	within(t, ends[1], func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err == nil {
			address.Halen = uint8(copy(address.Addr[:], eth0.Attrs().HardwareAddr))
		}
		return err
	})
	var sealer roce.Sealer
	for i, protocol := range []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6} {
		address.Protocol = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
		flow := roce.Flow{Local: addressesOf(0)[i], Remote: addressesOf(1)[i], SourcePort: firstPort}
		for _, c := range []struct {
			qpn  uint32
			into collector
		}{{1, arrived}, {1<<shareShift + 7, arrivedThere}} {
			packet := acknowledgement(5)
			packet.Header.DestQPN = c.qpn
			if err := unix.Sendto(fd, sealer.AppendIP(nil, &flow, 48000, &packet), 0, address); err != nil {
				t.Fatal(err)
			}
			if p := c.into.take(t, 1)[0]; p.Flow.Remote != flow.Local {
				t.Errorf("a packet from %v arrived instead", p.Flow.Remote)
			}
		}
	}
}

// TestReceiveBuffer fills the receive buffer with as many packets as may wait,
// in the memory that a packet socket puts them in, which is the most wasteful.
func TestReceiveBuffer(t *testing.T) {
	ends := newLink(t, 4200)
	var address unix.SockaddrLinklayer
	within(t, ends[1], func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err == nil {
			address.Halen = uint8(copy(address.Addr[:], eth0.Attrs().HardwareAddr))
		}
		return err
	})
	fd := sniff(t, ends[0])
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address.Ifindex = bound.(*unix.SockaddrLinklayer).Ifindex
	address.Protocol = binary.NativeEndian.Uint16([]byte{0x08, 0x00})
	for _, payload := range []int{1024, 2048, 4096} {
		var to *Carrier
		within(t, ends[1], func() (err error) {
			// The buffer that an ordinary user is granted where nothing was configured.
			to, err = Open(Config{Addresses: addressesOf(1), ReceiveBuffer: 416 << 10})
			return err
		})
		closeLater(t, to)
		flow := roce.Flow{Local: addressesOf(0)[0], Remote: addressesOf(1)[0], SourcePort: firstPort}
		packet := roce.Packet{Header: roce.Header{Opcode: roce.WriteMiddle}, Payload: [][]byte{make([]byte, payload)}}
		b := new(roce.Sealer).AppendIP(nil, &flow, 0, &packet)
		n := to.ReceiveBuffer() / len(b)
		send := func() {
			if err := unix.Sendto(fd, b, 0, &address); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			arriving(t, to.listeners[0], send)
		}
		if overflow := to.Counters()["receive_overflow"]; overflow != 0 {
			t.Errorf("%d of %d packets of %d bytes overflowed a receive buffer of %d", overflow, n, len(b), to.ReceiveBuffer())
		}
		for overflow := uint64(0); overflow == 0; overflow = to.Counters()["receive_overflow"] {
			arriving(t, to.listeners[0], send)
			n++
		}
		if filled := n * len(b); filled > 5*to.ReceiveBuffer()/4 {
			t.Errorf("a receive buffer of %d bytes took %d of packets of %d", to.ReceiveBuffer(), filled, len(b))
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
