package rc

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// ack is an acknowledgement or NAK.
func ack(psn uint32, s roce.Syndrome) roce.Header {
	return roce.Header{Opcode: roce.Acknowledge, PSN: psn, Syndrome: s}
}

func response(op roce.Opcode, psn uint32) roce.Header {
	return roce.Header{Opcode: op, PSN: psn, Syndrome: roce.SyndromeACK}
}

// queue posts without sending.
func (e *end) queue(requests ...Request) {
	e.t.Helper()
	for i := range requests {
		if err := e.qp.Post(&requests[i]); err != nil {
			e.t.Fatalf("post %d: %v", i, err)
		}
	}
}

// send, writes and reads are requests of n bytes, in token 1 here and token 2 there.
func sends(context, n int) Request {
	return Request{Op: OpSend, Context: context, SGL: []SGE{piece(1, 0, n)}}
}

func writes(context, n int) Request {
	return Request{Op: OpWrite, Context: context, SGL: []SGE{piece(1, 0, n)}, VA: 0x1000, Token: 2}
}

func reads(context, n int) Request {
	return Request{Op: OpRead, Context: context, SGL: []SGE{piece(1, 0, n)}, VA: 0x1000, Token: 2}
}

// completed takes the completions made so far and compares them.
func (e *end) completed(want ...string) {
	e.t.Helper()
	e.done = e.qp.Completions(e.done[:0])
	e.check(want...)
}

// at is say at a given time.
func (e *end) at(now time.Duration, want string) {
	e.t.Helper()
	if got := e.answers(now); got != want {
		e.t.Fatalf("sent %q, want %q", got, want)
	}
}

func TestPostRefuses(t *testing.T) {
	e := newEnd(t, Config{SendDepth: 2, MaxSGE: 2, MaxInline: 8})
	post := func(want error, r Request) {
		t.Helper()
		if err := e.qp.Post(&r); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	post(ErrState, sends(1, 0))
	c := testConnection
	c.InitiatorDepth = 0
	c.MTU = 1000
	if err := e.qp.Connect(c); !errors.Is(err, ErrMTU) {
		t.Errorf("MTU 1000: %v", err)
	}
	c.MTU = 1024
	if err := e.qp.Connect(c); err != nil {
		t.Fatal(err)
	}
	if err := e.qp.Connect(c); !errors.Is(err, ErrState) {
		t.Errorf("second Connect: %v", err)
	}
	post(ErrOperation, Request{Op: OpReceive})
	post(ErrOperation, Request{})
	post(ErrNoReads, reads(1, 1))
	post(ErrSGL, Request{Op: OpSend, SGL: make([]SGE, 3)})
	post(ErrInline, Request{Op: OpSend, Inline: make([]byte, 9)})
	post(ErrTooLong, Request{Op: OpSend, SGL: []SGE{{Length: MaxMessage}, {Length: 1}}})
	post(nil, sends(1, 0))
	post(nil, Request{Op: OpSend, Context: 2, Inline: make([]byte, 8), SGL: make([]SGE, 3)})
	post(ErrFull, sends(3, 0))
	e.qp.Flush()
	post(ErrState, sends(4, 0))
	e.completed("send flushed 1", "send flushed 2")
}

// TestInlineReads: what brings data here, or none, has no data to bring along.
func TestInlineReads(t *testing.T) {
	e := newReady(t, nil)
	for _, op := range []Op{OpRead, OpBind, OpFastRegister, OpInvalidate} {
		if err := e.qp.Post(&Request{Op: op, Inline: []byte{1}, Local: &journal{}}); !errors.Is(err, ErrInline) {
			t.Errorf("operation %d: %v", op, err)
		}
	}
}

// TestUnreadable: a request whose memory could not be read once has failed, even
// if the failure has to wait for what is before it. To be sent, memory need not
// be writable.
func TestUnreadable(t *testing.T) {
	e := newReady(t, nil)
	e.memory[1].deny[LocalWrite] = true
	e.memory[3].deny[LocalRead] = true
	e.queue(sends(1, 1), Request{Op: OpSend, Context: 2, SGL: []SGE{piece(3, 0, 1)}})
	e.say("send only 100 (1) ask")
	e.quiet()
	e.memory[3].deny[LocalRead] = false
	e.quiet()
	e.hear(ack(100, roce.SyndromeACK))
	e.completed("send ok 1", "send local-protection 2")
	e.quiet()
}

// TestSending is roce.md 6.1.
func TestSending(t *testing.T) {
	e := newReady(t, nil)
	e.queue(
		Request{Op: OpSend, Inline: []byte("x"), Solicited: true},
		Request{Op: OpSend, SGL: []SGE{piece(1, 0, 513)}, Solicited: true},
		Request{Op: OpSendInvalidate, SGL: []SGE{piece(1, 0, 4)}, Token: 5},
		Request{Op: OpSendInvalidate, SGL: []SGE{piece(1, 0, 257)}, Token: 5},
		Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 513)}, VA: 0x10, Token: 5, Solicited: true},
		Request{Op: OpWrite},
		Request{Op: OpRead, SGL: []SGE{piece(1, 0, 513)}, VA: 0x10, Token: 5},
		Request{Op: OpSend},
	)
	e.say("send only 100 (1) ask solicited",
		"send first 101 (256)", "send middle 102 (256)", "send last 103 (1) ask solicited",
		"send only invalidate 104 (4) ask",
		"send first 105 (256)", "send last invalidate 106 (1) ask",
		"write first 107 (256) 513@10", "write middle 108 (256)", "write last 109 (1) ask",
		"write only 110 0@0 ask",
		"read request 111 513@10 ask",
		"send only 114 ask")
}

