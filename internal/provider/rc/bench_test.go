package rc

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// flatMemory is the cheapest memory that there can be, so that what is
// measured is the QP.
type flatMemory []byte

func (m flatMemory) Local(dst [][]byte, sge SGE, _ Access) ([][]byte, bool) {
	return append(dst, m[sge.Address:sge.Address+uint64(sge.Length)]), true
}

func (m flatMemory) Remote(dst [][]byte, _ uint32, va uint64, length uint32, _ Access) ([][]byte, bool) {
	return append(dst, m[va:va+uint64(length)]), true
}

func (m flatMemory) Invalidate(uint32) bool      { return true }
func (m flatMemory) InvalidateLocal(uint32) bool { return true }

func (m flatMemory) Atomic(op Op, _ uint32, va uint64, operand, compare uint64) uint64 {
	return changeBytes(op, m[va:va+8], operand, compare)
}

// A loop is two QPs whose packets go from one to the other at once.
type loop struct {
	a, b        *QP
	receives    *ReceiveQueue
	receive     Receive
	packet      roce.Packet
	completions []Completion
	packets     int
	now         time.Duration
}

func newLoop(t testing.TB, here Connection) *loop {
	memory := make(flatMemory, 1<<20)
	l := &loop{receives: NewReceiveQueue(64, 1), receive: Receive{SGL: []SGE{{Length: 64 << 10}}}}
	config := Config{SendDepth: 64, MaxSGE: 1, Receives: l.receives, Memory: memory}
	l.a, l.b = NewQP(config), NewQP(config)
	there := here
	there.SendPSN, there.ReceivePSN = there.ReceivePSN, there.SendPSN
	if err := errors.Join(l.a.Connect(here), l.b.Connect(there)); err != nil {
		t.Fatal(err)
	}
	return l
}

// run posts one request and moves packets to and fro until it is complete.
func (l *loop) run(t testing.TB, r *Request) { l.runFlight(t, r, 1) }

