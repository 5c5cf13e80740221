package udp

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

func TestSuperPackets(t *testing.T) {
	memory := make([]byte, 128<<10)
	sends := func(sizes ...int) (packets []roce.Packet) {
		for _, n := range sizes {
			packets = append(packets, roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{memory[:n]}})
		}
		return packets
	}
	many := make([]int, 100)
	classified := func(class uint8, packets []roce.Packet) []roce.Packet {
		for i := range packets {
			packets[i].Class = class
		}
		return packets
	}
	for _, c := range []struct {
		name    string
		packets []roce.Packet
		want    []int // packets per message
	}{
		{"one packet", sends(100), []int{1}},
		{"WRITE First is longer than Middle", writes(memory[:64<<10], 64<<10), []int{2, 14}},
		{"WRITE Only", writes(memory[:64<<10], 4<<10), []int{15, 1}},
		{"a shorter one is the last", sends(8, 8, 4, 4, 8), []int{3, 1, 1}},
		{"a longer one begins anew", sends(4, 8, 8), []int{1, 2}},
		{"padding evens lengths out", sends(5, 8, 6), []int{3}},
		{"no more than UDP_MAX_SEGMENTS", sends(many...), []int{64, 36}},
		{"one class", classified(data26, sends(8, 8, 8)), []int{3}},
		{"another class begins anew", slices.Concat(sends(8, 8), classified(data26, sends(8, 8, 8)), sends(8)), []int{2, 3, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := new(sending)
			flow := roce.Flow{Local: netip.MustParseAddr("::1"), Remote: netip.MustParseAddr("::1"), SourcePort: firstPort}
			if n := b.fill(&flow, c.packets, false); n != len(c.packets) {
				t.Fatalf("%d of %d packets fitted", n, len(c.packets))
			}
			var got []int
			for i := range b.outgoing.n {
				got = append(got, b.messages[i].packets)
				// A message has the control messages that it needs and no other.
				var want uint64
				for _, needed := range []bool{b.messages[i].cut, b.messages[i].class != 0} {
					if needed {
						want += uint64(unix.CmsgSpace(4))
					}
				}
				if got := b.outgoing.messages[i].Hdr.Controllen; got != want {
					t.Errorf("message %d has %d bytes of control messages, want %d", i, got, want)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("packets per message, want (-), got (+):\n%s", d)
			}
			if n := b.fill(&flow, c.packets[:min(sendMessages, len(c.packets))], true); n != b.outgoing.n {
				t.Errorf("plain: %d packets in %d messages", n, b.outgoing.n)
			}
		})
	}
}

// TestLongSend has more to send than one system call takes.
func TestLongSend(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	arrived := newCollector()
	to.Listen(arrived)
	flow := flowBetween(from, to, 0)
	var packets []roce.Packet
	for i := range 3 * sendMessages {
		packets = append(packets, acknowledgement(uint32(i)))
		packets[i].Header.Opcode = []roce.Opcode{roce.Acknowledge, roce.AtomicAcknowledge}[i%2] // of two sizes
	}
	want := wants(t, flow, packets)
	mustSend(t, from, flow, packets)
	if d := diff(want, arrived.take(t, len(packets))); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
}

func TestSourcePorts(t *testing.T) {
	taken, err := net.ListenPacket("udp4", "127.0.0.1:49152") // 0xC000
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := open(t, "127.0.0.1")
	local := c.Addresses()[0]
	ports := make(map[uint16]int)
	for qpn := range uint32(256) {
		port := c.SourcePort(local, qpn)
		if port < 0xC000 || port != c.SourcePort(local, qpn) {
			t.Fatalf("port %#x for QP %d", port, qpn)
		}
		ports[port]++
	}
	if ports[0xC000] != 0 || ports[0xC001] == 0 {
		t.Error("a port in use was not avoided")
	}
	if len(ports) != sourcePorts {
		t.Errorf("%d ports", len(ports))
	}
	for port, n := range ports {
		if n > 2*256/sourcePorts {
			t.Errorf("%d of 256 QPs use port %#x", n, port)
		}
	}
	if port := c.SourcePort(netip.MustParseAddr("127.0.0.9"), 1); port != 0 {
		t.Errorf("port %#x at a foreign address", port)
	}
}

