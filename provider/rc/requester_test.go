package rc

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/roce"
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

// TestResponses is roce.md 6.3 and 6.5: in each script requests are sent,
// responses come, all at one instant, and what is sent then is given.
func TestResponses(t *testing.T) {
	type script struct {
		name   string
		change func(*Connection)
		setup  func(e *end)
		post   []Request
		hear   []roce.Header
		bytes  []int // of the payloads of hear, missing ones 0
		sent   string
		done   []string
		failed bool
	}
	three := []Request{sends(1, 1), writes(2, 600), sends(3, 1)} // 100, 101 to 103, 104
	scripts := []script{
		{
			name: "1: ghosts",
			post: three,
			hear: []roce.Header{ack(99, roce.SyndromeACK), ack(105, roce.SyndromeACK), ack(99, roce.SyndromePSNSequence),
				ack(105, roce.SyndromePSNSequence), ack(99, roce.SyndromeRemoteAccess), ack(99, roce.SyndromeRNR), response(roce.ReadResponseOnly, 99)},
		},
		{name: "4: one ACK completes all before it", post: three, hear: []roce.Header{ack(104, roce.SyndromeACK)}, done: []string{"send ok 1", "write ok 2", "send ok 3"}},
		{name: "4: an ACK in the middle of a message", post: three, hear: []roce.Header{ack(102, roce.SyndromeACK)}, done: []string{"send ok 1"}},
		{name: "4: credits mean nothing", post: three, hear: []roce.Header{ack(100, 0x05)}, done: []string{"send ok 1"}},
		{name: "a reserved syndrome means nothing", post: three, hear: []roce.Header{ack(100, 0x40)}},
		{
			name: "8: sequence NAK",
			post: three,
			hear: []roce.Header{ack(102, roce.SyndromePSNSequence)},
			done: []string{"send ok 1"},
			sent: "write middle 102 (256), write last 103 (88) ask, send only 104 (1) ask",
		},
		{
			name: "8: goes back to one gap once",
			post: three,
			hear: []roce.Header{ack(102, roce.SyndromePSNSequence), ack(102, roce.SyndromePSNSequence), ack(101, roce.SyndromeACK)},
			done: []string{"send ok 1"},
			sent: "write middle 102 (256), write last 103 (88) ask, send only 104 (1) ask",
		},
		{
			name: "what was acknowledged after all is not sent again",
			post: three,
			hear: []roce.Header{ack(101, roce.SyndromePSNSequence), ack(103, roce.SyndromeACK)},
			done: []string{"send ok 1", "write ok 2"},
			sent: "send only 104 (1) ask",
		},
		{
			name:   "9: NAK invalid request",
			post:   three,
			hear:   []roce.Header{ack(102, roce.SyndromeInvalidRequest)},
			done:   []string{"send ok 1", "write remote-invalid 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "9: NAK remote access error",
			post:   three,
			hear:   []roce.Header{ack(101, roce.SyndromeRemoteAccess)},
			done:   []string{"send ok 1", "write remote-access 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "9: NAK remote operational error",
			post:   three,
			hear:   []roce.Header{ack(104, roce.SyndromeRemoteOperation)},
			done:   []string{"send ok 1", "write ok 2", "send remote-operation 3"},
			failed: true,
		},
		{
			name:   "9: a NAK that makes no sense",
			post:   three,
			hear:   []roce.Header{ack(100, 0x67)},
			done:   []string{"send bad-response 1", "write flushed 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "9: a READ whose responses will never come",
			post:   []Request{reads(1, 1), sends(2, 1), sends(3, 1)},
			hear:   []roce.Header{ack(101, roce.SyndromeInvalidRequest)},
			done:   []string{"read flushed 1", "send remote-invalid 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "9: a READ refused half-way, by the number of its request",
			post:   []Request{reads(1, 600)},
			hear:   []roce.Header{response(roce.ReadResponseFirst, 100), ack(100, roce.SyndromeRemoteAccess)},
			bytes:  []int{256},
			done:   []string{"read remote-access 1"},
			failed: true,
		},
		{
			name:  "5: READ",
			post:  []Request{sends(1, 1), reads(2, 600), sends(3, 1)},
			hear:  []roce.Header{response(roce.ReadResponseFirst, 101), response(roce.ReadResponseMiddle, 102), response(roce.ReadResponseLast, 103)},
			bytes: []int{256, 256, 88},
			done:  []string{"send ok 1", "read ok 2"},
		},
		{
			name: "5: empty READ",
			post: []Request{reads(2, 0)},
			hear: []roce.Header{response(roce.ReadResponseOnly, 100)},
			done: []string{"read ok 2"},
		},
		{
			name: "2: an ACK behind a READ says that responses were lost",
			post: []Request{reads(1, 300), sends(2, 1)},
			hear: []roce.Header{ack(102, roce.SyndromeACK), ack(102, roce.SyndromeACK)},
			sent: "read request 100 300@1000 ask, send only 102 (1) ask",
		},
		{
			name: "2: an ACK for a READ's own number says so too",
			post: []Request{sends(1, 1), reads(2, 300)},
			hear: []roce.Header{ack(102, roce.SyndromeACK)},
			done: []string{"send ok 1"},
			sent: "read request 101 300@1000 ask",
		},
		{
			name: "2: a sequence NAK behind a READ goes back to the READ",
			post: []Request{reads(1, 300), sends(2, 1)},
			hear: []roce.Header{ack(102, roce.SyndromePSNSequence)},
			sent: "read request 100 300@1000 ask, send only 102 (1) ask",
		},
		{
			name:  "3: a response out of order goes back to what is missing, once",
			post:  []Request{reads(1, 1024), sends(2, 1)},
			hear:  []roce.Header{response(roce.ReadResponseFirst, 100), response(roce.ReadResponseMiddle, 102), response(roce.ReadResponseLast, 103)},
			bytes: []int{256, 256, 256},
			sent:  "read request 101 768@1100 ask, send only 104 (1) ask",
		},
		{
			name: "6.5: the retry of a READ may be answered afresh",
			post: []Request{reads(1, 600)},
			hear: []roce.Header{response(roce.ReadResponseFirst, 100), response(roce.ReadResponseLast, 102),
				response(roce.ReadResponseFirst, 101), response(roce.ReadResponseLast, 102)},
			bytes: []int{256, 88, 256, 88},
			done:  []string{"read ok 1"},
		},
		{
			name: "6.5: or as if it went on, as Linux does",
			post: []Request{reads(1, 600)},
			hear: []roce.Header{response(roce.ReadResponseFirst, 100), response(roce.ReadResponseLast, 102),
				response(roce.ReadResponseMiddle, 101), response(roce.ReadResponseLast, 102)},
			bytes: []int{256, 88, 256, 88},
			done:  []string{"read ok 1"},
		},
		{
			name: "6.5: one packet of a READ left",
			post: []Request{reads(1, 600), sends(2, 1)},
			hear: []roce.Header{response(roce.ReadResponseFirst, 100), response(roce.ReadResponseMiddle, 101), ack(103, roce.SyndromeACK),
				response(roce.ReadResponseOnly, 102)},
			bytes: []int{256, 256, 0, 88},
			done:  []string{"read ok 1"},
			sent:  "send only 103 (1) ask",
		},
		{
			name:   "10: READ response to a SEND",
			post:   three,
			hear:   []roce.Header{response(roce.ReadResponseOnly, 100)},
			bytes:  []int{1},
			done:   []string{"send bad-response 1", "write flushed 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "10: Middle where First belongs",
			post:   []Request{reads(1, 600)},
			hear:   []roce.Header{response(roce.ReadResponseMiddle, 100)},
			bytes:  []int{256},
			done:   []string{"read bad-response 1"},
			failed: true,
		},
		{
			name:   "10: Last before the end",
			post:   []Request{reads(1, 600)},
			hear:   []roce.Header{response(roce.ReadResponseFirst, 100), response(roce.ReadResponseLast, 101)},
			bytes:  []int{256, 256},
			done:   []string{"read bad-response 1"},
			failed: true,
		},
		{
			name:   "10: READ response of the wrong length",
			post:   []Request{reads(1, 600)},
			hear:   []roce.Header{response(roce.ReadResponseFirst, 100)},
			bytes:  []int{252},
			done:   []string{"read bad-response 1"},
			failed: true,
		},
		{
			name:   "10: atomic response",
			post:   three,
			hear:   []roce.Header{response(roce.AtomicAcknowledge, 100)},
			done:   []string{"send bad-response 1", "write flushed 2", "send flushed 3"},
			failed: true,
		},
		{
			name:   "READ into memory that may not be written",
			setup:  func(e *end) { e.memory[1].deny[ReadSink] = true },
			post:   []Request{sends(1, 1), reads(2, 4)},
			hear:   []roce.Header{response(roce.ReadResponseOnly, 101)},
			bytes:  []int{4},
			done:   []string{"send ok 1", "read local-protection 2"},
			failed: true,
		},
		{
			name: "PSN wraps",
			change: func(c *Connection) {
				c.SendPSN = 0xFFFFFE
			},
			post: []Request{writes(1, 1024), sends(2, 1)},
			hear: []roce.Header{ack(0xFFFFFF, roce.SyndromePSNSequence), ack(1, roce.SyndromeACK)},
			done: []string{"write ok 1"},
			sent: "send only 2 (1) ask",
		},
	}
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			e := newReady(t, s.change)
			if s.setup != nil {
				s.setup(e)
			}
			e.queue(s.post...)
			e.answers(0)
			for i := range s.hear {
				var payload []byte
				if i < len(s.bytes) {
					payload = make([]byte, s.bytes[i])
				}
				e.qp.Handle(time.Microsecond, &s.hear[i], payload)
			}
			e.at(time.Microsecond, s.sent)
			e.completed(s.done...)
			if failed := e.qp.State() == Error; failed != s.failed {
				t.Errorf("state %v", e.qp.State())
			}
			if _, ok := e.qp.Deadline(); ok && (s.failed || len(s.done) == len(s.post)) {
				t.Error("a deadline with nothing outstanding")
			}
		})
	}
}

// TestReadsAreSplit: READs on the wire have 16 packets at most and never more
// of them are outstanding than agreed.
func TestReadsAreSplit(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 2; c.Credit = 1 << 20 })
	e.memory.add(9, 1<<20)
	e.queue(Request{Op: OpRead, Context: 1, SGL: []SGE{piece(9, 0, 40*256-6)}, VA: 0x1000, Token: 2})
	e.queue(sends(2, 1))
	e.say("read request 100 4096@1000 ask", "read request 116 4096@2000 ask")
	e.quiet()
	data := make([]byte, 256)
	hear := func(op roce.Opcode, psn uint32, n int) {
		h := response(op, psn)
		e.qp.Handle(0, &h, data[:n])
	}
	hear(roce.ReadResponseFirst, 100, 256)
	for psn := uint32(101); psn < 115; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	e.quiet()
	hear(roce.ReadResponseLast, 115, 256)
	e.say("read request 132 2042@3000 ask", "send only 140 (1) ask")

	// What is missing of the second is asked for up to its old end.
	hear(roce.ReadResponseFirst, 116, 256)
	hear(roce.ReadResponseMiddle, 118, 256)
	e.say("read request 117 3840@2100 ask", "read request 132 2042@3000 ask", "send only 140 (1) ask")
	hear(roce.ReadResponseFirst, 117, 256)
	for psn := uint32(118); psn < 131; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	hear(roce.ReadResponseLast, 131, 256)
	hear(roce.ReadResponseFirst, 132, 256)
	for psn := uint32(133); psn < 139; psn++ {
		hear(roce.ReadResponseMiddle, psn, 256)
	}
	hear(roce.ReadResponseLast, 139, 250)
	e.completed("read ok 1")
	hear(roce.Acknowledge, 140, 0)
	e.completed("send ok 2")
}

