package udp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/allocations"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

type receiverFunc func(batch []roce.Received)

func (f receiverFunc) Receive(batch []roce.Received) { f(batch) }

// patience is for what takes milliseconds.
const patience = 30 * time.Second

// A collector keeps copies of what arrives.
type collector chan roce.Received

func newCollector() collector { return make(collector, 4096) }

func (c collector) Receive(batch []roce.Received) {
	for _, p := range batch {
		p.Payload = bytes.Clone(p.Payload)
		c <- p
	}
}

// take waits for the next n packets.
func (c collector) take(tb testing.TB, n int) []roce.Received {
	tb.Helper()
	return c.takeWithin(n, func(got []roce.Received) { tb.Fatalf("%d of %d packets arrived", len(got), n) })
}

func (c collector) takeWithin(n int, fail func([]roce.Received)) []roce.Received {
	var got []roce.Received
	deadline := time.After(patience)
	for len(got) < n {
		select {
		case p := <-c:
			got = append(got, p)
		case <-deadline:
			fail(got)
		}
	}
	return got
}

// closeLater closes c when the test ends.
func closeLater(tb testing.TB, c *Carrier) *Carrier {
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// open opens a carrier on the loopback interface.
func open(tb testing.TB, addresses ...string) *Carrier {
	tb.Helper()
	var cfg Config
	for _, a := range addresses {
		cfg.Addresses = append(cfg.Addresses, netip.MustParseAddr(a))
	}
	c, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return closeLater(tb, c)
}

// openIn opens a carrier in a namespace.
func openIn(tb testing.TB, ns netns.NsHandle, addresses ...netip.Addr) (c *Carrier) {
	tb.Helper()
	within(tb, ns, func() (err error) {
		c, err = Open(Config{Addresses: addresses})
		return err
	})
	return c
}

// addressesOf is the addresses at end 0 or 1 of a link.
func addressesOf(end int) []netip.Addr {
	host := byte(end + 1)
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, host}), netip.AddrFrom16([16]byte{0xFD, 15: host})}
}

// openLink opens a carrier at each end of a link.
func openLink(tb testing.TB, mtu int) (a, b *Carrier) {
	tb.Helper()
	ends := newLink(tb, mtu)
	return closeLater(tb, openIn(tb, ends[0], addressesOf(0)...)), closeLater(tb, openIn(tb, ends[1], addressesOf(1)...))
}

// flowBetween is a flow between the i-th addresses of two carriers.
func flowBetween(from, to *Carrier, i int) roce.Flow {
	local := from.Addresses()[i]
	return roce.Flow{Local: local, Remote: to.Addresses()[i], SourcePort: from.SourcePort(local, 17)}
}

func sourceOf(flow roce.Flow) netip.AddrPort { return netip.AddrPortFrom(flow.Local, flow.SourcePort) }

func mustSend(tb testing.TB, c *Carrier, flow roce.Flow, packets []roce.Packet) {
	if err := c.Send(flow, packets); err != nil {
		tb.Error(err)
	}
}

// writes is the packets of WRITEs of size bytes each, from memory.
func writes(memory []byte, size int) []roce.Packet {
	var packets []roce.Packet
	for at := 0; at < len(memory); at += size {
		for from := at; from < at+size; from += 4096 {
			to := min(from+4096, at+size)
			h := roce.Header{Opcode: roce.WriteMiddle, PKey: roce.DefaultPKey, DestQPN: 17, PSN: uint32(len(packets))}
			switch {
			case from == at && to == at+size:
				h.Opcode = roce.WriteOnly
			case from == at:
				h.Opcode = roce.WriteFirst
			case to == at+size:
				h.Opcode = roce.WriteLast
			}
			packets = append(packets, roce.Packet{Header: h, Payload: [][]byte{memory[from:to]}})
		}
	}
	return packets
}

