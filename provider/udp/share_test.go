package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// lease has the owner of a group hand out share k, and opens a carrier with it.
func lease(tb testing.TB, owner *Carrier, k int) *Carrier {
	tb.Helper()
	sockets, err := owner.Share(k)
	if err != nil {
		tb.Fatal(err)
	}
	defer closeFiles(tb, sockets)
	c, err := Open(Config{Addresses: owner.Addresses(), Sockets: sockets})
	if err != nil {
		tb.Fatal(err)
	}
	return closeLater(tb, c)
}

// leaseIn does so in the owner's namespace.
func leaseIn(tb testing.TB, ns netns.NsHandle, owner *Carrier, k int) (c *Carrier) {
	tb.Helper()
	within(tb, ns, func() error {
		sockets, err := owner.Share(k)
		if err != nil {
			return err
		}
		defer closeFiles(tb, sockets)
		c, err = Open(Config{Addresses: owner.Addresses(), Sockets: sockets})
		return err
	})
	return closeLater(tb, c)
}

func closeFiles(tb testing.TB, files []*os.File) {
	for _, f := range files {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// addressed is the packets, for a queue pair.
func addressed(qpn uint32, packets ...roce.Packet) []roce.Packet {
	for i := range packets {
		packets[i].Header.DestQPN = qpn
	}
	return packets
}

// checkShares sends packets from every source port to queue pairs, and checks
// that they reach the collector of the share that shareOf says, and no other.
func checkShares(t *testing.T, from *Carrier, flow roce.Flow, collectors []collector, shareOf map[uint32]int) {
	t.Helper()
	for _, port := range from.ports[flow.Local] {
		flow.SourcePort = port
		for qpn, share := range shareOf {
			packets := addressed(qpn, append(writes(random(64<<10), 64<<10), acknowledgement(7))...)
			mustSend(t, from, flow, packets)
			got := collectors[share].takeWithin(len(packets), func(got []roce.Received) {
				t.Fatalf("of %d packets for QP %#x, %d reached share %d", len(packets), qpn, len(got), share)
			})
			if d := diff(wants(t, flow, packets), got); d != "" {
				t.Fatalf("QP %#x, share %d: want (-), got (+):\n%s", qpn, share, d)
			}
		}
	}
	// Every packet sent is accounted for, so what else there is would be twice.
	for share, c := range collectors {
		if len(c) != 0 {
			t.Errorf("%d packets too many in share %d", len(c), share)
		}
	}
}

func TestSharesGetTheirPackets(t *testing.T) {
	t.Parallel()
	ends := newLink(t, 4200)
	from := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	owner := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	carriers := []*Carrier{owner, leaseIn(t, ends[1], owner, 1), leaseIn(t, ends[1], owner, 2)}
	var collectors []collector
	for _, c := range carriers {
		collectors = append(collectors, newCollector())
		c.Listen(collectors[len(collectors)-1])
	}
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			checkShares(t, from, flowBetween(from, owner, i), collectors, map[uint32]int{
				0: 0, 1: 0, 17: 0, 1<<18 - 1: 0, // connection management is QP 1
				1 << 18: 1, 1<<18 + 1: 1, 2<<18 - 1: 1,
				2 << 18: 2, 3<<18 - 1: 2,
				3 << 18: 0, 40 << 18: 0, 1<<24 - 1: 0, // of shares that do not exist
			})
		})
	}
	for share, c := range carriers {
		if c.Counters()["super_packets_received"] == 0 {
			t.Errorf("no super-packet reached share %d", share)
		}
		if c.MTU(c.Addresses()[0]) != 4200 {
			t.Errorf("MTU %d at share %d", c.MTU(c.Addresses()[0]), share)
		}
		if c.ReceiveBuffer() != owner.ReceiveBuffer() {
			t.Errorf("share %d has a receive buffer of %d, its owner of %d", share, c.ReceiveBuffer(), owner.ReceiveBuffer())
		}
	}
}