func TestAskOften(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 1 << 20 })
	e.queue(sends(1, 4096))
	e.queue(sends(2, 4096))
	e.queue(sends(3, 100*1+3996)) // 48 packets in all
	asked := 0
	for i := 1; e.qp.Next(0, &e.packet); i++ {
		if e.packet.Header.AckReq {
			if i%16 != 0 {
				t.Errorf("packet %d asks", i)
			}
			asked++
		}
	}
	if asked != 3 {
		t.Errorf("%d of 48 packets ask", asked)
	}

	// A message without end in sight asks every 16 packets, and when the
	// window is full.
	e = newReady(t, func(c *Connection) { c.Credit = 20 * (256 + PacketOverhead) })
	e.memory.add(9, 1<<20)
	e.queue(Request{Op: OpSend, SGL: []SGE{piece(9, 0, 1<<20)}})
	var which []int
	n := 1
	for ; e.qp.Next(0, &e.packet); n++ {
		if e.packet.Header.AckReq {
			which = append(which, n)
		}
	}
	if n-1 != 20 || len(which) != 2 || which[0] != 16 || which[1] != 20 {
		t.Errorf("%d packets sent, asked with %v; want 20, 16 and 20", n-1, which)
	}
}

// TestReadsAreSplit: READs on the wire have 32 packets at most and never more
// of them are outstanding than agreed.
func TestReadsAreSplit(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 2; c.Credit = 1 << 20 })
	e.memory.add(9, 1<<20)
	e.queue(Request{Op: OpRead, Context: 1, SGL: []SGE{piece(9, 0, 72*256-6)}, VA: 0x1000, Token: 2})
	e.queue(sends(2, 1))
	e.say("read request 100 8192@1000 ask", "read request 132 8192@3000 ask")
	e.quiet()
	data := make([]byte, 256)
	hear := func(op roce.Opcode, psn uint32, n int) {
		h := response(op, psn)
		e.qp.Handle(0, &h, data[:n])
	}
	hear(roce.ReadResponseFirst, 100, 256)
	for psn := uint32(101); psn < 131; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	e.quiet()
	hear(roce.ReadResponseLast, 131, 256)
	e.say("read request 164 2042@5000 ask", "send only 172 (1) ask")

	// The missing part of the second is asked for up to its old end.
	hear(roce.ReadResponseFirst, 132, 256)
	hear(roce.ReadResponseMiddle, 134, 256)
	e.say("read request 133 7936@3100 ask", "read request 164 2042@5000 ask", "send only 172 (1) ask")
	hear(roce.ReadResponseFirst, 133, 256)
	for psn := uint32(134); psn < 163; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	hear(roce.ReadResponseLast, 163, 256)
	hear(roce.ReadResponseFirst, 164, 256)
	for psn := uint32(165); psn < 171; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	hear(roce.ReadResponseLast, 171, 250)
	e.completed("read ok 1")
	hear(roce.Acknowledge, 172, 0)
	e.completed("send ok 2")
}

