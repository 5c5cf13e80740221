package rc

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// consistent reports whether what a requester has summed up of what is in flight
// is what is in flight.
func (r *requester) consistent() bool {
	q := &r.queue
	inFlight, reads := int64(0), int32(0)
	for i := q.head; i < q.tail; i++ {
		w := q.slot(i)
		from, to := max(w.first, q.una), min(w.end, q.next)
		if from >= to {
			continue
		}
		for s := from; s < to; s++ {
			if r.scoreboard == nil || r.scoreboard.record(s).state <= waiting {
				inFlight += q.cost(w, s, s+1)
			}
		}
		for at := from; w.op == OpRead && at < to; at = q.chunkEnd(w, at) {
			reads++
		}
	}
	return inFlight == r.window.inFlight && reads == q.readsOnWire
}

// TestSlowPeer: a peer that has become slow to acknowledge is asked a few times
// whether it is there. Nothing is sent again of what it has.
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
	if got := p.a.qp.Counters(); got.Timeouts == 0 || got.Retransmitted > 0 {
		t.Errorf("%d packets sent again after %d timeouts", got.Retransmitted, got.Timeouts)
	}
}

// TestLossOnSlowPath: what was lost while the timer was wrong is found out all the same.
func TestLossOnSlowPath(t *testing.T) {
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

// TestProbe: the timer has run out with all of the window in flight.
func TestProbe(t *testing.T) {
	const us = time.Microsecond
	start := func(t *testing.T, change func(*Connection)) *end {
		e := newReady(t, func(c *Connection) {
			c.Credit = 8 * (256 + PacketOverhead)
			if change != nil {
				change(c)
			}
		})
		e.qp.requester.timers.roundTrip.sample(1000 * us)
		e.qp.SetRoundTrip(1000*us, true)
		for i := range 12 {
			e.queue(sends(i, 256))
		}
		e.say("send only 100 (256) ask", "send only 101 (256) ask", "send only 102 (256) ask", "send only 103 (256) ask",
			"send only 104 (256) ask", "send only 105 (256) ask", "send only 106 (256) ask", "send only 107 (256) ask")
		e.qp.HandleTimeout(3000 * us)
		e.at(3000*us, "write only 99 0@0 ask")
		return e
	}
	hear := func(e *end, now time.Duration, headers ...roce.Header) {
		for i := range headers {
			e.qp.Handle(now, &headers[i], nil)
		}
	}
	acknowledged := func(e *end, now time.Duration, from, to uint32) {
		for psn := from; psn <= to; psn++ {
			hear(e, now, ack(psn, roce.SyndromeACK))
		}
	}
	counted := func(e *end, retransmitted, spurious uint64) {
		t.Helper()
		if got := e.qp.Counters(); got.Retransmitted != retransmitted || got.Spurious != spurious {
			t.Errorf("%+v", got)
		}
	}
	t.Run("the path is slow", func(t *testing.T) {
		e := start(t, nil)
		acknowledged(e, 9000*us, 100, 107)
		e.at(9000*us, "send only 108 (256) ask, send only 109 (256) ask, send only 110 (256) ask, send only 111 (256) ask")
		hear(e, 9100*us, ack(107, roce.SyndromeACK)) // the answer
		e.at(9100*us, "")
		acknowledged(e, 18000*us, 108, 111)
		counted(e, 0, 0)
		if got := e.qp.requester.timers.roundTrip.srtt; got < 4000*us { // samples of 9 ms, of 108 to 111 alone
			t.Errorf("a round trip takes %v as far as is known", got)
		}
	})
	t.Run("all is lost", func(t *testing.T) {
		e := start(t, nil)
		hear(e, 4000*us, ack(99, roce.SyndromeACK))
		e.at(4000*us, "send only 100 (256) ask, send only 101 (256) ask, send only 102 (256) ask, send only 103 (256) ask, "+
			"send only 104 (256) ask, send only 105 (256) ask, send only 106 (256) ask, send only 107 (256) ask")
		hear(e, 4000*us, ack(99, roce.SyndromeACK)) // a copy of the answer
		e.at(4000*us, "")
	})
	t.Run("the end is lost", func(t *testing.T) {
		e := start(t, nil)
		acknowledged(e, 3500*us, 100, 105)
		e.at(3500*us, "send only 108 (256) ask, send only 109 (256) ask, send only 110 (256) ask, send only 111 (256) ask")
		hear(e, 4000*us, ack(105, roce.SyndromeACK))
		e.at(4000*us, "send only 106 (256) ask, send only 107 (256) ask, send only 108 (256) ask, send only 109 (256) ask, "+
			"send only 110 (256) ask, send only 111 (256) ask") // N and all behind it
	})
	t.Run("the end is lost, and only that is missing", func(t *testing.T) {
		e := start(t, selectively)
		acknowledged(e, 3500*us, 100, 105)
		e.at(3500*us, "send only 108 (256) ask, send only 109 (256) ask, send only 110 (256) ask, send only 111 (256) ask")
		hear(e, 4000*us, ack(105, roce.SyndromeACK))
		e.at(4000*us, "send only 106 (256), send only 107 (256) ask")
	})
	t.Run("no answer", func(t *testing.T) {
		e := start(t, nil)
		at, _ := e.qp.Deadline()
		e.qp.HandleTimeout(at)
		e.at(at, "write only 99 0@0 ask")
		if at != 9000*us {
			t.Errorf("asks again at %v", at)
		}
		hear(e, at+us, ack(107, roce.SyndromeACK)) // of the first, and there is no telling
		e.at(at+us, "send only 108 (256) ask, send only 109 (256) ask, send only 110 (256) ask, send only 111 (256) ask")
		at, _ = e.qp.Deadline()
		e.qp.HandleTimeout(at)
		e.at(at, "write only 107 0@0 ask")
		hear(e, at+2000*us, ack(107, roce.SyndromeACK), ack(107, roce.SyndromeACK)) // of the first two
		e.at(at+2000*us, "")
		acknowledged(e, at+2000*us, 108, 111)
		counted(e, 0, 0)
	})
	t.Run("packets that did not ask have arrived", func(t *testing.T) {
		e := newReady(t, nil)
		e.qp.requester.timers.roundTrip.sample(1000 * us)
		e.queue(sends(1, 700))
		e.say("send first 100 (256)", "send middle 101 (256)", "send last 102 (188) ask")
		e.qp.HandleTimeout(3000 * us)
		e.at(3000*us, "write only 99 0@0 ask")
		hear(e, 4000*us, ack(101, roce.SyndromeACK))
		e.at(4000*us, "write only 101 0@0 ask")
		hear(e, 5000*us, ack(101, roce.SyndromeACK))
		e.at(5000*us, "send last 102 (188) ask")
	})
	t.Run("duplicates are counted", func(t *testing.T) {
		e := start(t, nil)
		hear(e, 4000*us, ack(99, roce.SyndromeACK))
		e.answers(4000 * us)
		acknowledged(e, 4100*us, 100, 107) // they were only late, and overtaken by the probe
		for range 9 {
			hear(e, 5000*us, ack(107, roce.SyndromeACK))
		}
		counted(e, 8, 8)
	})
}

// TestProbeIsAnswered: a probe changes nothing and is not counted as a duplicate. It has
// an answer of its own, behind what else there is to say.
func TestProbeIsAnswered(t *testing.T) {
	probeOf := func(psn uint32) roce.Header {
		return roce.Header{Opcode: roce.WriteOnly, PSN: psn, AckReq: true}
	}
	e := newReady(t, nil)
	e.hear(probeOf(99)) // there was nothing yet
	e.say("ack 99 msn 0")
	e.hear(write(100), probeOf(99))
	e.say("ack 100 msn 1", "ack 100 msn 1")
	e.hear(readOf(101, 0, 1), probeOf(100))
	e.say("read response only 101 (1) msn 2", "ack 100 msn 2")
	e.quiet()
	if got := e.qp.Counters(); got.Duplicates != 0 {
		t.Errorf("%+v", got)
	}

	// The answer does not cover requests that came after the probe, and is not to be taken
	// for their acknowledgement.
	e.hear(probeOf(100), probeOf(100))
	e.say("ack 100 msn 2", "ack 100 msn 2")
	e.hear(probeOf(100), write(102))
	e.say("ack 102 msn 3", "ack 100 msn 3")
	e.quiet()

	e = newReady(t, selectively)
	e.hear(write(100), write(102), probeOf(99))
	e.say("selective acknowledge 101 msn 102 solicited", "ack 100 msn 1")
	e.quiet()
}

// TestGivesUpInVain: a peer that answers probes is there. But if nothing else gets
// through, as where only short packets do, the retries are used up all the same.
func TestGivesUpInVain(t *testing.T) {
	for _, selective := range []bool{false, true} {
		c := testConnection
		c.Selective = selective
		p := newPair(t, testConfig, c, path{delay: time.Millisecond}, 1)
		p.a.memory.add(1, 4096)
		p.b.memory.add(2, 4096)
		p.a.out.drop = func(h *roce.Header) bool { return h.DMALength > 1 }
		r := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 1)}, VA: 2 << 32, Token: 2}
		p.a.post(r)
		p.await(t, p.a, 1, time.Second)
		r.SGL = []SGE{piece(1, 0, 600)}
		start := p.clock.Now()
		p.a.post(r)
		p.await(t, p.a, 2, time.Minute)
		if p.a.done[1].Status != RetryExceeded {
			t.Error(describe(p.a.done[1]))
		}
		if took, want := p.clock.Now()-start, 7*c.AckTimeout; took != want {
			t.Errorf("gave up after %v, want %v", took, want)
		}
	}
}

