package rc

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A journal is a LocalOperation that notes when it is performed.
type journal struct {
	times  int
	status Status
	effect func() // if not nil
}

func (j *journal) Perform() Status {
	j.times++
	if j.effect != nil {
		j.effect()
	}
	return j.status
}

func local(op Op, context int, j *journal) Request {
	return Request{Op: op, Context: context, Local: j}
}

func fenced(r Request) Request {
	r.Fence = true
	return r
}

func silent(r Request) Request {
	r.Silent = true
	return r
}

// performed checks how often each operation has been performed so far.
func (e *end) performed(want []int, operations ...*journal) {
	e.t.Helper()
	for i, j := range operations {
		if j.times != want[i] {
			e.t.Fatalf("operation %d performed %d times, want %d", i, j.times, want[i])
		}
	}
}

// TestOnlyLocalOperations: they need no packet, neither theirs nor an answer.
func TestOnlyLocalOperations(t *testing.T) {
	e := newReady(t, nil)
	var a, b, c journal
	e.queue(local(OpBind, 1, &a), silent(local(OpFastRegister, 2, &b)), local(OpInvalidate, 3, &c))
	e.performed([]int{0, 0, 0}, &a, &b, &c)
	e.completed()
	e.quiet()
	e.performed([]int{1, 1, 1}, &a, &b, &c)
	e.completed("bind ok 1", "invalidate ok 3")
	if _, ok := e.qp.Deadline(); ok || e.qp.SendQueue().InFlight > 0 {
		t.Error("waits for an answer")
	}
	e.qp.HandleTimeout(time.Hour)
	e.queue(sends(4, 1)) // they have taken no sequence number
	e.say("send only 100 (1) ask")
}

func TestPostRefusesLocalOperations(t *testing.T) {
	e := newReady(t, nil)
	for _, c := range []struct {
		r    Request
		want error
	}{
		{Request{Op: OpBind}, ErrOperation},
		{Request{Op: OpFastRegister}, ErrOperation},
		{Request{Op: OpInvalidate}, ErrOperation},
		{Request{Op: OpInvalidate, Local: new(journal), Inline: []byte{1}}, ErrInline},
		{Request{Op: OpReceive, Local: new(journal)}, ErrOperation},
	} {
		if err := e.qp.Post(&c.r); !errors.Is(err, c.want) {
			t.Errorf("op %d: %v, want %v", c.r.Op, err, c.want)
		}
	}
	for range testConfig.SendDepth {
		e.queue(local(OpBind, 1, new(journal)))
	}
	if err := e.qp.Post(&Request{Op: OpBind, Local: new(journal)}); !errors.Is(err, ErrFull) {
		t.Errorf("one more than the queue is deep: %v", err)
	}
	e.qp.Flush()
	if err := e.qp.Post(&Request{Op: OpBind, Local: new(journal)}); !errors.Is(err, ErrState) {
		t.Errorf("in Error: %v", err)
	}
}

// TestLocalOperationsTakeTheirTurn: behind the last packet of what is before and
// ahead of the first of what is behind (NDK-MR-28), whatever has been answered;
// complete in posting order (NDK-CQ-37).
func TestLocalOperationsTakeTheirTurn(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 2 * (256 + PacketOverhead) })
	var a, b journal
	e.queue(writes(1, 600), local(OpFastRegister, 2, &a), local(OpBind, 3, &b), sends(4, 1))
	e.say("write first 100 (256) 600@1000", "write middle 101 (256) ask")
	e.quiet()
	e.performed([]int{0, 0}, &a, &b)
	e.hear(ack(101, roce.SyndromeACK))
	if !e.qp.Next(0, &e.packet) || e.packet.Header.PSN != 102 {
		t.Fatal("the end of the WRITE is not sent")
	}
	e.performed([]int{0, 0}, &a, &b)
	e.say("send only 103 (1) ask")
	e.performed([]int{1, 1}, &a, &b)
	e.completed()
	e.hear(ack(102, roce.SyndromeACK))
	e.completed("write ok 1", "register ok 2", "bind ok 3")
	e.hear(ack(103, roce.SyndromeACK))
	e.completed("send ok 4")
}