// TestReadDepth is NDK-RL-07: whatever is lost and asked for again, no more
// READs are on the wire than agreed, and so many are if they are wanted.
func TestReadDepth(t *testing.T) {
	for depth := 1; depth <= 4; depth++ {
		c := testConnection
		c.SendPSN, c.InitiatorDepth, c.ResponderResources, c.Credit = 0, depth, depth, 1<<20
		c.AckTimeout = 0
		p := newPair(t, testConfig, c, path{delay: time.Millisecond, jitter: 10 * time.Microsecond}, 1)
		p.a.memory.add(1, 64<<10)
		p.b.memory.add(2, 64<<10)
		ends := map[int64]bool{} // of every READ sent, even if the rest of it was asked for again
		most := 0
		p.a.out.drop = func(h *roce.Header) bool {
			ends[int64(h.PSN)+packets(int64(h.DMALength), c.MTU)] = true
			outstanding := 0
			for end := range ends {
				if end > p.a.qp.requester.queue.una {
					outstanding++
				}
			}
			most = max(most, outstanding)
			return p.a.out.random.Float64() < 0.1
		}
		p.b.out.loss = 0.05
		sizes := []int{1, 3000, 40 << 10} // the last is three READs on the wire
		for i := range 30 {
			p.a.post(Request{Op: OpRead, Context: i, SGL: []SGE{piece(1, 0, sizes[i%3])}, VA: 2 << 32, Token: 2})
		}
		p.await(t, p.a, 30, time.Minute)
		for i, done := range p.a.done {
			if done.Status != Success || done.Context != i {
				t.Errorf("depth %d: %v", depth, describe(done))
			}
		}
		if most != depth {
			t.Errorf("%d READs outstanding, %d agreed", most, depth)
		}
		if p.a.qp.Counters().Retransmitted == 0 {
			t.Error("nothing was asked for again")
		}
	}
}

// endless is memory in which everything is the same bytes.
type endless [4096]byte

func (m *endless) Local(dst [][]byte, sge SGE, _ Access) ([][]byte, bool) {
	return append(dst, m[:sge.Length]), true
}

func (m *endless) Remote(dst [][]byte, _ uint32, _ uint64, n uint32, _ Access) ([][]byte, bool) {
	return append(dst, m[:n]), true
}

func (m *endless) Invalidate(uint32) bool                           { return true }
func (m *endless) InvalidateLocal(uint32) bool                      { return true }
func (m *endless) Atomic(Op, uint32, uint64, uint64, uint64) uint64 { return 0 }

