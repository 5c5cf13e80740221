package provider_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/allocations"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A still is a clock whose timers never run. A function that is to run on the side
// waits until the test runs it.
type still struct {
	now     time.Duration
	pending []func()
}

type idle struct{}

func (idle) Stop() bool               { return true }
func (idle) Reset(time.Duration) bool { return true }

func (s *still) Now() time.Duration                          { s.now += time.Microsecond; return s.now }
func (s *still) AfterFunc(time.Duration, func()) clock.Timer { return idle{} }
func (s *still) Go(f func())                                 { s.pending = append(s.pending, f) }

// A shelf is a carrier that keeps what is sent until the test hands it over, and
// does not allocate.
type shelf struct {
	address  netip.Addr
	receiver provider.Receiver
	packets  []roce.Received
	bytes    [64][4096]byte
}

func (s *shelf) Listen(r provider.Receiver) { s.receiver = r }

func (s *shelf) Send(flow roce.Flow, packets []roce.Packet) error {
	for i := range packets {
		buffer := s.bytes[len(s.packets)][:0]
		for _, piece := range packets[i].Payload {
			buffer = append(buffer, piece...)
		}
		s.packets = append(s.packets, roce.Received{
			Flow: roce.Flow{Local: flow.Remote, Remote: flow.Local}, Header: packets[i].Header, Payload: buffer,
		})
	}
	return nil
}

func (s *shelf) SourcePort(netip.Addr, uint32) uint16  { return 0xC000 }
func (s *shelf) Addresses() []netip.Addr               { return []netip.Addr{s.address} }
func (s *shelf) MTU(netip.Addr) int                    { return mtu }
func (s *shelf) Reach(_, _ netip.Addr) provider.Status { return success }
func (s *shelf) ReceiveBuffer() int                    { return 8 << 20 }
func (s *shelf) Counters() map[string]uint64           { return nil }
func (s *shelf) Close() error                          { return nil }

// A bench is two connected adapters without a network, clock or scheduler.
type bench struct {
	clock   still
	shelves [2]shelf
	cqs     [2]*provider.CQ
	qps     [2]*provider.QP
	srq     *provider.SRQ // of the second, if it has one
	mrs     [2]*provider.MR
	results [64]provider.Result
	sge     [2][]provider.SGE
	told    int // notifications

	adapters [2]*provider.Adapter
	pds      [2]*provider.PD
	page     uint64 // a logical address, of what was lent last
}

// A systemShelf is a shelf that can be polled, as what calls the system can.
type systemShelf struct{ *shelf }

func (systemShelf) Poll(provider.Receiver) bool                        { return false }
func (systemShelf) PollBeside(provider.Receiver) (arrived, alone bool) { return false, false }
func (systemShelf) CatchUp(provider.Receiver)                          {}
func (systemShelf) Resume()                                            {}

// benchDepth is the number of requests, and receives, that a bench's queue pairs may have outstanding.
const benchDepth = 128

func newBench(t testing.TB, receiveBytes uint32) *bench {
	return newBenchOf(t, receiveBytes, false, func(s *shelf) provider.Carrier { return s })
}

// newBenchOf is newBench whose second end may receive from an SRQ, and with other carriers made of its shelves.
func newBenchOf(t testing.TB, receiveBytes uint32, shared bool, carrierOf func(*shelf) provider.Carrier) *bench {
	b := &bench{}
	var conns [2]*provider.Connector
	for i := range b.shelves {
		b.shelves[i].address = addresses[i]
		m, err := provider.NewMiniport(provider.Config{Carrier: carrierOf(&b.shelves[i]), Clock: &b.clock,
			Rand: rand.New(rand.NewPCG(uint64(i), 1)), Info: provider.DefaultAdapterInfo(),
			Capabilities: provider.DefaultCapabilities()})
		if err != nil {
			t.Fatal(err)
		}
		a := must(m.OpenAdapter(anyVersion))
		pd := must(a.CreatePD(nil, nil))
		b.adapters[i], b.pds[i] = a, pd
		b.cqs[i] = must(a.CreateCQ(256, func(any, provider.Status) { b.told++ }, nil, nil, nil, nil))
		if shared && i == 1 {
			b.srq = must(pd.CreateSRQ(64, 1, 0, func(any, provider.Status) { b.told++ }, nil, nil, nil, nil))
			b.qps[i] = must(pd.CreateQPWithSRQ(b.cqs[i], b.cqs[i], b.srq, nil, benchDepth, 1, 0, nil, nil))
		} else {
			b.qps[i] = must(pd.CreateQP(b.cqs[i], b.cqs[i], nil, benchDepth, benchDepth, 1, 1, 0, nil, nil))
		}
		b.mrs[i] = must(pd.CreateMR(false, nil, nil))
		b.mrs[i].Register(&provider.MDL{VirtualAddress: base, Bytes: make([]byte, 4096)}, 4096, 0xF, nil, nil)
		b.sge[i] = []provider.SGE{{VirtualAddress: base, Length: receiveBytes, MemoryRegionToken: b.mrs[i].LocalToken()}}
		if i == 0 {
			conns[0] = must(a.CreateConnector(nil, nil))
			continue
		}
		l := must(a.CreateListener(func(_ any, c *provider.Connector) {
			c.Accept(b.qps[1], 16, 16, nil, nil, nil, func(any, provider.Status) {}, nil)
		}, nil, nil, nil))
		l.Listen(netip.AddrPortFrom(addresses[1], 7000), nil, nil)
	}
	conns[0].Connect(b.qps[0], netip.AddrPortFrom(addresses[0], 0), netip.AddrPortFrom(addresses[1], 7000), 16, 16, nil,
		func(any, provider.Status) { conns[0].CompleteConnect(nil, nil, nil, nil) }, nil)
	for range 10 {
		b.turn()
	}
	// Until something has been acknowledged, few packets go.
	b.qps[0].Write(nil, b.sge[0], base, b.mrs[1].RemoteToken(), 0)
	b.turn()
	b.take(t, 0, 1)
	return b
}