// runFlight is run of n requests that are posted together.
func (l *loop) runFlight(t testing.TB, r *Request, n int) {
	for range n {
		if r.Op == OpSend {
			if err := l.receives.Post(&l.receive); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.a.Post(r); err != nil {
			t.Fatal(err)
		}
	}
	for moved := true; moved; {
		moved = l.move(l.a, l.b)
		moved = l.move(l.b, l.a) || moved
	}
	l.completions = l.a.Completions(l.completions[:0])
	if len(l.completions) != n || l.completions[0].Status != Success {
		t.Fatalf("completions %v", l.completions)
	}
	l.completions = l.b.Completions(l.completions[:0])
}

func (l *loop) move(from, to *QP) bool {
	moved := false
	for from.Next(l.now, &l.packet) {
		var payload []byte
		if len(l.packet.Payload) > 0 {
			payload = l.packet.Payload[0]
		}
		l.now += 100
		to.Handle(l.now, &l.packet.Header, payload)
		to.Deadline()
		from.Deadline()
		l.packets++
		moved = true
	}
	return moved
}

var loopRequests = map[string]Request{
	"write": {Op: OpWrite, SGL: []SGE{{Length: 64 << 10}}},
	"read":  {Op: OpRead, SGL: []SGE{{Length: 64 << 10}}},
	"send":  {Op: OpSend, SGL: []SGE{{Length: 64 << 10}}},
	"small": {Op: OpSend, SGL: []SGE{{Length: 8}}},
}

// TestHotPathDoesNotAllocate covers posting, sending, receiving, completing,
// and going back.
func TestHotPathDoesNotAllocate(t *testing.T) {
	for name, r := range loopRequests {
		l := newLoop(t, bulkConnection)
		l.run(t, &r)
		if n := testing.AllocsPerRun(100, func() { l.run(t, &r) }); n != 0 {
			t.Errorf("%s: %v allocations per request", name, n)
		}
		l.runFlight(t, &r, 64)
		if n := testing.AllocsPerRun(100, func() { l.runFlight(t, &r, 64) }); n != 0 {
			t.Errorf("%s: %v allocations per 64 requests", name, n)
		}
	}
	for _, selective := range []bool{false, true} {
		c := bulkConnection
		c.Selective = selective
		for _, name := range []string{"write", "send"} {
			l := newLoop(t, c)
			r := loopRequests[name]
			l.run(t, &r)
			lose := func() {
				if r.Op == OpSend {
					if err := l.receives.Post(&l.receive); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.a.Post(&r); err != nil {
					t.Fatal(err)
				}
				l.a.Next(l.now, &l.packet) // lost
				for done := false; !done; {
					for moved := true; moved; {
						moved = l.move(l.a, l.b)
						moved = l.move(l.b, l.a) || moved
					}
					l.completions = l.a.Completions(l.completions[:0])
					done = len(l.completions) == 1
					if at, ok := l.a.Deadline(); ok && !done {
						l.now = at
						l.a.HandleTimeout(at)
					}
				}
				l.completions = l.b.Completions(l.completions[:0])
			}
			lose()
			if n := testing.AllocsPerRun(100, lose); n != 0 {
				t.Errorf("%s, selective %v: %v allocations per request with a loss", name, selective, n)
			}
			if l.a.Counters().Retransmitted < 100 {
				t.Error("nothing was lost")
			}
		}
	}
}

// bothWays runs a benchmark without and with selective repeat, which is to cost
// nothing while nothing is lost.
func bothWays(b *testing.B, run func(*testing.B, Connection)) {
	c := bulkConnection
	b.Run("go-back-N", func(b *testing.B) { run(b, c) })
	c.Selective = true
	b.Run("selective", func(b *testing.B) { run(b, c) })
}

// BenchmarkPackets is the time per packet, both ends together, without the copy:
// the payload is copied onto itself.
func BenchmarkPackets(b *testing.B) {
	for name, r := range loopRequests {
		b.Run(name, func(b *testing.B) {
			bothWays(b, func(b *testing.B, c Connection) {
				l := newLoop(b, c)
				b.ReportAllocs()
				for b.Loop() {
					l.run(b, &r)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(l.packets), "ns/packet")
			})
		})
	}
}

// BenchmarkMessages is the time per SEND of 64 bytes, both ends together, of 64 that
// are posted together, and per receive.
func BenchmarkMessages(b *testing.B) {
	bothWays(b, func(b *testing.B, c Connection) {
		const flight = 64
		l := newLoop(b, c)
		r := Request{Op: OpSend, SGL: []SGE{{Length: 64}}}
		b.ReportAllocs()
		for b.Loop() {
			l.runFlight(b, &r, flight)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flight, "ns/message")
	})
}

// BenchmarkRequester is the time per packet of a WRITE at the requester alone,
// acknowledged every 16 packets.
func BenchmarkRequester(b *testing.B) {
	bothWays(b, func(b *testing.B, c Connection) {
		l := newLoop(b, c)
		r := loopRequests["write"]
		packets := 0
		b.ReportAllocs()
		for b.Loop() {
			if err := l.a.Post(&r); err != nil {
				b.Fatal(err)
			}
			var last uint32
			for l.a.Next(l.now, &l.packet) {
				l.a.Deadline()
				last = l.packet.Header.PSN
				packets++
			}
			l.now += time.Microsecond
			h := roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeACK, PSN: last}
			l.a.Handle(l.now, &h, nil)
			l.completions = l.a.Completions(l.completions[:0])
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
	})
}

// BenchmarkResponder is the time per packet of WRITEs of one packet at the
// responder alone, acknowledged every 16 packets: 64 bytes, so that copying
// does not count.
func BenchmarkResponder(b *testing.B) {
	bothWays(b, func(b *testing.B, c Connection) {
		l := newLoop(b, c)
		h := roce.Header{Opcode: roce.WriteOnly, PSN: c.SendPSN, DMALength: 64}
		payload := make([]byte, 64)
		b.ReportAllocs()
		for b.Loop() {
			h.AckReq = h.PSN%16 == 0
			l.b.Handle(l.now, &h, payload)
			if h.AckReq && !l.b.Next(l.now, &l.packet) {
				b.Fatal("no acknowledgement")
			}
			h.PSN = roce.PSNAdd(h.PSN, 1)
		}
	})
}

// BenchmarkReadRequester is the time per packet of the response to a READ at the
// requester alone, its request included, without the copy: a payload is copied onto
// itself.
func BenchmarkReadRequester(b *testing.B) {
	bothWays(b, func(b *testing.B, c Connection) {
		l := newLoop(b, c)
		r := loopRequests["read"]
		memory := l.a.config.Memory.(flatMemory)
		const packets = 16
		b.ReportAllocs()
		for b.Loop() {
			if err := l.a.Post(&r); err != nil {
				b.Fatal(err)
			}
			if !l.a.Next(l.now, &l.packet) {
				b.Fatal("no request")
			}
			h := roce.Header{PSN: l.packet.Header.PSN, Syndrome: roce.SyndromeACK}
			for i := range packets {
				h.Opcode = byPlace(i == 0, i == packets-1, roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.ReadResponseLast, 0)
				l.now += 100
				l.a.Handle(l.now, &h, memory[i*c.MTU:(i+1)*c.MTU])
				h.PSN = roce.PSNAdd(h.PSN, 1)
			}
			if l.completions = l.a.Completions(l.completions[:0]); len(l.completions) != 1 {
				b.Fatal("not complete")
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/packets, "ns/packet")
	})
}

// BenchmarkReadResponder is the time per packet of the response to a READ at the
// responder alone.
func BenchmarkReadResponder(b *testing.B) {
	bothWays(b, func(b *testing.B, c Connection) {
		l := newLoop(b, c)
		h := roce.Header{Opcode: roce.ReadRequest, PSN: c.SendPSN, DMALength: 64 << 10}
		const packets = 16
		b.ReportAllocs()
		for b.Loop() {
			l.b.Handle(l.now, &h, nil)
			for range packets {
				if !l.b.Next(l.now, &l.packet) {
					b.Fatal("no response")
				}
			}
			h.PSN = roce.PSNAdd(h.PSN, packets)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/packets, "ns/packet")
	})
}