// acknowledgement is the smallest packet, with a number to know it by.
func acknowledgement(psn uint32) roce.Packet {
	return roce.Packet{Header: roce.Header{
		Opcode: roce.Acknowledge, PKey: roce.DefaultPKey, DestQPN: 17, PSN: psn, Syndrome: roce.SyndromeACK}}
}

// random is deterministic bytes.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// wants returns the packets that must arrive when packets are sent.
func wants(tb rapid.TB, flow roce.Flow, packets []roce.Packet) []roce.Received {
	var want []roce.Received
	for i := range packets {
		r := roce.Received{
			Flow:    roce.Flow{Local: flow.Remote, Remote: flow.Local, SourcePort: flow.SourcePort},
			Payload: bytes.Join(packets[i].Payload, nil),
			Class:   packets[i].Class,
		}
		// Encoded and decoded, the header lacks what its opcode does not call for.
		b := append(packets[i].Header.Append(nil, 0), 0, 0, 0, 0)
		if _, err := roce.Decode(b, &r.Header); err != nil {
			tb.Fatal(err)
		}
		want = append(want, r)
	}
	return want
}

func diff(want, got []roce.Received) string {
	return cmp.Diff(want, got, cmp.Comparer(bytes.Equal), cmpopts.EquateComparable(netip.Addr{}))
}

// drawPackets draws up to 48 packets of any kind that together fit the
// smallest receive buffer.
func drawPackets(t *rapid.T) []roce.Packet {
	opcodes := rapid.SampledFrom([]roce.Opcode{
		roce.SendOnly, roce.SendMiddle, roce.SendOnlyImm, roce.SendLastInv, roce.WriteFirst, roce.WriteMiddle, roce.WriteOnlyImm,
		roce.ReadRequest, roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.Acknowledge, roce.AtomicAcknowledge,
		roce.CompareSwap, roce.UDSendOnly, roce.CNP,
	})
	sizes := rapid.OneOf(rapid.Just(4096), rapid.Just(0), rapid.IntRange(0, 4096))
	u32 := rapid.Uint32()
	memory := random(4096)
	var packets []roce.Packet
	for total := 0; len(packets) < 48 && total < 64<<10 && (len(packets) == 0 || rapid.IntRange(0, 9).Draw(t, "more") > 0); {
		p := roce.Packet{Header: roce.Header{
			Opcode: opcodes.Draw(t, "opcode"), PKey: roce.DefaultPKey, Solicited: rapid.Bool().Draw(t, "solicited"),
			FECN: rapid.Bool().Draw(t, "fecn"), DestQPN: u32.Draw(t, "qpn"), AckReq: rapid.Bool().Draw(t, "ackreq"),
			PSN: u32.Draw(t, "psn"), VA: rapid.Uint64().Draw(t, "va"), RKey: u32.Draw(t, "rkey"), MSN: u32.Draw(t, "msn"),
		}}
		p.Class = rapid.SampledFrom([]uint8{0, data26, data26 | roce.CE, 0xFF}).Draw(t, "class")
		payload := memory[:sizes.Draw(t, "size")]
		total += len(payload)
		for len(payload) > 0 {
			n := min(len(payload), rapid.SampledFrom([]int{4096, 1, 0, 5, 1000}).Draw(t, "piece"))
			p.Payload = append(p.Payload, payload[:n])
			payload = payload[n:]
		}
		// A run of the same now and then, so that super-packets grow.
		for range rapid.SampledFrom([]int{1, 1, 5, 20}).Draw(t, "times") {
			packets = append(packets, p)
			total += p.PayloadLen()
		}
	}
	return packets
}

func TestEveryPacketArrivesAsSent(t *testing.T) {
	t.Run("loopback", func(t *testing.T) {
		from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
		checkArrival(t, from, to, 0)
	})
	t.Run("loopback IPv6", func(t *testing.T) {
		c := open(t, "::1")
		checkArrival(t, c, c, 0)
	})
	for i, family := range []string{"veth IPv4", "veth IPv6"} {
		t.Run(family, func(t *testing.T) {
			from, to := openLink(t, 4200)
			checkArrival(t, from, to, i)
		})
	}
}

