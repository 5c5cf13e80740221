package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// reporting says that everything before missing has arrived, and newest, and of
// what is before that the packets given as offsets from it.
func reporting(missing, newest uint32, before ...uint32) roce.Header {
	h := roce.Header{Opcode: roce.SelectiveAcknowledge, PSN: missing, Syndrome: roce.SyndromePSNSequence, MSN: newest}
	for _, n := range before {
		h.Original |= 1 << (n - 1)
	}
	return h
}

// TestRepair: which packets are sent again, and when.
func TestRepair(t *testing.T) {
	const ms = time.Millisecond
	e := newReady(t, selectively)
	says := func(now time.Duration, h roce.Header) { e.qp.Handle(now, &h, nil) }
	e.queue(sends(1, 1), sends(2, 1))
	e.answers(0)
	says(8*ms, ack(101, roce.SyndromeACK)) // the path takes 8 ms
	e.completed("send ok 1", "send ok 2")

	e.queue(sends(3, 1), sends(4, 1), sends(5, 1), sends(6, 1), sends(7, 1))
	e.answers(10 * ms)
	// 103 and 105 have arrived, so 102 and 104 have been overtaken: but by packets
	// that were sent at the same time.
	says(18*ms, reporting(102, 105, 2))
	e.at(18*ms, "")
	at, _ := e.qp.Deadline()
	if at != 20*ms {
		t.Fatalf("looks again at %v", at)
	}
	e.qp.HandleTimeout(at)
	e.at(at, "send only 102 (1) ask, send only 104 (1) ask")
	// 106 arrives late. 104 does, 102 is lost again.
	says(22*ms, reporting(102, 106, 1, 3))
	e.at(22*ms, "")
	e.queue(sends(8, 1))
	e.at(23*ms, "send only 107 (1) ask")
	says(28*ms, reporting(102, 106, 1, 2, 3))
	e.at(28*ms, "")
	// A packet that was sent well after 102 has arrived; there is no need to wait.
	says(31*ms, reporting(102, 107, 1, 2, 3, 4))
	e.at(31*ms, "send only 102 (1) ask")
	says(39*ms, ack(107, roce.SyndromeACK))
	e.completed("send ok 3", "send ok 4", "send ok 5", "send ok 6", "send ok 7", "send ok 8")
	e.at(39*ms, "")
	if _, ok := e.qp.Deadline(); ok || e.qp.requester.scoreboard != nil {
		t.Error("it is not over")
	}
	if got := e.qp.Counters(); got.Retransmitted != 3 || got.Timeouts != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRepairOfReads: only the responses that are missing are asked for again,
// those that are early are kept, and a request that waits is left alone.
func TestRepairOfReads(t *testing.T) {
	const ms = time.Millisecond
	e := newReady(t, selectively)
	e.qp.requester.timers.roundTrip.sample(8 * ms)
	says := func(now time.Duration, h roce.Header, n int) { e.qp.Handle(now, &h, make([]byte, n)) }
	e.queue(reads(1, 1024), reads(2, 300))
	e.at(0, "read request 100 1024@1000 ask, read request 104 300@1000 ask")
	says(8*ms, response(roce.ReadResponseFirst, 100), 256)
	says(8*ms, response(roce.ReadResponseMiddle, 102), 256)
	says(8*ms, response(roce.ReadResponseLast, 105), 44)
	e.at(8*ms, "")
	at, _ := e.qp.Deadline()
	e.qp.HandleTimeout(at)
	e.at(at, "read request 101 256@1100 ask, read request 103 256@1300 ask, read request 104 256@1000 ask")
	says(20*ms, response(roce.ReadResponseOnly, 103), 256)
	says(20*ms, response(roce.ReadResponseOnly, 104), 256)
	e.completed()
	says(20*ms, response(roce.ReadResponseOnly, 101), 256)
	e.completed("read ok 1", "read ok 2")

	e.queue(sends(3, 1), reads(4, 512))
	e.at(30*ms, "send only 106 (1) ask, read request 107 512@1000 ask")
	says(38*ms, reporting(106, 107), 0) // the request is there
	e.at(38*ms, "")
	at, _ = e.qp.Deadline()
	e.qp.HandleTimeout(at)
	e.at(at, "send only 106 (1) ask")
	e.qp.HandleTimeout(at + 8*ms)
	e.at(at+8*ms, "")
	says(at+8*ms, response(roce.ReadResponseFirst, 107), 256)
	says(at+8*ms, response(roce.ReadResponseLast, 108), 256)
	e.completed("send ok 3", "read ok 4")
}

// TestRepairAfterTimeout: when nothing is heard, a probe asks. Packets that were sent
// before it and have not arrived when it is answered are lost.
func TestRepairAfterTimeout(t *testing.T) {
	e := newReady(t, selectively)
	e.qp.requester.timers.roundTrip.sample(time.Millisecond)
	e.queue(sends(1, 1), sends(2, 1), sends(3, 1), sends(4, 1))
	e.answers(0)
	at, _ := e.qp.Deadline()
	e.qp.HandleTimeout(at)
	e.at(at, "write only 99 0@0 ask")
	e.queue(sends(5, 1))
	e.at(at, "send only 104 (1) ask") // there may be nothing wrong
	// Of the others 102 has arrived.
	h := reporting(100, 102)
	h.Solicited = true
	e.qp.Handle(at+time.Millisecond, &h, nil)
	h = ack(99, roce.SyndromeACK)
	e.qp.Handle(at+time.Millisecond, &h, nil)
	e.at(at+time.Millisecond, "send only 100 (1), send only 101 (1) ask, send only 103 (1) ask")
	h = ack(104, roce.SyndromeACK)
	e.qp.Handle(at+2*time.Millisecond, &h, nil)
	e.completed("send ok 1", "send ok 2", "send ok 3", "send ok 4", "send ok 5")
	if got := e.qp.Counters(); got.Retransmitted != 3 || got.Spurious != 0 {
		t.Errorf("%+v", got)
	}
}
