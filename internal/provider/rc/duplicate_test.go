package rc

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestWindow is roce.md 5: a PSN less than 2^23 ahead of the one expected is of a
// packet that is early, any other is of one that was there before, wherever in
// the circle of PSNs that is.
func TestWindow(t *testing.T) {
	for _, expected := range []uint32{0, 1, 100, 1<<23 - 1, 1 << 23, 1<<23 + 1, 0xFFFFFF} {
		for _, test := range []struct {
			ahead int
			early bool
		}{
			{1, true}, {128, true}, {1<<22 + 1, true}, {1<<23 - 1, true},
			{1 << 23, false}, {1<<23 + 1, false}, {-1, false}, {-128, false}, {-1<<23 + 1, false},
		} {
			e := newReady(t, func(c *Connection) { c.ReceivePSN = expected })
			before := bytes.Clone(e.memory[3].bytes)
			e.hear(write(roce.PSNAdd(expected, test.ahead)))
			want := fmt.Sprintf("ack %d msn 0", roce.PSNAdd(expected, -1))
			if test.early {
				want = fmt.Sprintf("nak60 %d msn 0", expected)
			}
			e.at(0, want)
			if !bytes.Equal(e.memory[3].bytes, before) {
				t.Errorf("expecting %d, a WRITE %d ahead was executed", expected, test.ahead)
			}
			// The same of a READ that nobody remembers.
			e.hear(readOf(roce.PSNAdd(expected, test.ahead), 0, 1))
			e.at(0, "")
			e.hear(write(expected))
			e.at(0, fmt.Sprintf("ack %d msn 1", expected))
		}
	}
}

// TestDuplicateBeforeRead: what is repeated is acknowledged without the READs that
// follow, which rxe would take for answered; what follows these is acknowledged
// with them.
func TestDuplicateBeforeRead(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.ReceivePSN = 0xFFFFFE })
	e.hear(write(0xFFFFFE))
	e.say("ack 16777214 msn 1")
	e.hear(readOf(0xFFFFFF, 0, 300))
	e.say("read response first 16777215 (256) msn 2", "read response last 0 (44) msn 2")
	e.hear(readOf(1, 0, 0))
	e.say("read response only 1 msn 3")
	e.hear(write(0xFFFFFE))
	e.say("ack 16777214 msn 3")
	e.hear(write(2))
	e.say("ack 2 msn 4")
	e.hear(write(0xFFFFFE))
	e.say("ack 2 msn 4")
}

// TestDuplicateReadAcrossTheWrap: a READ whose response has PSNs on both sides of
// the wrap, asked for again from each of them.
func TestDuplicateReadAcrossTheWrap(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.ReceivePSN = 0xFFFFFE })
	whole := []string{"read response first 16777214 (256) msn 1", "read response middle 16777215 (256)",
		"read response middle 0 (256)", "read response last 1 (256) msn 1"}
	e.hear(readOf(0xFFFFFE, 8, 1024))
	e.say(whole...)
	e.hear(write(2))
	e.say("ack 2 msn 2")
	for i, want := range []string{
		"read response first 16777214 (256) msn 1, read response middle 16777215 (256), read response middle 0 (256), read response last 1 (256) msn 1",
		"read response first 16777215 (256) msn 1, read response middle 0 (256), read response last 1 (256) msn 1",
		"read response first 0 (256) msn 1, read response last 1 (256) msn 1",
		"read response only 1 (256) msn 1",
	} {
		e.hear(readOf(roce.PSNAdd(0xFFFFFE, i), 8+256*uint64(i), 1024-256*uint32(i)))
		e.at(0, want)
	}
	// The peer gets only what it asks for: nothing is executed again behind it.
	e.hear(write(2))
	e.at(0, "ack 2 msn 2")
}

// TestReadAcrossTheWrap: a requester whose READ has responses on both sides of
// the wrap, each of them lost once.
func TestReadAcrossTheWrap(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.SendPSN = 0xFFFFFE })
	e.queue(reads(1, 1024), sends(2, 1))
	e.at(0, "read request 16777214 1024@1000 ask, send only 2 (1) ask")
	hear := func(op roce.Opcode, psn uint32) {
		h := response(op, psn)
		e.qp.Handle(0, &h, make([]byte, 256))
	}
	for i, want := range []string{
		"read request 16777214 1024@1000 ask, send only 2 (1) ask",
		"read request 16777215 768@1100 ask, send only 2 (1) ask",
		"read request 0 512@1200 ask, send only 2 (1) ask",
		"read request 1 256@1300 ask, send only 2 (1) ask",
	} {
		h := ack(2, roce.SyndromeACK) // behind the READ
		e.qp.Handle(0, &h, nil)
		e.at(0, want)
		op := roce.ReadResponseFirst
		if i == 3 {
			op = roce.ReadResponseOnly
		}
		hear(op, roce.PSNAdd(0xFFFFFE, i))
	}
	e.hear(ack(2, roce.SyndromeACK))
	e.completed("read ok 1", "send ok 2")
}

// TestNAKOfWhatWasAcknowledged: a NAK for a packet that the peer has acknowledged
// is from another time (roce.md 6.3, 1). Only a READ may be refused by a number
// that its responses have passed (7.3).
func TestNAKOfWhatWasAcknowledged(t *testing.T) {
	e := newReady(t, nil)
	e.queue(writes(1, 600), sends(2, 1))
	e.answers(0)
	e.hear(ack(101, roce.SyndromeACK))
	e.hear(ack(100, roce.SyndromeRemoteAccess), ack(101, roce.SyndromeInvalidRequest), ack(101, roce.SyndromeRemoteOperation))
	e.completed()
	e.hear(ack(103, roce.SyndromeACK))
	e.completed("write ok 1", "send ok 2")
}