// endless is memory in which everything is the same bytes.
type endless [4096]byte

func (m *endless) Local(dst [][]byte, sge SGE, _ Access) ([][]byte, bool) {
	return append(dst, m[:sge.Length]), true
}

func (m *endless) Remote(dst [][]byte, _ uint32, _ uint64, n uint32, _ Access) ([][]byte, bool) {
	return append(dst, m[:n]), true
}

func (m *endless) Invalidate(uint32) bool { return true }

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
	for q.Next(0, &p) {
		n++
	}
	if n != 1<<22 {
		t.Errorf("%d packets in flight", n)
	}
	h := ack(roce.PSNAdd(c.SendPSN, n-1), roce.SyndromeACK)
	q.Handle(0, &h, nil)
	for q.Next(0, &p) {
		n++
	}
	if n != 1<<23 {
		t.Errorf("%d packets sent", n)
	}
	h = ack(roce.PSNAdd(c.SendPSN, n-1), roce.SyndromeACK)
	q.Handle(0, &h, nil)
	if done := q.Completions(nil); len(done) != 1 || done[0].Status != Success {
		t.Errorf("completions %v", done)
	}
}

// TestFence is roce.md 6.2.
func TestFence(t *testing.T) {
	e := newReady(t, nil)
	fenced := sends(3, 1)
	fenced.Fence = true
	e.queue(sends(1, 1), reads(2, 1), fenced, sends(4, 1))
	e.say("send only 100 (1) ask", "read request 101 1@1000 ask")
	e.hear(ack(100, roce.SyndromeACK))
	e.quiet()
	h := response(roce.ReadResponseOnly, 101)
	e.qp.Handle(0, &h, []byte{1})
	e.say("send only 102 (1) ask", "send only 103 (1) ask")
	// Earlier SENDs do not hold it.
	fenced.Context = 5
	e.queue(fenced)
	e.say("send only 104 (1) ask")
	e.quiet()
	e.hear(ack(104, roce.SyndromeACK))
	e.completed("send ok 1", "read ok 2", "send ok 3", "send ok 4", "send ok 5")
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

// TestNotReady is roce.md 6.3, 7.
func TestNotReady(t *testing.T) {
	const wait = 640 * time.Microsecond // of code 12
	rnr := ack(101, roce.SyndromeRNR|12)
	e := newReady(t, func(c *Connection) { c.RNRRetryCount = 2 })
	e.queue(sends(1, 1), sends(2, 300), sends(3, 1))
	e.answers(0)
	e.qp.Handle(10, &rnr, nil)
	e.completed("send ok 1")
	// One NAK more, as Linux sends, and one RNR NAK twice change nothing.
	nak := ack(101, roce.SyndromePSNSequence)
	e.qp.Handle(20, &nak, nil)
	e.qp.Handle(30, &rnr, nil)
	e.at(10+wait-1, "")
	if at, ok := e.qp.Deadline(); !ok || at != 10+wait {
		t.Errorf("deadline %v, want %v", at, 10+wait)
	}
	e.qp.HandleTimeout(10 + wait)
	// One packet goes first.
	e.at(10+wait, "send first 101 (256) ask")
	e.qp.Handle(11+wait, &rnr, nil)
	e.qp.HandleTimeout(11 + 2*wait)
	e.at(11+2*wait, "send first 101 (256) ask")
	// Progress makes the count start anew.
	ok := ack(101, roce.SyndromeACK)
	e.qp.Handle(12+2*wait, &ok, nil)
	e.at(12+2*wait, "send last 102 (44) ask, send only 103 (1) ask")
	rnr.PSN = 103
	now := 13 + 2*wait
	for range 2 {
		e.qp.Handle(now, &rnr, nil)
		now += wait
		e.qp.HandleTimeout(now)
		e.at(now, "send only 103 (1) ask")
	}
	e.completed("send ok 2")
	e.qp.Handle(now, &rnr, nil)
	e.completed("send rnr-retry-exceeded 3")
	if got := e.qp.Counters().RNRsReceived; got != 6 {
		t.Errorf("counted %d RNR NAKs", got)
	}
}

// TestReadyAfterAll: an acknowledgement ends the wait.
func TestReadyAfterAll(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1), sends(2, 1))
	e.answers(0)
	e.hear(ack(100, roce.SyndromeRNR|12))
	e.quiet()
	e.hear(ack(100, roce.SyndromeACK))
	e.say("send only 101 (1) ask")
}

