package sim_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

var (
	here  = netip.MustParseAddr("10.0.0.1")
	there = netip.MustParseAddr("10.0.0.2")
)

// An inbox is a receiver that notes what came and when.
type inbox struct {
	clock *clock.Virtual
	got   []string
}

func (i *inbox) Receive(packets []roce.Received) {
	for _, p := range packets {
		i.got = append(i.got, fmt.Sprintf("%v %v>%v %d %q", i.clock.Now(), p.Flow.Remote, p.Flow.Local, p.Header.PSN, p.Payload))
	}
}

// A pair is two carriers on a path.
type pair struct {
	clock   *clock.Virtual
	network *sim.Network
	path    *sim.Impaired
	from    *sim.Carrier
	to      *sim.Carrier
	inbox   inbox
}

func newPair(path *sim.Impaired) *pair {
	p := &pair{clock: clock.NewVirtual(), path: path}
	path.Rand = rand.New(rand.NewPCG(1, 1))
	p.network = sim.NewNetwork(p.clock, path)
	p.from, p.to = p.network.Attach(1500, here), p.network.Attach(1500, there)
	p.inbox.clock = p.clock
	p.to.Listen(&p.inbox)
	return p
}

// send sends n packets with 956 bytes of payload, which makes 1000 of IP packet.
func (p *pair) send(t *testing.T, n int) {
	t.Helper()
	var packets []roce.Packet
	for i := range n {
		packets = append(packets, roce.Packet{
			Header:  roce.Header{Opcode: roce.SendMiddle, PKey: roce.DefaultPKey, DestQPN: 5, PSN: uint32(i)},
			Payload: [][]byte{bytes.Repeat([]byte("a"), 952), []byte("tail")},
		})
	}
	if err := p.from.Send(roce.Flow{Local: here, Remote: there, SourcePort: 0xC001}, packets); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) received(t *testing.T, n int) {
	t.Helper()
	p.clock.Run(time.Second)
	if len(p.inbox.got) != n {
		t.Fatalf("%d packets arrived, want %d", len(p.inbox.got), n)
	}
}

func TestDelayAndRate(t *testing.T) {
	p := newPair(&sim.Impaired{Delay: time.Millisecond, Rate: 1e9})
	tapped := 0
	p.network.Tap(func(now time.Duration, packet []byte) {
		if now != p.clock.Now() || len(packet) != 1000 {
			t.Errorf("at %v: %d bytes", now, len(packet))
		}
		tapped++
	})
	p.send(t, 2)
	p.received(t, 2)
	payload := string(bytes.Repeat([]byte("a"), 952)) + "tail"
	for i, want := range []string{"1.008ms", "1.016ms"} { // 1000 bytes take 8 us
		if want = fmt.Sprintf("%s 10.0.0.1>10.0.0.2 %d %q", want, i, payload); p.inbox.got[i] != want {
			t.Errorf("got %.60s, want %.60s", p.inbox.got[i], want)
		}
	}
	if tapped != 2 {
		t.Errorf("tapped %d packets", tapped)
	}
	// The line is free again.
	start := p.clock.Now()
	p.send(t, 1)
	if !p.clock.RunUntil(func() bool { return len(p.inbox.got) == 3 }, time.Second) || p.clock.Now()-start != 1008*time.Microsecond {
		t.Errorf("took %v", p.clock.Now()-start)
	}
}

func TestFaults(t *testing.T) {
	const n = 2000
	count := func(t *testing.T, got []string, want float64) {
		t.Helper()
		if f := float64(len(got)); f < 0.9*want || f > 1.1*want {
			t.Errorf("%d packets of %d, want about %.0f", len(got), n, want)
		}
	}
	t.Run("loss", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 1, Loss: 0.25})
		p.send(t, n)
		p.clock.Run(time.Second)
		count(t, p.inbox.got, 0.75*n)
	})
	t.Run("duplicate", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 100, Duplicate: 0.25})
		p.send(t, n)
		p.clock.Run(time.Second)
		count(t, p.inbox.got, 1.25*n)
	})
	t.Run("corrupt", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 1, Corrupt: 1})
		p.send(t, n)
		p.clock.Run(time.Second)
		// A flipped bit may be one of the few that no checksum covers.
		if rejected := p.to.Counters()["rejected"]; rejected < n*95/100 || int(rejected)+len(p.inbox.got) != n {
			t.Errorf("%d rejected, %d accepted", rejected, len(p.inbox.got))
		}
	})
	t.Run("reorder", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: time.Millisecond, Reorder: 0.5, Rate: 1e9})
		p.send(t, n)
		p.received(t, n)
		overtaken := 0
		for i, got := range p.inbox.got {
			var at, flow string
			var psn int
			if _, err := fmt.Sscanf(got, "%s %s %d", &at, &flow, &psn); err != nil {
				t.Fatal(err)
			}
			if psn != i {
				overtaken++
			}
		}
		if overtaken < n/4 {
			t.Errorf("only %d packets out of place", overtaken)
		}
	})
	t.Run("down and up", func(t *testing.T) {
		p := newPair(&sim.Impaired{Down: true})
		p.send(t, 1)
		p.received(t, 0)
		p.path.Down = false
		p.send(t, 1)
		p.received(t, 1)
	})
	t.Run("the same seed, the same run", func(t *testing.T) {
		run := func() []string {
			p := newPair(&sim.Impaired{Delay: time.Microsecond, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Rate: 1e9})
			p.send(t, n)
			p.clock.Run(time.Second)
			return p.inbox.got
		}
		if a, b := run(), run(); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Error("two runs differ")
		}
	})
}

