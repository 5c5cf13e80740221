package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestWithoutCredit: nothing new is sent, no timer runs, and the QP says what it lacks.
// The oldest packet is sent again all the same.
func TestWithoutCredit(t *testing.T) {
	for _, selective := range []bool{false, true} {
		e := newReady(t, func(c *Connection) { c.Selective, c.AckTimeout = selective, 0 })
		const packet = 256 + PacketOverhead
		check := func(starved bool, used, wanted int64) {
			t.Helper()
			if e.qp.CreditLimited() != starved || e.qp.CreditInUse() != used || e.qp.CreditWanted() != wanted {
				t.Errorf("starved %v, %d bytes in use, %d wanted; want %v, %d, %d",
					e.qp.CreditLimited(), e.qp.CreditInUse(), e.qp.CreditWanted(), starved, used, wanted)
			}
		}
		e.qp.SetCredit(0)
		e.quiet()
		check(false, 0, 0)
		e.queue(sends(1, 3*256), sends(2, 0))
		check(false, 0, 3*packet+PacketOverhead)
		e.quiet()
		check(true, 0, 3*packet+PacketOverhead)
		if _, ok := e.qp.Deadline(); ok {
			t.Error("a timer runs")
		}
		e.qp.SetCredit(2 * packet)
		e.say("send first 100 (256)", "send middle 101 (256) ask")
		e.quiet()
		check(true, 2*packet, 3*packet+PacketOverhead)

		e.qp.SetCredit(0)
		now := time.Duration(0)
		for timeouts := 1; timeouts <= 3; timeouts++ {
			now, _ = e.qp.Deadline()
			e.qp.HandleTimeout(now)
			e.at(now, "write only 99 0@0 ask")
			used := 2 * int64(packet) // the peer may just be slow
			if timeouts > 1 {
				used = 0 // it is not there
			}
			if got := e.qp.CreditInUse(); got != used {
				t.Errorf("after %d timeouts %d bytes are in use, want %d", timeouts, got, used)
			}
		}
		h := ack(101, roce.SyndromeACK)
		e.qp.Handle(now, &h, nil)
		e.at(now, "")
		check(true, 0, packet+PacketOverhead)
		e.qp.SetCredit(1 << 20)
		e.at(now, "send last 102 (256) ask, send only 103 ask")
		check(false, packet+PacketOverhead, packet+PacketOverhead)
	}
}

// TestWithoutCreditOnALongPath: what the path holds is not enough to begin with. The QP says
// that it lacks credit, or nothing would ever send what no timer waits for.
func TestWithoutCreditOnALongPath(t *testing.T) {
	e := newReady(t, nil)
	w := &e.qp.requester.window
	w.known, w.rate, w.draining = 10*time.Millisecond, 1e9, true
	e.qp.SetCredit(0)
	e.queue(reads(1, 16*256)) // whose answer is more than a window that drains takes
	e.quiet()
	if _, ok := e.qp.Deadline(); ok || !e.qp.CreditLimited() || e.qp.CreditWanted() != 1 {
		t.Errorf("a timer runs: %v; starved %v, %d bytes wanted", ok, e.qp.CreditLimited(), e.qp.CreditWanted())
	}
	e.qp.SetCredit(1)
	e.say("read request 100 4096@1000 ask")
}

// TestCrowd: a round trip that takes long for others' packets does not tell what the path
// holds, one that is shorter does.
func TestCrowd(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		w := newWindow(&Connection{MTU: 1024, Credit: 3_000_000})
		if w.setPath(0, crowded); !w.draining {
			t.Errorf("crowded %v: nobody knows, and nobody finds out", crowded)
		}
		w.rate = 1e9
		w.sampleDelay(time.Second, 10*time.Millisecond, true)
		if got := w.bdp(); got != 1e7 {
			t.Errorf("crowded %v: at first the path holds %d", crowded, got)
		}
		w.known = 5 * time.Millisecond // others know
		w.sampleDelay(time.Second, 9*time.Millisecond, true)
		if got := w.bdp(); got != 5e6 {
			t.Errorf("crowded %v: the path holds %d", crowded, got)
		}
		w.sampleDelay(time.Second, 4*time.Millisecond, true)
		if got := w.bdp(); got != 4e6 {
			t.Errorf("crowded %v: the path holds %d", crowded, got)
		}
		w.sampleDelay(time.Hour, 20*time.Millisecond, false)
		if w.draining == crowded {
			t.Errorf("crowded %v: draining %v", crowded, w.draining)
		}
		w.sampleDelay(time.Hour, 20*time.Millisecond, true)
		want := int64(2e7)
		if crowded {
			want = 4e6
		}
		if got := w.bdp(); got != want || w.draining {
			t.Errorf("crowded %v: later the path holds %d", crowded, got)
		}
		// Up to 3 ms a receive buffer of 3 MB may be what takes so long.
		w.sampleDelay(time.Hour, 3*time.Millisecond, true)
		want = 3e6
		if crowded {
			want = 0
		}
		if got := w.bdp(); got != want {
			t.Errorf("crowded %v: at last the path holds %d", crowded, got)
		}
	}
}

// TestCreditBeyondThePath: what the path holds needs no credit.
func TestCreditBeyondThePath(t *testing.T) {
	e := newReady(t, nil)
	const packet = 256 + PacketOverhead
	e.qp.SetRoundTrip(time.Millisecond, false)
	e.qp.requester.window.rate = 10 * packet / time.Millisecond.Seconds()
	e.qp.SetCredit(5 * packet)
	e.queue(sends(1, 16*256), sends(2, 16*256))
	if got := e.qp.CreditWanted(); got != 22*packet {
		t.Errorf("%d bytes of credit are wanted, want %d", got, 22*packet)
	}
	sent := 0
	for e.qp.Next(0, &e.packet) {
		sent++
	}
	if sent != 15 {
		t.Errorf("%d packets were sent, want 15", sent)
	}
	if got := e.qp.CreditInUse(); got != 5*packet {
		t.Errorf("%d bytes of credit are in use, want %d", got, 5*packet)
	}
}

// TestCreditWantedIsLimited to what may queue.
func TestCreditWantedIsLimited(t *testing.T) {
	c := testConnection
	c.MTU = 4096
	l := newLoop(t, c)
	for range 2 {
		if err := l.a.Post(&Request{Op: OpWrite, SGL: []SGE{{Length: 1 << 20}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.a.CreditWanted(); got != shortQueue {
		t.Errorf("%d bytes are wanted, want %d", got, shortQueue)
	}
}
