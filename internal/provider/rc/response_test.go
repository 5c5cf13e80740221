package rc

import (
	"bytes"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

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
			name: "2: an RNR NAK behind a READ goes back to the READ, at once",
			post: []Request{reads(1, 300), sends(2, 1)},
			hear: []roce.Header{ack(102, roce.SyndromeRNR|12)},
			sent: "read request 100 300@1000 ask, send only 102 (1) ask",
		},
		{
			name: "packets of other classes mean nothing",
			post: three,
			hear: []roce.Header{{Opcode: roce.UDSendOnly, PSN: 100}, {Opcode: 0x81, PSN: 100}},
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

// TestLateWait: a timer that runs much too late ends the wait, not the connection.
func TestLateWait(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1))
	e.answers(0)
	e.hear(ack(100, roce.SyndromeRNR|12))
	e.qp.HandleTimeout(time.Hour)
	e.at(time.Hour, "send only 100 (1) ask")
	e.completed()
}

// TestTimeoutAfterTheEnd: there is nothing to give up on a connection that has
// ended.
func TestTimeoutAfterTheEnd(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1))
	e.answers(0)
	e.qp.Flush()
	e.completed("send flushed 1")
	e.qp.HandleTimeout(time.Hour)
	e.completed()
	if got := e.qp.Counters().Timeouts; got != 0 {
		t.Errorf("%d timeouts", got)
	}
}

// TestResponseCounters: each response counts as what it is.
func TestResponseCounters(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1), sends(2, 1), sends(3, 1))
	e.answers(0)
	e.hear(ack(100, roce.SyndromeACK), ack(101, roce.SyndromePSNSequence), ack(101, roce.SyndromeRNR|12))
	got := e.qp.Counters()
	want := Counters{Received: 3, Sent: 3, AcknowledgementsReceived: 1, NAKsReceived: 1, RNRsReceived: 1}
	if got != want {
		t.Errorf("counted %+v, want %+v", got, want)
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

// TestReadsFitTheReceiveBuffer: a READ on the wire asks for no more than half of Credit,
// and the least window is a packet.
func TestReadsFitTheReceiveBuffer(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 5*(256+PacketOverhead) + 1 })
	e.queue(reads(1, 4096))
	e.say("read request 100 512@1000 ask", "read request 102 512@1200 ask")
	e.quiet()
	e = newReady(t, func(c *Connection) { c.Credit = 1 })
	e.queue(sends(1, 4096))
	e.say("send first 100 (256) ask")
	e.quiet()
}

// TestSpuriousReads: a READ that was asked for again and answered twice had not been lost. A
// response of several packets counts once.
func TestSpuriousReads(t *testing.T) {
	e := newReady(t, nil)
	answer := func(now time.Duration, psn uint32) {
		for i, op := range []roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.ReadResponseLast} {
			h := response(op, psn+uint32(i))
			e.qp.Handle(now, &h, make([]byte, 256))
		}
	}
	counted := func(retransmitted, spurious uint64) {
		t.Helper()
		if got := e.qp.Counters(); got.Retransmitted != retransmitted || got.Spurious != spurious {
			t.Errorf("%d sent again, %d of those for nothing, want %d and %d", got.Retransmitted, got.Spurious, retransmitted, spurious)
		}
	}
	const both = "read request 100 768@1000 ask, read request 103 768@1000 ask"
	e.queue(reads(1, 768), reads(2, 768))
	e.at(0, both)
	e.qp.HandleTimeout(firstTimeout)
	e.at(firstTimeout, "write only 99 0@0 ask")
	h := ack(99, roce.SyndromeACK) // which has overtaken the responses
	e.qp.Handle(firstTimeout, &h, nil)
	e.at(firstTimeout, both)
	answer(firstTimeout, 100)
	answer(firstTimeout, 103)
	counted(2, 0)
	answer(firstTimeout, 100)
	counted(2, 1)
	answer(firstTimeout, 103)
	counted(2, 2)
	e.completed("read ok 1", "read ok 2")
}