// TestFencedLocalOperation is NDK-POST-08: it waits for earlier READs and for
// nothing else, and what is behind it waits with it.
func TestFencedLocalOperation(t *testing.T) {
	e := newReady(t, nil)
	var early, late journal
	e.queue(reads(1, 1), local(OpBind, 2, &early), sends(3, 1), fenced(local(OpFastRegister, 4, &late)), sends(5, 1))
	e.say("read request 100 1@1000 ask", "send only 101 (1) ask")
	e.quiet()
	e.performed([]int{1, 0}, &early, &late)
	h := response(roce.ReadResponseOnly, 100)
	e.qp.Handle(0, &h, []byte{1})
	e.completed("read ok 1", "bind ok 2")
	e.say("send only 102 (1) ask")
	e.performed([]int{1, 1}, &early, &late)
	e.hear(ack(102, roce.SyndromeACK))
	e.completed("send ok 3", "register ok 4", "send ok 5")
}

// TestInvalidateWaits until nothing that is before it can be sent again, and
// what is behind it waits with it (roce.md 6.2).
func TestInvalidateWaits(t *testing.T) {
	e := newReady(t, nil)
	j := journal{effect: func() { delete(e.memory, 1) }}
	e.queue(sends(1, 1), sends(2, 300), local(OpInvalidate, 3, &j), Request{Op: OpSend, Context: 4})
	e.say("send only 100 (1) ask", "send first 101 (256)", "send last 102 (44) ask")
	e.quiet()
	e.hear(ack(101, roce.SyndromePSNSequence))
	e.say("send first 101 (256)", "send last 102 (44) ask")
	e.quiet()
	e.performed([]int{0}, &j)
	e.hear(ack(102, roce.SyndromeACK))
	e.completed("send ok 1", "send ok 2")
	e.say("send only 103 ask")
	e.performed([]int{1}, &j)
	e.completed("invalidate ok 3")
}

// TestGoBackOverLocalOperation: it is not performed again, wherever the cursor
// is when what it goes back for turns out to have arrived.
func TestGoBackOverLocalOperation(t *testing.T) {
	for _, c := range []struct {
		name string
		hear []roce.Header
		sent string
		done []string
	}{
		{"all is sent again", nil, "send only 100 (1) ask, send only 101 (1) ask", nil},
		{"what is before has arrived", []roce.Header{ack(100, roce.SyndromeACK)}, "send only 101 (1) ask", []string{"send ok 1", "register ok 2", "bind ok 3"}},
		{"what is behind has arrived too", []roce.Header{ack(101, roce.SyndromeACK)}, "", []string{"send ok 1", "register ok 2", "bind ok 3", "send ok 4", "bind ok 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newReady(t, nil)
			var j [3]journal
			e.queue(sends(1, 1), local(OpFastRegister, 2, &j[0]), local(OpBind, 3, &j[1]), sends(4, 1), local(OpBind, 5, &j[2]))
			e.say("send only 100 (1) ask", "send only 101 (1) ask")
			e.quiet()
			e.hear(ack(100, roce.SyndromePSNSequence))
			for _, h := range c.hear {
				e.hear(h)
			}
			e.at(0, c.sent)
			e.completed(c.done...)
			e.performed([]int{1, 1, 1}, &j[0], &j[1], &j[2])
			// The queue is sound: it goes on where it should.
			e.queue(sends(6, 1))
			e.say("send only 102 (1) ask")
			e.quiet()
			e.hear(ack(102, roce.SyndromeACK))
			want := []string{"send ok 1", "register ok 2", "bind ok 3", "send ok 4", "bind ok 5", "send ok 6"}
			e.completed(want[len(c.done):]...)
			e.performed([]int{1, 1, 1}, &j[0], &j[1], &j[2])
			if e.qp.SendQueue().InFlight > 0 {
				t.Error("busy with nothing outstanding")
			}
		})
	}
}