func checkArrival(t *testing.T, from, to *Carrier, i int) {
	arrived := newCollector()
	to.Listen(arrived)
	flow := flowBetween(from, to, i)
	rapid.Check(t, func(t *rapid.T) {
		packets := drawPackets(t)
		want := wants(t, flow, packets)
		if err := from.Send(flow, packets); err != nil {
			t.Fatal(err)
		}
		got := arrived.takeWithin(len(packets), func(got []roce.Received) {
			t.Fatalf("%d of %d packets arrived: %v", len(got), len(packets), to.Counters())
		})
		if d := diff(want, got); d != "" {
			t.Fatalf("sent but not arrived (-), arrived but not sent (+):\n%s", d)
		}
	})
	sent, received := from.Counters(), to.Counters()
	if sent["packets_sent"] == 0 || sent["packets_sent"] != received["packets_received"] {
		t.Errorf("%d packets sent, %d received", sent["packets_sent"], received["packets_received"])
	}
	if received["super_packets_received"] == 0 {
		t.Error("no super-packet arrived")
	}
}

func TestCloseWaitsForReceiver(t *testing.T) {
	defer leak.Check(t)()
	c := open(t, "127.0.0.1", "::1")
	entered, release := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	flow := flowBetween(c, c, 0)
	c.Listen(receiverFunc(func([]roce.Received) {
		close(entered)
		<-release
		// By now the carrier may be closed, but a Receiver may send.
		for range 10_000 { // which takes a while, of which nobody returns from Close
			if err := c.Send(flow, []roce.Packet{acknowledgement(1)}); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		left.Store(true)
	}))
	mustSend(t, c, flow, []roce.Packet{acknowledgement(0)})
	<-entered
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	for c.Send(flow, nil) == nil { // until Close has begun
	}
	close(release)
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if !left.Load() {
		t.Error("the second Close returned while the Receiver was at work")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if !left.Load() {
		t.Error("Close returned while the Receiver was at work")
	}
	if err := c.Send(flow, []roce.Packet{acknowledgement(0)}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestCloseUnderTraffic(t *testing.T) {
	defer leak.Check(t)()
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	var closed atomic.Bool
	arrived := make(chan struct{}, 1)
	to.Listen(receiverFunc(func([]roce.Received) {
		if closed.Load() {
			t.Error("Receive after Close")
		}
		select {
		case arrived <- struct{}{}:
		default:
		}
	}))
	sent := make(chan struct{}, 3)
	packets := writes(random(64<<10), 64<<10)
	for i := range cap(sent) {
		go func() {
			flow := flowBetween(from, to, 0)
			flow.SourcePort = from.SourcePort(flow.Local, uint32(i))
			for from.Send(flow, packets) == nil {
			}
			sent <- struct{}{}
		}()
	}
	<-arrived
	if err := to.Close(); err != nil {
		t.Error(err)
	}
	closed.Store(true)
	if err := from.Close(); err != nil {
		t.Error(err)
	}
	for range cap(sent) {
		<-sent
	}
}

func TestNoAllocation(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	a := newArrivals()
	to.Listen(receiverFunc(func(batch []roce.Received) { a.add(len(batch)) }))
	flow := flowBetween(from, to, 0)
	packets := append(writes(random(64<<10), 64<<10), acknowledgement(0))
	var sent int64
	perRun := allocations.PerRun(t, 500, func() {
		mustSend(t, from, flow, packets)
		for sent += int64(len(packets)); a.n.Load() < sent; {
			<-a.more
		}
	})
	if perRun != 0 {
		t.Errorf("%v allocations to send and receive %d packets", perRun, len(packets))
	}
}

func TestOpenRefuses(t *testing.T) {
	defer leak.Check(t)()
	good := netip.MustParseAddr("127.0.0.1")
	for _, addresses := range [][]netip.Addr{
		nil,
		{{}},
		{good, netip.IPv4Unspecified()},
		{good, netip.MustParseAddr("192.0.2.1")}, // not ours
		{good, netip.MustParseAddr("::ffff:127.0.0.1")},
		{good, netip.MustParseAddr("fe80::1%lo")},
		{good, good}, // port in use
	} {
		if c, err := Open(Config{Addresses: addresses}); err == nil {
			closeLater(t, c)
			t.Errorf("%v was accepted", addresses)
		}
	}
	open(t, "127.0.0.1") // nothing was left behind
}

func TestMTU(t *testing.T) {
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	peer := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	for _, local := range c.Addresses() {
		if mtu := c.MTU(local); mtu != 4200 {
			t.Errorf("MTU %d at %v", mtu, local)
		}
	}
	if mtu := c.MTU(netip.MustParseAddr("10.0.0.9")); mtu != 0 {
		t.Errorf("MTU %d at a foreign address", mtu)
	}
	within(t, ends[0], func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(eth0, 1500)
	})
	if mtu := c.MTU(c.Addresses()[0]); mtu != 1500 {
		t.Errorf("MTU %d after the change", mtu)
	}
	arrived := newCollector()
	peer.Listen(arrived)
	for i := range c.Addresses() {
		flow := flowBetween(c, peer, i)
		mustSend(t, c, flow, append([]roce.Packet{acknowledgement(0)}, writes(random(64<<10), 64<<10)...))
		arrived.take(t, 1) // what fits the MTU arrives
	}
	counters := c.Counters()
	if counters["send_too_big"] != 32 || counters["packets_sent"] != 2 {
		t.Error(counters)
	}
}

// TestMoved: a carrier says when it has sent, and when it has received, also what is no packet of RoCE.
func TestMoved(t *testing.T) {
	var moved atomic.Int64
	c, err := Open(Config{Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Moved: func() { moved.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	received := newCollector()
	c.Listen(received)
	wait := func(n int64, what string) {
		t.Helper()
		for late := time.Now().Add(patience); moved.Load() < n; runtime.Gosched() {
			if time.Now().After(late) {
				t.Fatalf("%s: told of %d times, want %d", what, moved.Load(), n)
			}
		}
	}
	mustSend(t, c, flowBetween(c, c, 0), []roce.Packet{acknowledgement(1)})
	received.take(t, 1)
	wait(2, "a packet sent and received")
	junk, err := net.Dial("udp", "127.0.0.1:4791")
	if err != nil {
		t.Fatal(err)
	}
	defer junk.Close()
	if _, err := junk.Write([]byte("junk")); err != nil {
		t.Fatal(err)
	}
	wait(3, "junk received")
	if n := c.Counters()["malformed"]; n != 1 {
		t.Errorf("%d packets of junk", n)
	}
}

// TestBound opens a carrier on sockets that were bound before: it receives what has arrived at them
// meanwhile.
func TestBound(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.3")}
	bound, err := Bind(addresses, 0)
	if err != nil {
		t.Fatal(err)
	}
	from := open(t, "127.0.0.2")
	flow := roce.Flow{Local: from.Addresses()[0], Remote: addresses[1], SourcePort: from.SourcePort(from.Addresses()[0], 1)}
	packets := []roce.Packet{acknowledgement(7)}
	mustSend(t, from, flow, packets)
	to, err := Open(Config{Addresses: addresses, Bound: bound})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, to)
	for _, f := range bound {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	arrived := newCollector()
	to.Listen(arrived)
	if d := diff(wants(t, flow, packets), arrived.take(t, 1)); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if _, err := Open(Config{Addresses: addresses, Bound: bound[:1]}); err == nil {
		t.Error("one socket was taken for two addresses")
	}
}
