package rc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// hear has packets arrive; those of WRITEs carry as much as they announce.
func (e *end) hear(packets ...roce.Header) {
	for i := range packets {
		n := uint32(0)
		if packets[i].Opcode == roce.WriteOnly {
			n = packets[i].DMALength
		}
		e.qp.Handle(0, &packets[i], make([]byte, n))
	}
}

// say expects the next answer, or, given several, all that there are.
func (e *end) say(want ...string) {
	e.t.Helper()
	for _, w := range want {
		if !e.qp.Next(0, &e.packet) {
			e.t.Fatalf("silent, want %q", w)
		}
		if got := describePacket(&e.packet); got != w {
			e.t.Fatalf("answered %q, want %q", got, w)
		}
	}
	if len(want) != 1 {
		e.quiet()
	}
}

func (e *end) quiet() {
	e.t.Helper()
	if rest := e.answers(0); rest != "" {
		e.t.Fatalf("answered %q, want nothing more", rest)
	}
}

func write(psn uint32) roce.Header { return to(packet(roce.WriteOnly, psn), 3, 0, 1) }

func readOf(psn uint32, offset uint64, n uint32) roce.Header {
	return to(packet(roce.ReadRequest, psn), 2, offset, n)
}

// TestReportThatIsMoot: an early packet is reported, unless it has had its turn before. The
// response to a READ acknowledges it then, and nothing else is left to say.
func TestReportThatIsMoot(t *testing.T) {
	e := newReady(t, selectively)
	e.hear(readOf(101, 0, 1), readOf(100, 0, 1), readOf(102, 0, 1))
	e.say("read response only 100 (1) msn 1", "read response only 101 (1) msn 2", "read response only 102 (1) msn 3")
	e.quiet()
	e.queue(sends(1, 1)) // which a report that is moot does not hold up
	e.hear(readOf(104, 0, 1), readOf(103, 0, 1), readOf(105, 0, 1))
	e.say("read response only 103 (1) msn 4", "read response only 104 (1) msn 5", "read response only 105 (1) msn 6", "send only 100 (1) ask")
	e.quiet()
}

func TestAcknowledgementsCoalesce(t *testing.T) {
	e := newReady(t, nil)
	e.hear(write(100), write(101), write(102))
	e.say("ack 102 msn 3")
	e.quiet()
	if got := e.qp.Counters().AcknowledgementsSent; got != 1 {
		t.Errorf("counted %d", got)
	}
}

func TestRepliesLeaveInOrderOfRequests(t *testing.T) {
	e := newReady(t, nil)
	// The first ACK is implied by the response behind it; the last waits.
	e.hear(write(100), readOf(101, 0, 300), write(103))
	e.say("read response first 101 (256) msn 2", "read response last 102 (44) msn 2", "ack 103 msn 3")

	// So does a NAK.
	e.hear(readOf(104, 0, 1), write(107))
	e.say("read response only 104 (1) msn 4", "nak60 105 msn 4")

	// Responses are acknowledgement enough.
	e.hear(write(105), readOf(106, 0, 1))
	e.say("read response only 106 (1) msn 6")
	e.quiet()

	// And even the NAK that ends the connection waits.
	e.hear(readOf(107, 0, 1), to(packet(roce.WriteOnly, 108), 77, 0, 1))
	if e.qp.State() != Error {
		t.Fatal("a fatal NAK does not end the connection")
	}
	e.say("read response only 107 (1) msn 7", "nak62 108 msn 7")
}

func TestNAKWhenTheGapCloses(t *testing.T) {
	e := newReady(t, nil)
	// The packet behind the gap was refused, which the peer does not know: it is asked for.
	e.hear(write(101), write(100))
	e.say("nak60 101 msn 1")
	e.quiet()
	// If it has come again meanwhile, nothing is missing.
	e.hear(write(102), write(101), write(102))
	e.say("ack 102 msn 3")
	e.quiet()
}

