package rc

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestHostilePeer hears anything that decodes: nothing panics, no memory is
// touched that no request or receive allows, and everything posted completes
// exactly once and in order, at the latest when it is flushed.
func TestHostilePeer(t *testing.T) {
	opcodes := []roce.Opcode{}
	for op := range 256 {
		if op := roce.Opcode(op); op.IsRequest() || op.IsResponse() {
			opcodes = append(opcodes, op)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		e := newEnd(t, testConfig)
		c := testConnection
		c.MTU, c.SendPSN, c.ReceivePSN, c.ResponderResources = 256, 100, 100, 2
		c.Selective = rapid.Bool().Draw(rt, "selective")
		for token := uint32(1); token <= 4; token++ {
			e.memory.add(token, 4096)
		}
		if err := e.qp.Connect(c); err != nil {
			t.Fatal(err)
		}
		posted, received := 0, 0
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += time.Duration(rapid.IntRange(0, 10_000_000).Draw(rt, "pause"))
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				r := rapid.SampledFrom([]func(int, int) Request{sends, writes, reads}).Draw(rt, "request")(posted, rapid.IntRange(0, 1500).Draw(rt, "size"))
				if e.qp.Post(&r) == nil {
					posted++
				}
			case 1:
				r := Receive{Context: received, SGL: []SGE{piece(1, 0, rapid.IntRange(0, 1500).Draw(rt, "size"))}}
				if e.receives.Post(&r) == nil {
					received++
				}
			case 2:
				e.qp.HandleTimeout(now)
			case 3, 4:
				for range rapid.IntRange(1, 20).Draw(rt, "packets") {
					e.qp.Next(now, &e.packet)
				}
			default:
				h := roce.Header{
					Opcode:        rapid.SampledFrom(opcodes).Draw(rt, "opcode"),
					PSN:           (100 + uint32(rapid.IntRange(-3, 20).Draw(rt, "psn"))) & roce.PSNMask,
					AckReq:        rapid.Bool().Draw(rt, "ask"),
					RKey:          uint32(rapid.IntRange(2, 5).Draw(rt, "key")),
					DMALength:     rapid.SampledFrom([]uint32{0, 1, 256, 257, 600, 5000, 1 << 31, 1<<32 - 1}).Draw(rt, "length"),
					Syndrome:      roce.Syndrome(rapid.SampledFrom([]int{0x1F, 0x1F, 0x1F, 0x60, 0x2C, 0x62, 0x40, 0xFF}).Draw(rt, "syndrome")),
					InvalidateKey: uint32(rapid.IntRange(2, 5).Draw(rt, "invalidate")),
				}
				if h.Opcode == roce.SelectiveAcknowledge {
					h.MSN = (h.PSN + uint32(rapid.IntRange(-1, 10).Draw(rt, "newest"))) & roce.PSNMask
					h.Original = rapid.Uint64().Draw(rt, "map")
					h.Solicited = rapid.Bool().Draw(rt, "more")
				}
				h.VA = uint64(h.RKey)<<32 + uint64(rapid.IntRange(0, 4096).Draw(rt, "offset"))
				payload := make([]byte, rapid.SampledFrom([]int{0, 1, 88, 256, 257}).Draw(rt, "payload"))
				for i := range payload {
					payload[i] = 0xEE
				}
				e.qp.Handle(now, &h, payload)
			}
			if at, ok := e.qp.Deadline(); ok && e.qp.State() == Error {
				rt.Fatalf("deadline %v in Error", at)
			}
		}
		e.qp.Flush()
		requests, receives := 0, 0
		for _, c := range e.qp.Completions(nil) {
			next := &requests
			if c.Op.IsReceive() {
				next = &receives
			}
			if c.Context != *next {
				rt.Fatalf("%v completes out of order", describe(c))
			}
			*next++
		}
		if requests != posted || receives != received {
			rt.Errorf("%d of %d requests and %d of %d receives completed", requests, posted, receives, received)
		}
		// Receives and READs end within the first 1500 bytes of token 1.
		for i, b := range e.memory[1].bytes[1500:] {
			if b != 0 {
				rt.Fatalf("byte %d of local memory was written", 1500+i)
			}
		}
	})
}

// TestHostileReceiver: a responder that lies about what has arrived, or is never
// ready, makes the requester keep no more than the record of what is in flight,
// and is given up as if it said nothing.
func TestHostileReceiver(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Selective, c.RNRRetryCount = true, 7 })
	for i := range 20 {
		e.queue(sends(i, 1))
	}
	now := time.Duration(0)
	e.answers(now)
	for range 10_000 { // not ready
		h := ack(100, roce.SyndromeRNR|1)
		e.qp.Handle(now, &h, nil)
		now, _ = e.qp.Deadline()
		e.qp.HandleTimeout(now)
		for e.qp.Next(now, &e.packet) {
		}
	}
	if p := e.qp.requester.scoreboard; cap(p.transmissions.list) > 128 || len(p.records) > 128 {
		t.Errorf("%d flights, %d records for 20 packets", cap(p.transmissions.list), len(p.records))
	}
	for range 10_000 { // all of it is there but never executed
		h := reporting(100, 119, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
		e.qp.Handle(now, &h, nil)
		at, ok := e.qp.Deadline()
		if !ok {
			break
		}
		now = at
		e.qp.HandleTimeout(now)
		for e.qp.Next(now, &e.packet) {
		}
	}
	e.done = e.qp.Completions(nil)
	if e.qp.State() != Error || len(e.done) != 20 || e.done[0].Status != RetryExceeded {
		t.Errorf("state %v, %d completions", e.qp.State(), len(e.done))
	}
}
