package rc

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/provider/roce"
)

// consistent reports whether what a requester has summed up of what is in flight
// is what is in flight.
func (r *requester) consistent() bool {
	inFlight, reads := int64(0), 0
	for i := r.head; i < r.tail; i++ {
		w := r.slot(i)
		from, to := max(w.first, r.una), min(w.end, r.next)
		if from >= to {
			continue
		}
		for s := from; s < to; s++ {
			if r.repair == nil || r.repair.record(s).fate <= waiting {
				inFlight += r.cost(w, s, s+1)
			}
		}
		for at := from; w.op == OpRead && at < to; at = r.chunkEnd(w, at) {
			reads++
		}
	}
	return inFlight == r.inFlight && reads == r.reads
}

// TestSlowPeer: a peer that has become slow to acknowledge is asked a few times
// whether it is there. It is not sent again all that it has.
func TestSlowPeer(t *testing.T) {
	for _, selective := range []bool{false, true} {
		for _, op := range []Op{OpWrite, OpRead} {
			for _, slow := range []time.Duration{3, 5, 20, 100} {
				name := fmt.Sprintf("selective %v, operation %d, %d ms", selective, op, slow)
				t.Run(name, func(t *testing.T) { testSlowPeer(t, selective, op, slow*time.Millisecond) })
			}
		}
	}
}

func testSlowPeer(t *testing.T, selective bool, op Op, slow time.Duration) {
	c := testConnection
	c.Selective = selective
	c.AckTimeout, c.Credit = 537*time.Millisecond, 1<<20
	p := newPair(t, testConfig, c, path{delay: time.Millisecond / 2, rate: 1e9}, 1)
	p.a.memory.add(1, 16384)
	p.b.memory.add(2, 16384)
	r := Request{Op: op, SGL: []SGE{piece(1, 0, 16384)}, VA: 2 << 32, Token: 2}
	for i := range 20 {
		p.a.post(r)
		p.await(t, p.a, i+1, time.Second)
	}
	p.b.out.delay += slow
	p.a.out.drop = func(*roce.Header) bool {
		if !p.a.qp.requester.consistent() {
			t.Fatal("what is in flight is miscounted")
		}
		return false
	}
	for range 60 {
		p.a.post(r)
	}
	p.await(t, p.a, 80, time.Minute)
	for i := range p.a.done {
		if p.a.done[i].Status != Success {
			t.Fatal(describe(p.a.done[i]))
		}
	}
	if got := p.a.qp.Counters(); got.Timeouts == 0 || got.Retransmitted > 15 {
		t.Errorf("%d packets sent again after %d timeouts", got.Retransmitted, got.Timeouts)
	}
}

// TestQuickerPath: the path becomes quicker than it ever was at the moment at
// which it loses a window. So the answers seem to come too soon to be any. That
// misleads once, not once for each packet.
func TestQuickerPath(t *testing.T) {
	for _, selective := range []bool{false, true} {
		t.Run(fmt.Sprintf("selective %v", selective), func(t *testing.T) {
			c := testConnection
			c.Selective = selective
			c.AckTimeout, c.Credit = 537*time.Millisecond, 1<<20
			p := newPair(t, testConfig, c, path{delay: 10 * time.Millisecond, rate: 1e9}, 1)
			p.a.memory.add(1, 16384)
			p.b.memory.add(2, 16384)
			r := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 16384)}, VA: 2 << 32, Token: 2}
			for i := range 5 {
				p.a.post(r)
				p.await(t, p.a, i+1, time.Second)
			}
			p.a.out.down = true
			for range 20 {
				p.a.post(r)
			}
			p.a.out.down = false
			p.a.out.delay, p.b.out.delay = time.Millisecond, time.Millisecond
			p.await(t, p.a, 25, time.Minute)
			if got := p.a.qp.Counters(); got.Timeouts > 3 {
				t.Errorf("%d timeouts, %d packets sent again", got.Timeouts, got.Retransmitted)
			}
		})
	}
}

// TestResumed: what was lost while the timer was wrong is found out all the same.
func TestResumed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := testConnection
		c.AckTimeout, c.Credit = 0, 1<<20
		c.Selective = rapid.Bool().Draw(rt, "selective")
		p := newPair(t, testConfig, c, path{delay: time.Millisecond / 2}, rapid.Uint64().Draw(rt, "seed"))
		p.a.memory.add(1, 16384)
		p.b.memory.add(2, 16384)
		p.a.out.drop = func(*roce.Header) bool {
			if !p.a.qp.requester.consistent() {
				rt.Fatal("what is in flight is miscounted")
			}
			return false
		}
		done := 0
		for range rapid.IntRange(2, 6).Draw(rt, "phases") {
			p.b.out.delay = time.Duration(rapid.IntRange(500, 20_000).Draw(rt, "delay")) * time.Microsecond
			p.a.out.loss = rapid.SampledFrom([]float64{0, 0, 0.02, 0.2}).Draw(rt, "loss")
			p.b.out.loss = rapid.SampledFrom([]float64{0, 0, 0.02, 0.2}).Draw(rt, "loss back")
			n := rapid.IntRange(1, 40).Draw(rt, "requests")
			for i := range n {
				op := rapid.SampledFrom([]Op{OpWrite, OpRead}).Draw(rt, "op")
				size := rapid.IntRange(0, 16384).Draw(rt, "size")
				p.a.post(Request{Op: op, Context: done + i, SGL: []SGE{piece(1, 0, size)}, VA: 2 << 32, Token: 2})
			}
			done += n
			if !p.clock.RunUntil(func() bool { return len(p.a.done) >= done }, time.Hour) {
				rt.Fatalf("%d of %d completions", len(p.a.done), done)
			}
		}
		for i, d := range p.a.done {
			if d.Context != i || d.Status != Success {
				rt.Fatal(describe(d))
			}
		}
	})
}