// A packet that was executed before a gap is acknowledged when that closes, though the rest does not ask for it.
func TestAcknowledgedThoughTheGapCloses(t *testing.T) {
	e := newReady(t, nil)
	quiet := func(psn uint32) roce.Header {
		h := write(psn)
		h.AckReq = false
		return h
	}
	e.hear(write(100), quiet(102), quiet(101))
	e.say("nak60 102 msn 2")
	e.quiet()
	e.hear(write(102), quiet(104), quiet(103), quiet(104))
	e.say("ack 104 msn 5")
	e.quiet()
}

func TestDuplicateLeavesNAK(t *testing.T) {
	e := newReady(t, nil)
	e.hear(write(100))
	e.say("ack 100 msn 1")
	// A duplicate does not turn a NAK into an ACK.
	e.hear(write(102), write(100))
	e.say("nak60 101 msn 1", "ack 100 msn 1")
	e.quiet()
}

func TestTokenInvalidatedDuringRead(t *testing.T) {
	e := newReady(t, nil)
	e.postReceive(Receive{Context: 1})
	e.hear(readOf(100, 0, 600), readOf(103, 0, 1))
	e.say("read response first 100 (256) msn 1")
	delete(e.memory, 2)
	e.say("nak62 100 msn 2")
	e.quiet()
	e.done = e.qp.Completions(nil)
	e.check("receive flushed 1")
	if e.qp.State() != Error {
		t.Error("the connection lives on")
	}
}

func TestMoreReadsThanAgreed(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.ResponderResources = 2 })
	e.hear(readOf(100, 0, 1), readOf(101, 1, 1), readOf(102, 2, 1))
	e.say("read response only 100 (1) msn 1", "read response only 101 (1) msn 2", "nak61 102 msn 2")
}

func TestRepeatedReadGoesBack(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.ResponderResources = 2 })
	e.hear(readOf(100, 0, 600), readOf(103, 0, 600))
	e.say("read response first 100 (256) msn 1", "read response middle 101 (256)", "read response last 102 (88) msn 1",
		"read response first 103 (256) msn 2", "read response middle 104 (256)", "read response last 105 (88) msn 2")

	// The first READ again from its second packet; the second keeps its place.
	e.hear(readOf(101, 256, 344), write(106))
	e.say("read response first 101 (256) msn 1")
	// Once more, now all of it, and the end of the second READ.
	e.hear(readOf(100, 0, 600), readOf(105, 512, 88))
	e.say("read response first 100 (256) msn 1", "read response middle 101 (256)", "read response last 102 (88) msn 1",
		"read response only 105 (88) msn 2", "ack 106 msn 3")

	// A repeated READ does not count against a peer that has both responses
	// and asks for more.
	e.hear(readOf(100, 0, 600), readOf(103, 0, 600), readOf(107, 0, 1))
	e.say("read response first 103 (256) msn 2", "read response middle 104 (256)", "read response last 105 (88) msn 2",
		"read response only 107 (1) msn 4")
	e.hear(readOf(107, 0, 1), readOf(108, 0, 1), readOf(109, 0, 1))
	e.say("read response only 108 (1) msn 5", "read response only 109 (1) msn 6")
}

func TestFlushAfterAnErrorKeepsTheLastWord(t *testing.T) {
	e := newReady(t, nil)
	e.hear(to(packet(roce.WriteOnly, 100), 77, 0, 1))
	e.qp.Flush()
	e.say("nak62 100 msn 0")
	e.quiet()
}

// TestTurns: neither responses nor requests starve the other, and an
// acknowledgement waits for neither.
func TestTurns(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 1 << 20 })
	e.memory.add(2, 100*256)
	for i := range 48 {
		e.queue(sends(i, 1))
	}
	e.hear(readOf(100, 0, 40*256))
	var kinds string
	for e.qp.Next(0, &e.packet) {
		if e.packet.Header.Opcode.IsRequest() {
			kinds += "q"
		} else {
			kinds += "r"
		}
	}
	r, q := strings.Repeat("r", 16), strings.Repeat("q", 16)
	if want := r + q + r + q + r[:8] + q; kinds != want {
		t.Errorf("\n got %s\nwant %s", kinds, want)
	}

	e = newReady(t, nil)
	for i := range 40 {
		e.queue(sends(i, 1))
	}
	for i := range uint32(40) {
		e.hear(write(100 + i))
		e.say(fmt.Sprintf("ack %d msn %d", 100+i, i+1))
		e.qp.Next(0, &e.packet)
	}
}