// TestLazy has senders opened when flows ask for their ports. Those whose ports
// others have all share the first one.
func TestLazy(t *testing.T) {
	const taken = 2 // the range of ports in which none is free
	local, port := netip.MustParseAddr("127.0.0.1"), uint16(firstPort+taken*portRange)
	for i := range uint16(portRange) {
		other, err := net.ListenPacket("udp4", netip.AddrPortFrom(local, port+i).String())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
	}
	from, err := Open(Config{Addresses: []netip.Addr{local}, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, from)
	if n := len(from.senders); n != 1 {
		t.Errorf("%d senders before there is a flow, want 1", n)
	}
	to := open(t, "127.0.0.2")
	arrived := newCollector()
	to.Listen(arrived)
	ports := map[uint16]bool{}
	for hash := range uint32(256) {
		flow := roce.Flow{Local: local, Remote: to.Addresses()[0], SourcePort: from.SourcePort(local, hash)}
		ports[flow.SourcePort] = true
		packets := []roce.Packet{acknowledgement(hash)}
		mustSend(t, from, flow, packets)
		if d := diff(wants(t, flow, packets), arrived.take(t, 1)); d != "" {
			t.Errorf("want (-), got (+):\n%s", d)
		}
	}
	if len(ports) != sourcePorts-1 || len(from.senders) != sourcePorts-1 || !ports[firstPort] {
		t.Errorf("ports %v of %d senders, want %d with %#x", ports, len(from.senders), sourcePorts-1, firstPort)
	}
	for p := range ports {
		if p >= port && p < port+portRange {
			t.Errorf("port %#x is somebody else's", p)
		}
	}
}

func TestSendThatCannotBe(t *testing.T) {
	c := open(t, "127.0.0.1")
	flow := flowBetween(c, c, 0)
	packets := []roce.Packet{acknowledgement(0), acknowledgement(1)}
	unbound, mixed, unset, huge := flow, flow, flow, acknowledgement(0)
	unbound.SourcePort = 1
	mixed.Remote = netip.IPv6Loopback()
	unset.Remote = netip.Addr{}
	huge.Payload = [][]byte{make([]byte, sendBytes)}
	mustSend(t, c, unbound, packets)
	mustSend(t, c, mixed, packets)
	mustSend(t, c, unset, packets)
	mustSend(t, c, flow, []roce.Packet{huge})
	counters := c.Counters()
	if counters["send_dropped"] != 6 || counters["send_too_big"] != 1 || counters["packets_sent"] != 0 {
		t.Error(counters)
	}
}

// TestBlackhole has the kernel refuse a destination with the same error as
// segmentation, for which it must not be taken.
func TestBlackhole(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	within(t, ends[0], func() error {
		return netlink.RouteAdd(&netlink.Route{
			Type: unix.RTN_BLACKHOLE, Dst: &net.IPNet{IP: net.IPv4(10, 9, 0, 0), Mask: net.CIDRMask(16, 32)}})
	})
	flow := flowBetween(c, c, 0)
	good := flow
	flow.Remote = netip.MustParseAddr("10.9.0.1")
	packets := writes(random(64<<10), 4<<10)
	mustSend(t, c, flow, packets)
	if counters := c.Counters(); counters["send_dropped"] != 16 {
		t.Error(counters)
	}
	mustSend(t, c, good, packets)
	if counters := c.Counters(); counters["packets_sent"] != 16 || counters["super_packets_sent"] != 1 {
		t.Error(counters)
	}
}

// TestSegmentationRefused has the kernel refuse super-packets, as it does when
// it cannot leave the checksum to the device.
func TestSegmentationRefused(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	arrived := newCollector()
	to.Listen(arrived)
	flow := flowBetween(from, to, 0)
	if err := unix.SetsockoptInt(from.senders[sourceOf(flow)].fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	packets := append([]roce.Packet{acknowledgement(0)}, writes(random(64<<10), 4<<10)...)
	for range 2 {
		mustSend(t, from, flow, packets)
		if d := diff(wants(t, flow, packets), arrived.take(t, len(packets))); d != "" {
			t.Errorf("want (-), got (+):\n%s", d)
		}
	}
	counters := from.Counters()
	if counters["packets_sent"] != 2*17 || counters["super_packets_sent"] != 0 || counters["segmentation_refused"] != 1 {
		t.Error(counters)
	}
}

// TestFullBufferBlocksNobody: while a send buffer is full, to send takes no longer than
// else. The quickest of many is looked at, so that a busy machine does not matter: if each
// waited for room, each would.
func TestFullBufferBlocksNobody(t *testing.T) {
	c, _ := openLink(t, 4200)
	flow := roce.Flow{Local: c.Addresses()[0], Remote: netip.MustParseAddr("10.0.0.99"), SourcePort: c.SourcePort(c.Addresses()[0], 1)}
	fd := c.senders[sourceOf(flow)].fd
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10); err != nil {
		t.Fatal(err)
	}
	packets := writes(random(64<<10), 64<<10)
	mustSend(t, c, flow, packets)
	quickest := time.Hour
	for range 50 {
		dropped := c.Counters()["send_dropped"]
		before := time.Now()
		mustSend(t, c, flow, packets[:4])
		took := time.Since(before)
		if c.Counters()["send_dropped"] > dropped { // or there was room just now
			quickest = min(quickest, took)
		}
	}
	if quickest > time.Millisecond {
		t.Errorf("a full buffer takes %v", quickest)
	}
}

// TestNoRoom fills a small send buffer with packets that wait for a neighbour
// who does not exist.
func TestNoRoom(t *testing.T) {
	c, _ := openLink(t, 4200)
	flow := roce.Flow{Local: c.Addresses()[0], Remote: netip.MustParseAddr("10.0.0.99"), SourcePort: c.SourcePort(c.Addresses()[0], 1)}
	if err := unix.SetsockoptInt(c.senders[sourceOf(flow)].fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10); err != nil {
		t.Fatal(err)
	}
	packets := writes(random(1<<20), 64<<10)
	mustSend(t, c, flow, packets)
	counters := c.Counters()
	if counters["packets_sent"] == 0 || counters["send_dropped"] == 0 ||
		counters["packets_sent"]+counters["send_dropped"] != uint64(len(packets)) {
		t.Error(counters)
	}
}