func TestNotReadyForEver(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.RNRRetryCount = 7; c.AckTimeout = time.Millisecond; c.RetryCount = 0 })
	e.queue(sends(1, 1))
	e.answers(0)
	now := time.Duration(0)
	for range 1000 {
		rnr := ack(100, roce.SyndromeRNR|16)
		e.qp.Handle(now, &rnr, nil)
		now += roce.RNRTimer(16)
		e.qp.HandleTimeout(now)
		e.at(now, "send only 100 (1) ask")
		e.qp.HandleTimeout(now)
	}
	e.completed()
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
	e.at(20*time.Millisecond, "send first 100 (256) ask")
	at(60 * time.Millisecond)
	e.at(60*time.Millisecond, "send first 100 (256) ask")
	at(140 * time.Millisecond)
	e.at(140*time.Millisecond, "send first 100 (256) ask")
	at(240 * time.Millisecond) // no more than the AckTimeout
	e.at(240*time.Millisecond, "send first 100 (256) ask")
	at(300 * time.Millisecond) // (2+1) x 100 ms
	e.completed("send retry-exceeded 1", "send flushed 2")
	if got := e.qp.Counters(); got.Timeouts != 4 || got.Retransmitted != 4 {
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

// TestGoBackOnce: NAKs of one gap make the cursor go back once.
func TestGoBackOnce(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1), sends(2, 1))
	e.answers(0)
	e.hear(ack(100, roce.SyndromePSNSequence))
	e.at(0, "send only 100 (1) ask, send only 101 (1) ask")
	e.hear(ack(100, roce.SyndromePSNSequence))
	e.at(0, "")
	e.hear(ack(101, roce.SyndromePSNSequence)) // another gap
	e.at(0, "send only 101 (1) ask")
}