// TestEveryShare hands all of them out, the last one first.
func TestEveryShare(t *testing.T) {
	from, owner := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	carriers := make([]*Carrier, sharing.Max)
	carriers[0] = owner
	for k := sharing.Max - 1; k > 0; k-- {
		carriers[k] = lease(t, owner, k)
	}
	collectors := make([]collector, len(carriers))
	want := make(map[uint32]int)
	ports := make(map[uint16]bool)
	for k, c := range carriers {
		collectors[k] = newCollector()
		c.Listen(collectors[k])
		want[uint32(k)<<18+17] = k
		for _, port := range c.ports[owner.Addresses()[0]] {
			ports[port] = true
		}
	}
	checkShares(t, from, flowBetween(from, owner, 0), collectors, want)
	if len(ports) != sharing.Max*sourcePorts {
		t.Errorf("%d source ports", len(ports))
	}
}

// TestShareBeginsEmpty has packets arrive in a share between its holders.
func TestShareBeginsEmpty(t *testing.T) {
	owner := open(t, "127.0.0.1", "::1")
	arrived := newCollector()
	owner.Listen(arrived)
	// send returns when what it sent has arrived, or not: what follows it has.
	send := func(psn uint32) {
		for i := range owner.Addresses() {
			flow := flowBetween(owner, owner, i)
			mustSend(t, owner, flow, addressed(1<<18, acknowledgement(psn)))
			mustSend(t, owner, flow, addressed(17, acknowledgement(psn)))
		}
		for _, p := range arrived.take(t, 2) {
			if p.Header.DestQPN != 17 {
				t.Errorf("a packet for QP %#x reached the owner", p.Header.DestQPN)
			}
		}
	}
	queued := func() (n int) {
		for _, l := range owner.listeners {
			n += queuedIn(t, l.members[0])
		}
		return n
	}
	for _, reclaim := range []bool{false, true} {
		sockets, err := owner.Share(1)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			send(0)
		}
		closeFiles(t, sockets) // its holder is gone, and received nothing
		if queued() == 0 {
			t.Fatal("nothing is queued")
		}
		if reclaim {
			if err := owner.Reclaim(1); err != nil {
				t.Fatal(err)
			}
			if n := queued(); n != 0 {
				t.Errorf("%d bytes are queued in a share that was reclaimed", n)
			}
			send(1)
			if n := queued(); n != 0 {
				t.Errorf("%d bytes came in after the share was reclaimed", n)
			}
		}
		holder := lease(t, owner, 1)
		arrived := newCollector()
		holder.Listen(arrived)
		send(2)
		for _, p := range arrived.take(t, 2) {
			if p.Header.PSN != 2 {
				t.Errorf("packet %d arrived, of an earlier holder", p.Header.PSN)
			}
		}
		// The packets that were refused were not for this holder.
		if n := holder.Counters()["receive_overflow"]; n != 0 {
			t.Errorf("receive_overflow %d", n)
		}
		if err := holder.Close(); err != nil {
			t.Error(err)
		}
	}
}