// TestOutstanding: however large the window, no more PSNs are in flight than
// can be told apart (roce.md 5).
func TestOutstanding(t *testing.T) {
	q := NewQP(Config{SendDepth: 1, MaxSGE: 1, Memory: new(endless), Receives: NewReceiveQueue(0, 0)})
	c := testConnection
	c.MTU, c.Credit = 256, 1<<50
	if err := q.Connect(c); err != nil {
		t.Fatal(err)
	}
	if err := q.Post(&Request{Op: OpSend, SGL: []SGE{{Length: MaxMessage}}}); err != nil {
		t.Fatal(err)
	}
	var p roce.Packet
	n := 0
	send := func() {
		q.requester.window.known, q.requester.window.rate = time.Second, 1<<50 // a path that holds more than all
		for q.Next(0, &p) {
			n++
		}
	}
	send()
	if n != 1<<22 {
		t.Errorf("%d packets in flight", n)
	}
	h := ack(roce.PSNAdd(c.SendPSN, n-1), roce.SyndromeACK)
	q.Handle(0, &h, nil)
	send()
	if n != 1<<23 {
		t.Errorf("%d packets sent", n)
	}
	h = ack(roce.PSNAdd(c.SendPSN, n-1), roce.SyndromeACK)
	q.Handle(0, &h, nil)
	if done := q.Completions(nil); len(done) != 1 || done[0].Status != Success {
		t.Errorf("completions %v", done)
	}
}

func TestSilent(t *testing.T) {
	e := newReady(t, nil)
	silent := func(context int) Request {
		r := sends(context, 1)
		r.Silent = true
		return r
	}
	e.queue(silent(1), sends(2, 1), silent(3), silent(4), silent(5))
	e.answers(0)
	e.hear(ack(102, roce.SyndromeACK))
	e.completed("send ok 2")
	e.hear(ack(103, roce.SyndromeRemoteAccess))
	e.completed("send remote-access 4", "send flushed 5")
}

// TestLocalProtection: a request whose memory cannot be read fails when it is
// the oldest, not before.
func TestLocalProtection(t *testing.T) {
	e := newReady(t, nil)
	bad := writes(2, 600)
	bad.SGL = []SGE{piece(1, 0, 300), piece(77, 0, 300)}
	e.queue(sends(1, 1), bad, sends(3, 1))
	e.say("send only 100 (1) ask", "write first 101 (256) 600@1000")
	e.quiet()
	e.completed()
	e.hear(ack(100, roce.SyndromeACK))
	e.completed("send ok 1", "write local-protection 2", "send flushed 3")
	if e.qp.State() != Error {
		t.Error("the connection lives on")
	}
	e.quiet()

	// Memory is looked up when it is sent, not when it is posted.
	e = newReady(t, nil)
	e.queue(sends(1, 1))
	delete(e.memory, 1)
	e.quiet()
	e.completed("send local-protection 1")
}

func TestInlineIsCopied(t *testing.T) {
	e := newReady(t, nil)
	data := []byte("before")
	e.queue(Request{Op: OpWrite, Inline: data, VA: 0, Token: 2})
	copy(data, "after!")
	e.qp.Next(0, &e.packet)
	if got := string(e.packet.Payload[0]); got != "before" {
		t.Errorf("sent %q", got)
	}
}

// TestTimeout is roce.md 6.4, with a timer of our own.
func TestTimeout(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.AckTimeout = 100 * time.Millisecond; c.RetryCount = 2 })
	e.queue(sends(1, 300), sends(2, 1))
	e.answers(0)
	at := func(want time.Duration) {
		t.Helper()
		if got, ok := e.qp.Deadline(); !ok || got != want {
			t.Fatalf("deadline %v, want %v", got, want)
		}
		e.qp.HandleTimeout(want - 1)
		e.at(want-1, "")
		e.qp.HandleTimeout(want)
	}
	at(firstTimeout)
	e.at(20*time.Millisecond, "write only 99 0@0 ask")
	at(60 * time.Millisecond)
	e.at(60*time.Millisecond, "write only 99 0@0 ask")
	at(140 * time.Millisecond)
	e.at(140*time.Millisecond, "write only 99 0@0 ask")
	at(240 * time.Millisecond) // no more than the AckTimeout
	e.at(240*time.Millisecond, "write only 99 0@0 ask")
	at(300 * time.Millisecond) // (2+1) x 100 ms
	e.completed("send retry-exceeded 1", "send flushed 2")
	if got := e.qp.Counters(); got.Timeouts != 4 || got.Retransmitted != 0 {
		t.Errorf("%+v", got)
	}
}

