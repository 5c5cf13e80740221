package rc

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A lossy loop is two QPs whose packets go from one to the other at once, but for
// those that are lost: nothing in it allocates.
type lossyLoop struct {
	a, b        *QP
	receives    *ReceiveQueue
	packet      roce.Packet
	completions []Completion
	now         time.Duration
	sent        int
	lose        func(h *roce.Header, n int) bool // whether the n-th packet is lost
}

func newLossyLoop(t *testing.T) *lossyLoop {
	l := &lossyLoop{receives: NewReceiveQueue(64, 1)}
	config := Config{SendDepth: 64, MaxSGE: 1, Receives: l.receives, Memory: make(flatMemory, 1<<20)}
	l.a, l.b = NewQP(config), NewQP(config)
	here := bulkConnection
	there := here
	there.SendPSN, there.ReceivePSN = here.ReceivePSN, here.SendPSN
	if err := errors.Join(l.a.Connect(here), l.b.Connect(there)); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lossyLoop) move(from, to *QP) bool {
	moved := false
	for from.Next(l.now, &l.packet) {
		l.now += 100
		l.sent++
		moved = true
		if l.lose(&l.packet.Header, l.sent) {
			continue
		}
		var payload []byte
		if len(l.packet.Payload) > 0 {
			payload = l.packet.Payload[0]
		}
		to.Handle(l.now, &l.packet.Header, payload)
	}
	return moved
}

// run has a request complete, and lets the timer run where nothing else moves.
func (l *lossyLoop) run(t *testing.T, r *Request, receive *Receive, late bool) {
	if r.Op == OpSend && !late {
		if err := l.receives.Post(receive); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.a.Post(r); err != nil {
		t.Fatal(err)
	}
	for {
		for moved := true; moved; {
			moved = l.move(l.a, l.b)
			moved = l.move(l.b, l.a) || moved
		}
		l.completions = l.b.Completions(l.completions[:0])
		l.completions = l.a.Completions(l.completions[:0])
		if len(l.completions) == 1 && l.completions[0].Status == Success {
			return
		}
		at, ok := l.a.Deadline()
		if !ok || len(l.completions) > 0 {
			t.Fatalf("completions %v", l.completions)
		}
		if late {
			late = false
			if err := l.receives.Post(receive); err != nil {
				t.Fatal(err)
			}
		}
		l.now = max(l.now, at)
		l.a.HandleTimeout(l.now)
	}
}

// TestRepairDoesNotAllocate: what goes wrong costs time, not memory, at either
// end: requests, responses, acknowledgements and NAKs that are lost, timers that
// run out, duplicates, receivers that are not ready.
func TestRepairDoesNotAllocate(t *testing.T) {
	write := Request{Op: OpWrite, SGL: []SGE{{Length: 64 << 10}}}
	read := Request{Op: OpRead, SGL: []SGE{{Length: 64 << 10}}}
	send := Request{Op: OpSend, SGL: []SGE{{Length: 64 << 10}}}
	receive := Receive{SGL: []SGE{{Length: 64 << 10}}}
	every := func(n int) func(*roce.Header, int) bool {
		return func(_ *roce.Header, i int) bool { return i%n == 0 }
	}
	acks := func(h *roce.Header, i int) bool { return h.Opcode == roce.Acknowledge && i%3 == 0 }
	for _, test := range []struct {
		name    string
		request *Request
		lose    func(*roce.Header, int) bool
		late    bool
		check   func(a, b Counters) bool // that it happened
	}{
		{"WRITE", &write, every(7), false, func(a, b Counters) bool { return a.NAKsReceived > 50 && b.OutOfSequence > 50 }},
		{"SEND", &send, every(7), false, func(a, b Counters) bool { return a.NAKsReceived > 50 && b.OutOfSequence > 50 }},
		{"READ", &read, every(7), false, func(a, b Counters) bool { return a.Retransmitted > 50 && b.Duplicates > 50 }},
		{"acknowledgements", &write, acks, false, func(a, b Counters) bool { return a.Timeouts > 10 }},
		{"RNR", &send, func(*roce.Header, int) bool { return false }, true,
			func(a, b Counters) bool { return a.RNRsReceived > 50 && b.RNRsSent > 50 }},
	} {
		l := newLossyLoop(t)
		l.lose = test.lose
		for range 20 { // what grows has grown
			l.run(t, test.request, &receive, test.late)
		}
		if n := testing.AllocsPerRun(100, func() { l.run(t, test.request, &receive, test.late) }); n != 0 {
			t.Errorf("%s: %v allocations per request", test.name, n)
		}
		if a, b := l.a.Counters(), l.b.Counters(); !test.check(a, b) {
			t.Errorf("%s: what was to happen did not: %+v, %+v", test.name, a, b)
		}
	}
}

// TestSizeOfQP: one byte more, and the runtime takes 1,408 for each QP. 8 bytes it adds itself.
func TestSizeOfQP(t *testing.T) {
	if size := unsafe.Sizeof(QP{}); size > 1272 {
		t.Errorf("a QP is %d bytes, which may be 1,272", size)
	}
}

// TestUnusedQueue: a QP that has posted nothing has no room for requests. Then there is room for as many as it has had at once, in
// steps.
func TestUnusedQueue(t *testing.T) {
	e := newReady(t, nil)
	for i, want := range []int{0, 2, 2, 4, 4, 8} {
		if got := len(e.qp.requester.queue.ring); got != want {
			t.Errorf("with %d requests there are %d slots, want %d", i, got, want)
		}
		e.post(Request{Op: OpSend})
	}
}