func TestAttach(t *testing.T) {
	t.Run("a closed carrier", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 1})
		p.send(t, 1)
		if err := p.to.Close(); err != nil {
			t.Fatal(err)
		}
		p.received(t, 0) // the packet was under way
		p.send(t, 1)
		p.received(t, 0)
		if err := p.to.Send(roce.Flow{Local: there, Remote: here}, nil); err == nil {
			t.Error("it still sends")
		}
	})
	t.Run("its successor", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 1})
		next := inbox{clock: p.clock}
		p.network.Attach(1500, there).Listen(&next)
		if err := p.to.Close(); err != nil { // which takes the address from nobody
			t.Fatal(err)
		}
		p.send(t, 1)
		p.received(t, 0)
		if len(next.got) != 1 {
			t.Errorf("%d packets arrived", len(next.got))
		}
	})
	t.Run("nobody there, or not listening", func(t *testing.T) {
		p := newPair(&sim.Impaired{Delay: 1})
		if err := p.from.Send(roce.Flow{Local: here, Remote: netip.MustParseAddr("10.0.0.3")}, make([]roce.Packet, 1)); err != nil {
			t.Fatal(err)
		}
		if err := p.to.Send(roce.Flow{Local: there, Remote: here}, make([]roce.Packet, 1)); err != nil {
			t.Fatal(err)
		}
		p.received(t, 0)
	})
	t.Run("routes", func(t *testing.T) {
		p := newPair(&sim.Impaired{})
		p.network.Route(netip.MustParsePrefix("10.0.0.2/24"), provider.StatusNetworkUnreachable)
		p.network.Route(netip.MustParsePrefix("10.0.0.2/32"), provider.StatusHostUnreachable)
		for remote, want := range map[string]provider.Status{
			"10.0.0.2": provider.StatusHostUnreachable, "10.0.0.3": provider.StatusNetworkUnreachable,
			"10.0.1.2": provider.StatusSuccess, "fd00::2": provider.StatusSuccess,
		} {
			if got := p.from.Reach(here, netip.MustParseAddr(remote)); got != want {
				t.Errorf("%s: %v, want %v", remote, got, want)
			}
		}
		p.network.Route(netip.MustParsePrefix("10.0.0.2/32"), provider.StatusSuccess)
		if got := p.from.Reach(here, there); got != provider.StatusSuccess {
			t.Errorf("got %v", got)
		}
	})
	t.Run("what a carrier says of itself", func(t *testing.T) {
		p := newPair(&sim.Impaired{})
		if p.from.MTU(here) != 1500 || len(p.from.Addresses()) != 1 || p.from.Addresses()[0] != here || p.from.ReceiveBuffer() <= 0 {
			t.Error("wrong")
		}
		if a := p.from.SourcePort(here, 0x1234); a < 0xC000 || a == p.from.SourcePort(here, 0x1235) {
			t.Errorf("port %#x", a)
		}
	})
}

// A marking is a path that marks what may be marked, as a network does that met congestion.
type marking struct{}

func (marking) Carry(_ time.Duration, _, _ netip.Addr, packet []byte) []time.Duration {
	if roce.IsECT(roce.ClassOf(packet)) {
		roce.Mark(packet)
	}
	return []time.Duration{0}
}

// Traffic classes are in the bytes that a path sees, and arrive as it leaves them.
func TestClasses(t *testing.T) {
	const dscp = 26 << 2
	c := clock.NewVirtual()
	network := sim.NewNetwork(c, marking{})
	for _, ends := range [][2]netip.Addr{{here, there}, {netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}} {
		from, to := network.Attach(1500, ends[0]), network.Attach(1500, ends[1])
		var got []uint8
		to.Listen(receiverFunc(func(packets []roce.Received) {
			for i := range packets {
				got = append(got, packets[i].Class)
			}
		}))
		var packets []roce.Packet
		for _, class := range []uint8{0, dscp, dscp | roce.ECT0, dscp | roce.ECT1, roce.CE} {
			packets = append(packets, roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Class: class})
		}
		if err := from.Send(roce.Flow{Local: ends[0], Remote: ends[1], SourcePort: 0xC001}, packets); err != nil {
			t.Fatal(err)
		}
		c.Run(time.Second)
		if want := []uint8{0, dscp, dscp | roce.CE, dscp | roce.CE, roce.CE}; !slices.Equal(got, want) {
			t.Errorf("from %v: classes %#x arrived, want %#x", ends[0], got, want)
		}
	}
}

type receiverFunc func(packets []roce.Received)

func (f receiverFunc) Receive(packets []roce.Received) { f(packets) }