// hand hands what one side has sent to the other.
func (b *bench) hand(from int) {
	s := &b.shelves[from]
	r := b.shelves[1-from].receiver
	r.Receive(s.packets)
	s.packets = s.packets[:0]
	if d, ok := r.(provider.Deferrer); ok {
		d.Delivered()
	}
}

// lend makes an FRMR of a side's, at address 0.
func (b *bench) lend(t testing.TB, side int) []provider.SGE {
	t.Helper()
	lam, size, fbo := provider.LAM{}, uint32(24), uint32(0)
	mr := must(b.pds[side].CreateMR(true, nil, nil))
	for _, s := range []provider.Status{
		b.adapters[side].BuildLAM(&provider.MDL{Bytes: make([]byte, 4096)}, 4096, nil, nil, &lam, &size, &fbo),
		mr.InitializeFastRegister(1, true, nil, nil),
		b.qps[side].FastRegister(nil, mr, lam.Pages, 0, 4096, 0, provider.OpAllowRemoteWrite|provider.OpSilentSuccess),
	} {
		if s != success {
			t.Fatal(s)
		}
	}
	b.page = uint64(lam.Pages[0])
	return []provider.SGE{{Length: 64, MemoryRegionToken: mr.LocalToken()}}
}

// turn lets both sides have what the other sent, and callbacks run.
func (b *bench) turn() {
	b.hand(0)
	b.hand(1)
	for i := 0; i < len(b.clock.pending); i++ {
		b.clock.pending[i]()
	}
	b.clock.pending = b.clock.pending[:0]
}

// take takes n completions of a side.
func (b *bench) take(t testing.TB, side, n int) {
	if got := b.cqs[side].Results(b.results[:]); got != n {
		t.Fatalf("%d completions, want %d", got, n)
	}
	if s := b.results[0].Status; s != success {
		t.Fatal(s)
	}
}

// sendFlight posts n receives and as many sends, all but the last of these deferred.
func (b *bench) sendFlight(context any, n int) {
	for range n {
		b.qps[1].Receive(context, b.sge[1])
	}
	for range n - 1 {
		b.qps[0].Send(context, b.sge[0], provider.OpDefer)
	}
	b.qps[0].Send(context, b.sge[0], 0)
}