// TestGoBackAcrossSGLs: two requests, cut differently, the cursor at the same
// offset in the one when it goes back to that offset in the other.
func TestGoBackAcrossSGLs(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 3 * (256 + PacketOverhead) })
	e.queue(Request{Op: OpSend, SGL: []SGE{piece(1, 0, 300), piece(2, 0, 212)}})
	e.queue(Request{Op: OpSend, SGL: []SGE{piece(3, 0, 10), piece(4, 0, 502)}})
	e.say("send first 100 (256)", "send last 101 (256) ask", "send first 102 (256) ask")
	e.hear(ack(101, roce.SyndromePSNSequence))
	e.say("send last 101 (256) ask")
	want := append(bytes.Clone(e.memory[1].bytes[256:300]), e.memory[2].bytes[:212]...)
	if got := bytes.Join(e.packet.Payload, nil); !bytes.Equal(got, want) {
		t.Error("wrong bytes")
	}
}

// TestReadAnsweredAfterGoingBack: a response that comes after all does not make
// room for another READ, since none was asked for again.
func TestReadAnsweredAfterGoingBack(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 1 })
	e.queue(reads(1, 1), reads(2, 1), reads(3, 1))
	e.say("read request 100 1@1000 ask")
	e.quiet()
	e.qp.HandleTimeout(firstTimeout)
	h := response(roce.ReadResponseOnly, 100)
	e.qp.Handle(firstTimeout, &h, []byte{1})
	e.at(firstTimeout, "read request 101 1@1000 ask")
}