// TestDeepQueue: a peer behind a queue of 20 s is there as long as anything comes from
// it, though the oldest packet is lost and it takes as long to have it sent again. One
// that drops what comes early has nothing to say meanwhile.
func TestDeepQueue(t *testing.T) {
	c := testConnection
	c.Selective, c.Credit = true, 2<<20
	config := testConfig
	config.SendDepth = 512
	p := newPair(t, config, c, path{delay: time.Millisecond}, 1)
	p.a.memory.add(1, 4096)
	p.b.memory.add(2, 4096)
	r := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 4096)}, VA: 2 << 32, Token: 2}
	p.a.post(r)
	p.await(t, p.a, 1, time.Second)
	p.a.out.rate = 400e3
	p.a.out.drop = once(func(h *roce.Header) bool { return h.Opcode == roce.WriteFirst })
	for range 256 {
		p.a.post(r)
	}
	p.await(t, p.a, 257, time.Hour)
	for i := range p.a.done {
		if p.a.done[i].Status != Success {
			t.Fatal(describe(p.a.done[i]))
		}
	}
	if took := p.clock.Now(); took < 30*c.AckTimeout {
		t.Errorf("took %v, no longer than a peer is waited for", took)
	}
	if got := p.a.qp.Counters(); got.Retransmitted != 1 || got.Spurious != 0 {
		t.Errorf("%+v", got)
	}
}