// The steady-state path does not allocate, from the post to the completion at
// both ends, nor does a notification.
func TestAllocations(t *testing.T) {
	b := newBench(t, 64)
	context := &struct{}{}
	remote := b.mrs[1].RemoteToken()
	frmr, logical := b.lend(t, 1), b.lend(t, 0)
	logical[0].VirtualAddress, logical[0].MemoryRegionToken = b.page, b.pds[0].PrivilegedMemoryRegionToken()
	for name, run := range map[string]func(){
		"write": func() {
			b.qps[0].Write(context, b.sge[0], base, remote, 0)
			b.turn()
			b.take(t, 0, 1)
		},
		"read": func() {
			b.qps[0].Read(context, b.sge[0], base, remote, 0)
			b.turn()
			b.take(t, 0, 1)
		},
		"send": func() {
			b.qps[1].Receive(context, b.sge[1])
			b.qps[0].Send(context, b.sge[0], 0)
			b.turn()
			b.take(t, 0, 1)
			b.take(t, 1, 1)
		},
		"notification": func() {
			told := b.told
			b.cqs[0].Arm(provider.NotifyAny)
			b.qps[0].Write(context, b.sge[0], base, remote, 0)
			b.turn()
			b.take(t, 0, 1)
			if b.told != told+1 {
				t.Fatal("not notified")
			}
		},
		"through an FRMR": func() {
			b.qps[1].Receive(context, frmr)
			b.qps[0].Send(context, b.sge[0], 0)
			b.qps[0].Write(context, b.sge[0], 0, frmr[0].MemoryRegionToken, 0)
			b.turn()
			b.take(t, 0, 2)
			b.take(t, 1, 1)
		},
		"logical addresses": func() {
			b.qps[0].Write(context, logical, base, remote, 0)
			b.turn()
			b.take(t, 0, 1)
		},
		"flight": func() {
			for range 32 {
				b.qps[0].Write(context, b.sge[0], base, remote, provider.OpDefer)
			}
			b.qps[0].Write(context, b.sge[0], base, remote, 0)
			b.turn()
			b.take(t, 0, 33)
		},
		"flight of sends": func() {
			b.sendFlight(context, 33)
			b.turn()
			b.take(t, 0, 33)
			b.take(t, 1, 33)
		},
	} {
		if n := allocations.PerRun(t, 200, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Nor do receives from an SRQ, its notification and one that is held back.
func TestSharedAllocations(t *testing.T) {
	b := newBenchOf(t, 64, true, func(s *shelf) provider.Carrier { return s })
	if s := b.cqs[1].ControlInterruptModeration(1000, 2); s != success {
		t.Fatal(s)
	}
	context := &struct{}{}
	if n := allocations.PerRun(t, 200, func() {
		told := b.told
		b.cqs[1].Arm(provider.NotifyAny)
		for range 2 {
			b.srq.Receive(context, b.sge[1])
		}
		b.srq.Modify(0, 1, nil, nil)
		for n := range 2 {
			b.qps[0].Send(context, b.sge[0], 0)
			b.turn()
			b.take(t, 0, 1)
			if b.told != told+2*n {
				t.Fatalf("told %d times after send %d", b.told-told, n)
			}
		}
		b.take(t, 1, 2)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestGathering: requests wait for others where each call of the system's costs more than a packet, and nowhere else.
func TestGathering(t *testing.T) {
	for name, test := range map[string]struct {
		carrierOf func(*shelf) provider.Carrier
		want      int
	}{
		"a mere carrier":         {func(s *shelf) provider.Carrier { return s }, 1},
		"one that can be polled": {func(s *shelf) provider.Carrier { return systemShelf{s} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOf(t, 64, false, test.carrierOf)
			post := func(n int) (packets int) {
				for range n {
					b.qps[0].Write(nil, b.sge[0], base, b.mrs[1].RemoteToken(), 0)
				}
				packets = len(b.shelves[0].packets)
				b.hand(0)
				return packets
			}
			for range 2 {
				if n := post(32); n != 32 {
					t.Fatalf("%d packets of 32 requests with few in flight", n)
				}
			}
			if n := post(1); n != test.want {
				t.Errorf("%d packets of a request beside 64 in flight, want %d", n, test.want)
			}
			b.turn()
			b.turn()
			b.take(t, 0, 64)
			b.take(t, 0, 1)
		})
	}
}

// BenchmarkWrite is a write of 64 bytes, 32 at a time, and how long each of its
// stages takes: from the post to the carrier, from the carrier to the peer's
// memory, from the acknowledgement to the completion in hand.
func BenchmarkWrite(b *testing.B) {
	const flight = 32
	s := newBench(b, 64)
	context := &struct{}{}
	remote := s.mrs[1].RemoteToken()
	real := clock.Real()
	var post, arrive, complete time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		t0 := real.Now()
		for range flight {
			s.qps[0].Write(context, s.sge[0], base, remote, 0)
		}
		t1 := real.Now()
		s.hand(0)
		t2 := real.Now()
		s.hand(1)
		s.take(b, 0, flight)
		post, arrive, complete = post+t1-t0, arrive+t2-t1, complete+real.Now()-t2
	}
	for unit, d := range map[string]time.Duration{"ns/post": post, "ns/arrival": arrive, "ns/completion": complete} {
		b.ReportMetric(float64(d.Nanoseconds())/float64(b.N)/flight, unit)
	}
}

// BenchmarkFlight is a send of 64 bytes, 48 at a time, from the posts of both sides to
// the completions in both hands: everything that is not the carrier's.
func BenchmarkFlight(b *testing.B) {
	const flight = 48
	s := newBench(b, 64)
	context := &struct{}{}
	b.ReportAllocs()
	for b.Loop() {
		s.sendFlight(context, flight)
		s.hand(0)
		s.take(b, 1, flight)
		s.hand(1)
		s.take(b, 0, flight)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flight, "ns/message")
}

// BenchmarkSend is a send of 64 bytes from its post to the receive's completion,
// one at a time.
func BenchmarkSend(b *testing.B) {
	s := newBench(b, 64)
	context := &struct{}{}
	b.ReportAllocs()
	for b.Loop() {
		s.qps[1].Receive(context, s.sge[1])
		s.qps[0].Send(context, s.sge[0], 0)
		s.hand(0)
		s.take(b, 1, 1)
		s.hand(1)
		s.take(b, 0, 1)
	}
}