// TestReadsFitTheReceiveBuffer: a READ on the wire asks for no more than Credit,
// and the least window is two packets.
func TestReadsFitTheReceiveBuffer(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 5*(256+PacketOverhead) + 1 })
	e.queue(reads(1, 4096))
	e.say("read request 100 1280@1000 ask")
	e.quiet()
	e = newReady(t, func(c *Connection) { c.Credit = 0 })
	e.queue(sends(1, 4096))
	e.say("send first 100 (256)", "send middle 101 (256) ask")
}

// TestTimeoutTooShort: the path has become slower than the timer thinks.
// Nothing but the oldest packet is sent again, and the timer learns.
func TestTimeoutTooShort(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitialRTT = time.Millisecond })
	e.queue(sends(1, 1), sends(2, 1), sends(3, 1))
	e.answers(0)
	e.qp.HandleTimeout(3 * time.Millisecond)
	e.at(3*time.Millisecond, "send only 100 (1) ask")
	for psn := uint32(100); psn <= 102; psn++ {
		h := ack(psn, roce.SyndromeACK)
		e.qp.Handle(8*time.Millisecond, &h, nil)
	}
	e.completed("send ok 1", "send ok 2", "send ok 3")
	e.at(8*time.Millisecond, "")
	e.queue(sends(4, 1))
	e.answers(8 * time.Millisecond)
	if at, _ := e.qp.Deadline(); at < 16*time.Millisecond {
		t.Errorf("the next timeout is %v after sending, on a path of 8 ms", at-8*time.Millisecond)
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