// queuedIn returns the length of the first datagram that waits in a socket.
func queuedIn(tb testing.TB, fd int) int {
	tb.Helper()
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestHolderCloses has one holder after another, and the owner outlast them.
func TestHolderCloses(t *testing.T) {
	defer leak.Check(t)()
	from, owner := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, owner, 0)
	collectors := []collector{newCollector(), nil, newCollector()}
	owner.Listen(collectors[0])
	other := lease(t, owner, 2)
	other.Listen(collectors[2])
	for range 3 {
		holder := lease(t, owner, 1)
		collectors[1] = newCollector()
		holder.Listen(collectors[1])
		checkShares(t, from, flow, collectors, map[uint32]int{17: 0, 1 << 18: 1, 2 << 18: 2})
		if err := holder.Close(); err != nil {
			t.Error(err)
		}
		checkShares(t, from, flow, collectors, map[uint32]int{17: 0, 2 << 18: 2})
	}
	// The owner's poller must not have to do with a holder's socket.
	sockets, err := owner.Share(1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFiles(t, sockets)
	if flags, err := unix.FcntlInt(sockets[0].Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x of a socket handed out, %v", flags, err)
	}
	for _, c := range []*Carrier{other, owner, from} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnerCloses leaves a holder behind: it receives nothing more, neither its
// own packets nor, the group being another, those of others.
func TestOwnerCloses(t *testing.T) {
	from, owner := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, owner, 0)
	holder := lease(t, owner, 1)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	for _, qpn := range []uint32{17, 1 << 18} {
		mustSend(t, from, flow, addressed(qpn, acknowledgement(0)))
	}
	if err := holder.listeners[0].raw.Control(func(fd uintptr) {
		if n := queuedIn(t, int(fd)); n != 0 {
			t.Errorf("%d bytes arrived", n)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Share(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Share after Close: %v", err)
	}
	if err := owner.Reclaim(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Reclaim after Close: %v", err)
	}
}

func TestShareRefuses(t *testing.T) {
	owner := open(t, "127.0.0.1", "127.0.0.2")
	for _, k := range []int{-1, 0, sharing.Max} {
		if sockets, err := owner.Share(k); err == nil {
			closeFiles(t, sockets)
			t.Errorf("share %d was handed out", k)
		}
	}
	if err := owner.Reclaim(3); err != nil { // never handed out
		t.Error(err)
	}
	if sockets, err := lease(t, owner, 1).Share(2); err == nil {
		closeFiles(t, sockets)
		t.Error("a holder has handed out a share")
	}
	sockets, err := owner.Share(2)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFiles(t, sockets)
	a, b := owner.Addresses()[0], owner.Addresses()[1]
	for _, cfg := range []Config{
		{Addresses: []netip.Addr{a}, Sockets: sockets},
		{Addresses: []netip.Addr{a, b}, Sockets: sockets[:1]},
		{Addresses: []netip.Addr{b, a}, Sockets: sockets},
		{Addresses: []netip.Addr{a, a}, Sockets: []*os.File{sockets[0], sockets[0]}},
		{Addresses: []netip.Addr{a, b}, Sockets: []*os.File{}},
		{Addresses: []netip.Addr{a}, Sockets: []*os.File{os.Stdin}},
		{Addresses: []netip.Addr{a, b}}, // in use, although there are shares
	} {
		if c, err := Open(cfg); err == nil {
			closeLater(t, c)
			t.Errorf("%v was opened", cfg)
		}
	}
}

// TestStranger has a socket of the same user join the group. It gets nothing.
func TestStranger(t *testing.T) {
	from, owner := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	arrived := newCollector()
	owner.Listen(arrived)
	stranger, err := newSocket(owner.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stranger)
	if err := unix.SetsockoptInt(stranger, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		t.Fatal(err)
	}
	if err := bindSocket(stranger, owner.Addresses()[0], roce.Port); err != nil {
		t.Fatal(err)
	}
	checkShares(t, from, flowBetween(from, owner, 0), []collector{arrived}, map[uint32]int{1: 0, 17: 0, 1 << 18: 0})
}

// TestSendersAreExclusive: what leaves from a source port is of one socket.
func TestSendersAreExclusive(t *testing.T) {
	owner := open(t, "127.0.0.1", "::1")
	for _, c := range []*Carrier{owner, lease(t, owner, 1)} {
		if len(c.senders) != 2*sourcePorts {
			t.Errorf("%d senders", len(c.senders))
		}
		for source, s := range c.senders {
			if on, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT); err != nil || on != 0 {
				t.Errorf("%v: SO_REUSEPORT %d, %v", source, on, err)
			}
		}
	}
}
