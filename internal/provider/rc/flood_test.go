package rc

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// An earlyMemory is an adapter's.
type earlyMemory struct{ size, taken, most int }

func (m *earlyMemory) Take(bytes int) bool {
	if m.taken+bytes > m.size {
		return false
	}
	m.taken += bytes
	m.most = max(m.most, m.taken)
	return true
}

func (m *earlyMemory) Give(bytes int) { m.taken -= bytes }

func (m *earlyMemory) HalfFree() bool { return m.taken <= m.size/2 }

// floodable is an end to be flooded, of an adapter with so much memory.
func floodable(t *testing.T, m *earlyMemory) *end {
	config := testConfig
	config.Early = m
	e := newEnd(t, config)
	c := testConnection
	c.MTU, c.SendPSN, c.ReceivePSN, c.Selective = 256, 100, 100, true
	if err := e.qp.Connect(c); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestFloodOfEarlyPackets: what requesters can have a responder keep is bounded, of one
// QP and of all, whatever the length of what they send, and all of it is given back.
func TestFloodOfEarlyPackets(t *testing.T) {
	const mtu = 256
	for _, test := range []struct {
		qps, payload, memory int
		kept                 bool
	}{
		{1, mtu, 1 << 30, true},
		{1, mtu + 1, 1 << 30, false},
		{1, 1 << 16, 1 << 30, false},
		{1, mtu - 1, 1 << 30, false}, // a Middle
		{40, mtu, 8 << 20, true},
		{40, 1 << 16, 8 << 20, false},
	} {
		t.Run(fmt.Sprint(test.qps, " QPs, ", test.payload, " bytes"), func(t *testing.T) {
			memory := &earlyMemory{size: test.memory}
			payload := make([]byte, test.payload)
			var ends []*end
			for range test.qps {
				ends = append(ends, floodable(t, memory))
			}
			sent := uint32(3 << 17)
			if test.qps > 1 {
				sent = 4096
			}
			for _, e := range ends {
				for psn := range sent {
					h := packet(roce.SendMiddle, 101+psn)
					h.AckReq = true
					e.qp.Handle(0, &h, payload)
				}
			}
			if memory.taken > memory.size || (memory.taken > 0) != test.kept {
				t.Errorf("%d bytes taken of %d", memory.taken, memory.size)
			}
			var counted Counters
			bytes := 0
			for _, e := range ends {
				counted = counted.Plus(e.qp.Counters())
				early := e.qp.responder.early
				if early == nil {
					continue
				}
				here := cap(early.ring) * int(unsafe.Sizeof(early.ring[0]))
				for _, p := range early.ring {
					if p != nil {
						here += int(unsafe.Sizeof(*p)) + cap(p.payload)
					}
				}
				if early.count*mtu > earlyBytes {
					t.Errorf("one QP keeps %d packets", early.count)
				}
				if n := len(e.qp.responder.replies.reports.pending); n > maxReports {
					t.Errorf("%d reports", n)
				}
				bytes += here
			}
			if bytes > memory.taken {
				t.Errorf("%d bytes are kept, %d accounted for", bytes, memory.taken)
			}
			if lengths := counted.BadLengths; (lengths == 0) != test.kept || !test.kept && lengths != counted.Received {
				t.Errorf("of %d packets %d had a wrong length", counted.Received, lengths)
			}
			if (counted.EarlyDropped > 0) != test.kept {
				t.Errorf("%d packets found no room", counted.EarlyDropped)
			}
			for _, e := range ends {
				e.qp.Flush()
			}
			if memory.taken != 0 {
				t.Errorf("%d bytes are never given back", memory.taken)
			}
		})
	}
}

// TestFarEarlyPacket: a single packet far ahead takes no more than is accounted for.
func TestFarEarlyPacket(t *testing.T) {
	memory := &earlyMemory{size: 64 << 10}
	e := floodable(t, memory)
	h := packet(roce.SendOnly, 100+uint32(maxEarlyDistance(256))-1)
	e.qp.Handle(0, &h, []byte{1})
	if n := e.qp.Counters().EarlyDropped; n != 1 || memory.taken != 0 {
		t.Errorf("%d dropped, %d bytes taken", n, memory.taken)
	}
	h = packet(roce.SendOnly, 100+uint32(maxEarlyDistance(256)))
	e.qp.Handle(0, &h, []byte{1})
	if n := e.qp.Counters().EarlyDropped; n != 2 {
		t.Errorf("%d dropped, want one beyond reach, too", n)
	}
	h = packet(roce.SendOnly, 102)
	e.qp.Handle(0, &h, []byte{1})
	if memory.taken == 0 {
		t.Error("nothing is kept")
	}
	if e.qp.Flush(); memory.taken != 0 {
		t.Errorf("%d bytes are never given back", memory.taken)
	}
}

// TestEarlyWrongLength: what no packet of its kind can be as long as is not kept, whatever
// its kind is.
func TestEarlyWrongLength(t *testing.T) {
	for op := range 256 {
		op := roce.Opcode(op)
		if !op.IsRequest() {
			continue
		}
		wrong := []int{257, 4096, 1 << 16}
		switch {
		case op == roce.ReadRequest:
			wrong = append(wrong, 1, 256)
		case !op.Ends():
			wrong = append(wrong, 0, 255)
		case op.IsLast():
			wrong = append(wrong, 0)
		}
		for _, n := range wrong {
			e := newReady(t, selectively)
			h := packet(op, 105)
			e.qp.Handle(0, &h, make([]byte, n))
			if e.qp.responder.early != nil || e.qp.Counters().BadLengths != 1 {
				t.Errorf("%v of %d bytes is kept", op, n)
			}
			e.quiet()
		}
	}
}

// TestEarlyResponseOfWrongLength: nor is the response to a READ.
func TestEarlyResponseOfWrongLength(t *testing.T) {
	for _, n := range []int{0, 255, 257, 1 << 16} {
		e := newReady(t, selectively)
		e.queue(reads(1, 1024))
		e.answers(0)
		h := packet(roce.ReadResponseMiddle, 102)
		e.qp.Handle(0, &h, make([]byte, n))
		if r := &e.qp.requester; r.scoreboard != nil || e.qp.Counters().BadLengths != 1 {
			t.Errorf("%d bytes: %+v", n, e.qp.Counters())
		}
		e.qp.Handle(0, &h, make([]byte, 256))
		if r := &e.qp.requester; r.scoreboard == nil || r.scoreboard.responses.count != 1 {
			t.Errorf("after %d bytes the right one is not kept", n)
		}
	}
}

// TestAcknowledgementWithPayload: it is no acknowledgement.
func TestAcknowledgementWithPayload(t *testing.T) {
	e := newReady(t, selectively)
	e.queue(sends(1, 1))
	e.answers(0)
	h := ack(100, roce.SyndromeACK)
	e.qp.Handle(0, &h, make([]byte, 4))
	e.completed()
	if n := e.qp.Counters().BadLengths; n != 1 {
		t.Errorf("%d of a wrong length", n)
	}
	e.qp.Handle(0, &h, nil)
	e.completed("send ok 1")
}

// TestEarlyMemoryRunsOut: what finds no room is sent again, like what is lost, and what
// QPs hold on to that keep nothing is at most half.
func TestEarlyMemoryRunsOut(t *testing.T) {
	for _, size := range []int{0, 4 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			memory := &earlyMemory{size: size}
			config := testConfig
			config.Early = memory
			c := testConnection
			c.Selective = true
			p := newPair(t, config, c, path{delay: time.Millisecond, loss: 0.05, rate: 1e9}, 1)
			p.a.memory.add(1, 64<<10)
			p.b.memory.add(2, 64<<10)
			const count = 20
			for i := range count {
				r := Request{Op: OpWrite, Context: i, SGL: []SGE{piece(1, 0, 64<<10)}, VA: 2 << 32, Token: 2}
				if i%2 == 1 {
					r.Op = OpRead
				}
				p.a.post(r)
			}
			p.await(t, p.a, count, time.Minute)
			for i, c := range p.a.done {
				if c.Status != Success {
					t.Fatalf("request %d: %s", i, describe(c))
				}
			}
			dropped := p.a.qp.Counters().EarlyDropped + p.b.qp.Counters().EarlyDropped
			if size < 64<<10 && dropped == 0 {
				t.Error("everything found room")
			}
			if memory.taken > size/2 {
				t.Errorf("%d bytes of %d are held on to", memory.taken, size)
			}
			p.a.qp.Flush()
			p.b.qp.Flush()
			if memory.taken != 0 {
				t.Errorf("%d bytes are never given back", memory.taken)
			}
		})
	}
}

// TestEarlyPacketBytes: an early packet takes no more bytes than are accounted for it.
func TestEarlyPacketBytes(t *testing.T) {
	if n := unsafe.Sizeof(earlyPacket{}); n > earlyPacketBytes {
		t.Errorf("an early packet is %d bytes", n)
	}
	if n := unsafe.Sizeof(&earlyPacket{}); n > earlySlotBytes {
		t.Errorf("a slot is %d bytes", n)
	}
}