// TestIdleIsNotFailure: time without progress counts while something is
// outstanding only.
func TestIdleIsNotFailure(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1))
	e.answers(0)
	e.hear(ack(100, roce.SyndromeACK))
	e.queue(sends(2, 1))
	e.answers(time.Hour)
	e.qp.HandleTimeout(time.Hour + 20*time.Millisecond)
	e.completed("send ok 1")
}

// TestTimeoutTooShort: the path has become slower than the timer thinks.
// Nothing is sent again, and the timer learns as soon as what was sent after the probe
// is acknowledged.
func TestTimeoutTooShort(t *testing.T) {
	e := newReady(t, nil)
	e.qp.requester.timers.roundTrip.sample(time.Millisecond)
	e.queue(sends(1, 1), sends(2, 1), sends(3, 1))
	e.answers(0)
	e.qp.HandleTimeout(3 * time.Millisecond)
	e.at(3*time.Millisecond, "write only 99 0@0 ask")
	for psn := uint32(100); psn <= 102; psn++ {
		h := ack(psn, roce.SyndromeACK)
		e.qp.Handle(8*time.Millisecond, &h, nil)
	}
	e.completed("send ok 1", "send ok 2", "send ok 3")
	e.at(8*time.Millisecond, "")
	e.queue(sends(4, 1))
	e.answers(8 * time.Millisecond)
	if at, _ := e.qp.Deadline(); at != 14*time.Millisecond {
		t.Errorf("the next timeout is %v after sending, not twice what it was", at-8*time.Millisecond)
	}
	h := ack(103, roce.SyndromeACK)
	e.qp.Handle(16*time.Millisecond, &h, nil)
	e.queue(sends(5, 1))
	e.answers(16 * time.Millisecond)
	if at, _ := e.qp.Deadline(); at < 25*time.Millisecond {
		t.Errorf("the next timeout is %v after sending, on a path of 8 ms", at-16*time.Millisecond)
	}
}

// TestFlush is the flush of roce.md 8.
func TestFlush(t *testing.T) {
	for _, shared := range []bool{false, true} {
		config := testConfig
		config.SharedReceives = shared
		e := newEnd(t, config)
		e.memory.add(1, 4096)
		c := testConnection
		c.MTU, c.ReceivePSN = 256, 100
		if err := e.qp.Connect(c); err != nil {
			t.Fatal(err)
		}
		receiving(1000, 1, 1)(e)
		silent := sends(2, 1)
		silent.Silent = true
		e.queue(sends(1, 1), silent, reads(3, 1), writes(4, 1))
		e.answers(0)
		first := packet(roce.SendFirst, 100)
		e.qp.Handle(0, &first, make([]byte, 256))
		e.qp.Flush()
		want := []string{"send flushed 1", "send flushed 2", "read flushed 3", "write flushed 4", "receive flushed 0"}
		left := 2
		if !shared {
			want = append(want, "receive flushed 1", "receive flushed 2")
			left = 0
		}
		e.done = e.qp.Completions(nil)
		for _, c := range e.done {
			if !c.Solicited {
				t.Error("an error does not count as solicited")
			}
		}
		e.check(want...)
		if e.receives.Len() != left {
			t.Errorf("%d receives left", e.receives.Len())
		}
		e.quiet()
		if _, ok := e.qp.Deadline(); ok {
			t.Error("a deadline in Error")
		}
		if !shared { // receives posted later
			e.postReceive(Receive{Context: 5})
			e.qp.Flush()
			e.completed("receive flushed 5")
		}
	}
}

func TestFlushBeforeConnect(t *testing.T) {
	e := newEnd(t, testConfig)
	e.postReceive(Receive{Context: 5})
	e.quiet()
	h := packet(roce.SendOnly, 0)
	e.qp.Handle(0, &h, nil)
	e.qp.HandleTimeout(0)
	e.qp.Flush()
	e.completed("receive flushed 5")
	e.quiet()
}