func TestFlushIsSilent(t *testing.T) {
	e := newReady(t, nil)
	e.hear(readOf(100, 0, 600), write(103))
	e.qp.Flush()
	e.quiet()
	e.hear(write(104))
	e.quiet()
}

// TestReplyCounters: each refusal counts as what it is.
func TestReplyCounters(t *testing.T) {
	e := newReady(t, nil)
	e.hear(roce.Header{Opcode: roce.SendOnly, PSN: 103})
	e.answers(0)
	e.hear(roce.Header{Opcode: roce.SendOnly, PSN: 100, AckReq: true}) // without a receive
	e.answers(0)
	e.hear(roce.Header{Opcode: roce.SendMiddle, PSN: 100})
	e.answers(0)
	got := e.qp.Counters()
	want := Counters{Received: 3, Sent: 3, OutOfSequence: 1, NAKsSent: 1, RNRsSent: 1}
	if got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestModifyReads: how many READs may wait for their answers changes, and those that wait, or may be asked for again, stay.
func TestModifyReads(t *testing.T) {
	answer := func(at, msn int) string { return fmt.Sprintf("read response only %d (1) msn %d", at, msn) }
	e := newReady(t, func(c *Connection) { c.ResponderResources = 2 })
	e.hear(readOf(100, 0, 1))
	e.say(answer(100, 1))
	e.hear(readOf(101, 0, 1), readOf(102, 0, 1))
	e.qp.Modify(Modification{Reads: &Reads{4, 5}})
	e.hear(readOf(103, 0, 1), readOf(104, 0, 1), readOf(105, 0, 1))
	e.say(answer(101, 2), answer(102, 3), answer(103, 4), answer(104, 5), answer(105, 6))
	e.hear(readOf(101, 0, 1))
	e.say(answer(101, 2))

	e.hear(readOf(106, 0, 1), readOf(107, 0, 1), readOf(108, 0, 1))
	e.qp.Modify(Modification{Reads: &Reads{4, 2}})
	e.say(answer(106, 7), answer(107, 8), answer(108, 9))
	e.hear(readOf(107, 0, 1))
	e.say(answer(107, 8))
	e.hear(readOf(109, 0, 1), readOf(110, 0, 1), readOf(111, 0, 1))
	if e.qp.State() != Error {
		t.Error("a READ too many does not end the connection")
	}
	e.say(answer(109, 10), answer(110, 11), "nak61 111 msn 11")

	e = newReady(t, nil)
	e.hear(readOf(100, 0, 1))
	e.qp.Modify(Modification{Reads: &Reads{0, 0}})
	e.say(answer(100, 1))
	e.qp.Modify(Modification{Reads: &Reads{0, 1}})
	e.hear(readOf(101, 0, 1))
	e.say(answer(101, 2))
}

// TestFewerReads: a requester that had more READs outstanding sends no further one before there are fewer.
func TestFewerReads(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 3 })
	for range 5 {
		e.queue(Request{Op: OpRead, SGL: []SGE{{Address: 1 << 32, Length: 1, Token: 1}}, VA: 2 << 32, Token: 2})
	}
	requests := func() (n int) {
		for e.qp.Next(0, &e.packet) {
			n++
		}
		return n
	}
	if n := requests(); n != 3 {
		t.Fatalf("%d requests, want 3", n)
	}
	e.qp.Modify(Modification{Reads: &Reads{1, 4}})
	if n := requests(); n != 0 {
		t.Errorf("%d more requests, want none", n)
	}
}