// TestLostProbes: probes and their answers are lost like all else. Packets that are lost a
// second time are asked for anew, and not only after the answers to all probes that were
// ever sent.
func TestLostProbes(t *testing.T) {
	const most = 2 * time.Minute
	for _, selective := range []bool{false, true} {
		for seed := range uint64(200) {
			c := testConnection
			c.MTU, c.AckTimeout, c.Selective, c.Credit = 256, 0, selective, 1
			p := newPair(t, testConfig, c, path{delay: 100 * time.Microsecond, loss: 0.25}, seed)
			p.a.memory.add(1, 8192)
			p.b.memory.add(2, 8192)
			p.a.post(Request{Op: OpRead, SGL: []SGE{piece(1, 0, 6401)}, VA: 2 << 32, Token: 2})
			p.a.post(Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 6401)}, VA: 2 << 32, Token: 2})
			if !p.clock.RunUntil(func() bool { return len(p.a.done) == 2 }, most) {
				t.Errorf("selective %v, seed %d: not done after %v: %+v", selective, seed, most, p.a.qp.Counters())
			}
		}
	}
}

// TestProbeOfREADs: where READs are all that rxe has executed, it acknowledges a probe by
// the number before 0. The READ was lost, whether that is before or ahead of ours.
func TestProbeOfREADs(t *testing.T) {
	for _, acknowledged := range []uint32{0xFFFFFF, 99, 101, 0x700000} {
		e := newReady(t, nil)
		e.queue(reads(1, 256))
		e.answers(0)
		now, _ := e.qp.Deadline()
		e.qp.HandleTimeout(now)
		e.at(now, "write only 99 0@0 ask")
		h := ack(acknowledged, roce.SyndromeACK)
		e.qp.Handle(now+time.Millisecond, &h, nil)
		e.at(now+time.Millisecond, "read request 100 256@1000 ask")
	}
}