// TestNotReadyBeforeLocalOperation: nothing is performed during an RNR wait
// that has not been before.
func TestNotReadyBeforeLocalOperation(t *testing.T) {
	const wait = 640 * time.Microsecond // of code 12
	e := newReady(t, nil)
	var a, b journal
	e.queue(sends(1, 1), local(OpBind, 2, &a))
	e.answers(0)
	e.hear(ack(100, roce.SyndromeRNR|12))
	e.queue(local(OpBind, 3, &b))
	e.quiet()
	e.performed([]int{1, 0}, &a, &b)
	e.qp.HandleTimeout(wait)
	e.at(wait, "send only 100 (1) ask")
	e.performed([]int{1, 1}, &a, &b)
	e.hear(ack(100, roce.SyndromeACK))
	e.completed("send ok 1", "bind ok 2", "bind ok 3")
}

// TestLocalOperationFails: it is told when it is the oldest request, ends the
// connection, and nothing behind it is carried out.
func TestLocalOperationFails(t *testing.T) {
	for _, status := range []struct {
		Status
		name string
	}{{BadOperation, "bad-operation"}, {LocalProtection, "local-protection"}} {
		e := newReady(t, nil)
		bad, behind := journal{status: status.Status}, journal{}
		e.queue(sends(1, 1), silent(local(OpBind, 2, &bad)), local(OpBind, 3, &behind), sends(4, 1))
		e.say("send only 100 (1) ask")
		e.quiet()
		e.completed()
		if e.qp.State() != Ready {
			t.Error("an earlier request is not given its time")
		}
		e.hear(ack(100, roce.SyndromePSNSequence))
		e.say("send only 100 (1) ask")
		e.quiet()
		e.hear(ack(100, roce.SyndromeACK))
		e.completed("send ok 1", "bind "+status.name+" 2", "bind flushed 3", "send flushed 4")
		e.quiet()
		e.performed([]int{1, 0}, &bad, &behind)
		if e.qp.State() != Error {
			t.Error("the connection lives on")
		}
	}
	e := newReady(t, nil)
	e.queue(local(OpBind, 1, new(journal)), local(OpInvalidate, 2, &journal{status: BadOperation}), sends(3, 1))
	e.quiet()
	e.completed("bind ok 1", "invalidate bad-operation 2", "send flushed 3")
}

// TestFlushOfLocalOperations: what has not been performed never is; what has, and
// stands behind others, completes like them.
func TestFlushOfLocalOperations(t *testing.T) {
	e := newReady(t, nil)
	var a, b, c journal
	e.queue(sends(1, 1), silent(local(OpFastRegister, 2, &a)), local(OpInvalidate, 3, &b), local(OpBind, 4, &c))
	e.answers(0)
	e.performed([]int{1, 0, 0}, &a, &b, &c)
	e.qp.Flush()
	e.completed("send flushed 1", "register flushed 2", "invalidate flushed 3", "bind flushed 4")
	e.hear(ack(100, roce.SyndromeACK))
	e.quiet()
	e.completed()
	e.performed([]int{1, 0, 0}, &a, &b, &c)
	for i := range e.qp.requester.queue.ring {
		if w := &e.qp.requester.queue.ring[i]; w.local != nil || w.context != nil {
			t.Error("a completed request is held on to")
		}
	}

	// A request refused flushes those READs and what stands behind them, but not
	// what no READ was before.
	e = newReady(t, nil)
	e.queue(sends(1, 1), local(OpBind, 2, &a), reads(3, 1), local(OpBind, 4, &b), sends(5, 1), local(OpBind, 6, &c))
	e.answers(0)
	e.hear(ack(102, roce.SyndromeInvalidRequest))
	e.completed("send ok 1", "bind ok 2", "read flushed 3", "bind flushed 4", "send remote-invalid 5", "bind flushed 6")
}

func TestLocalOperationsDoNotAllocate(t *testing.T) {
	l := newLoop(t, bulkConnection)
	var j journal
	r := Request{Op: OpFastRegister, Local: &j, Silent: true}
	write := loopRequests["write"]
	all := func() {
		for range 3 {
			if err := l.a.Post(&r); err != nil {
				t.Fatal(err)
			}
		}
		l.run(t, &write)
	}
	all()
	if n := testing.AllocsPerRun(100, all); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if j.times < 300 {
		t.Errorf("performed %d times", j.times)
	}
}