// TestSuspicion: the timer ran out for nothing, with all of the window in flight.
func TestSuspicion(t *testing.T) {
	const us = time.Microsecond
	start := func(t *testing.T) *end {
		e := newReady(t, func(c *Connection) { c.Credit = 8 * (256 + PacketOverhead) })
		e.qp.requester.roundTrip.sample(1000 * us)
		e.qp.requester.window.delay = 1000 * us
		for i := range 12 {
			e.queue(sends(i, 256))
		}
		e.say("send only 100 (256) ask", "send only 101 (256) ask", "send only 102 (256) ask", "send only 103 (256) ask",
			"send only 104 (256) ask", "send only 105 (256) ask", "send only 106 (256) ask", "send only 107 (256) ask")
		e.qp.HandleTimeout(3000 * us)
		e.at(3000*us, "send only 100 (256) ask")
		return e
	}
	hear := func(e *end, now time.Duration, h roce.Header) { e.qp.Handle(now, &h, nil) }
	t.Run("an answer too soon to be one", func(t *testing.T) {
		e := start(t)
		hear(e, 3500*us, ack(100, roce.SyndromeACK))
		e.at(3500*us, "send only 108 (256) ask") // at once
		hear(e, 3600*us, ack(108, roce.SyndromeACK))
		e.at(3600*us, "send only 109 (256) ask, send only 110 (256) ask, send only 111 (256) ask")
	})
	t.Run("an answer that may be one, and one that cannot", func(t *testing.T) {
		e := start(t)
		hear(e, 4000*us, ack(100, roce.SyndromeACK))
		e.at(4000*us, "send only 101 (256) ask, send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask")
		hear(e, 4100*us, ack(101, roce.SyndromeACK))
		e.at(4100*us, "send only 108 (256) ask, send only 109 (256) ask")
	})
	t.Run("two answers that may be", func(t *testing.T) {
		e := start(t)
		hear(e, 4000*us, ack(100, roce.SyndromeACK))
		e.at(4000*us, "send only 101 (256) ask, send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask")
		hear(e, 5000*us, ack(101, roce.SyndromeACK))
		e.at(5000*us, "send only 105 (256) ask, send only 106 (256) ask, send only 107 (256) ask, send only 108 (256) ask, send only 109 (256) ask")
		hear(e, 5100*us, ack(102, roce.SyndromeACK))
		e.at(5100*us, "send only 110 (256) ask")
	})
	t.Run("a packet is missing after all", func(t *testing.T) {
		e := start(t)
		hear(e, 3500*us, ack(102, roce.SyndromePSNSequence))
		e.at(4600*us, "send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask, send only 105 (256) ask, "+
			"send only 106 (256) ask, send only 107 (256) ask, send only 108 (256) ask, send only 109 (256) ask")
		hear(e, 4700*us, ack(102, roce.SyndromeACK))
		e.at(4700*us, "send only 110 (256) ask")
	})
	t.Run("the path has become quicker, and the packets are lost", func(t *testing.T) {
		e := start(t)
		hear(e, 3500*us, ack(100, roce.SyndromeACK))
		e.at(3500*us, "send only 108 (256) ask") // as if nothing were lost
		at, _ := e.qp.Deadline()
		e.qp.HandleTimeout(at)
		e.at(at, "send only 101 (256) ask")
		hear(e, at+500*us, ack(101, roce.SyndromeACK))
		e.at(at+500*us, "send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask, send only 105 (256) ask")
	})
	t.Run("and again", func(t *testing.T) {
		e := start(t)
		hear(e, 4000*us, ack(100, roce.SyndromeACK))
		e.at(4000*us, "send only 101 (256) ask, send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask")
		hear(e, 4200*us, ack(101, roce.SyndromePSNSequence))
		e.at(5300*us, "send only 101 (256) ask, send only 102 (256) ask, send only 103 (256) ask, send only 104 (256) ask, send only 105 (256) ask, "+
			"send only 106 (256) ask, send only 107 (256) ask, send only 108 (256) ask")
		hear(e, 5400*us, ack(101, roce.SyndromeACK))
		e.at(5400*us, "send only 109 (256) ask")
	})
}
