package rc

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestNoCredits: we count no receives for the peer, and say so (roce.md 2.3).
func TestNoCredits(t *testing.T) {
	e := newReady(t, nil)
	e.hear(write(100), readOf(101, 0, 600))
	e.hear(write(104))
	n := 0
	for e.qp.Next(0, &e.packet) {
		h := &e.packet.Header
		if h.Opcode.HasAETH() {
			n++
			if h.Syndrome != 0x1F {
				t.Errorf("%v with syndrome %#x", h.Opcode, uint8(h.Syndrome))
			}
		}
		if h.AckReq || h.Solicited { // 7.2
			t.Errorf("%v asks for something", h.Opcode)
		}
	}
	if n != 3 { // the first ACK is implied
		t.Errorf("%d packets with an AETH", n)
	}
}

// TestNeverAsked: a peer that asks for no acknowledgement gets none, until it
// sends something again (roce.md 7.2, 7.4). It is then told all at once.
func TestNeverAsked(t *testing.T) {
	e := newReady(t, nil)
	for psn := uint32(100); psn < 400; psn++ {
		h := write(psn)
		h.AckReq = false
		e.hear(h)
	}
	e.quiet()
	h := write(100)
	h.AckReq = false
	e.hear(h)
	e.say("ack 399 msn 300")
	e.quiet()
}

// TestHeldAcknowledgement: what the consumer answers goes before the acknowledgement, unless
// the peer may refuse it; what has nothing to do with it does in any case.
func TestHeldAcknowledgement(t *testing.T) {
	for _, test := range []struct {
		name   string
		hears  roce.Header
		answer Request
		want   []string
	}{
		{"a SEND", packet(roce.SendOnly, 100), sends(1, 1), []string{"send only 100 (1) ask"}},
		{"a READ", packet(roce.SendOnly, 100), reads(1, 1), []string{"ack 100 msn 1", "read request 100 1@1000 ask"}},
		{"a WRITE", packet(roce.SendOnly, 100), writes(1, 1), []string{"ack 100 msn 1", "write only 100 (1) 1@1000 ask"}},
		{"a READ that answers nothing", write(100), reads(1, 1), []string{"read request 100 1@1000 ask"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newReady(t, nil)
			receiving(10)(e)
			e.hear(test.hears)
			e.qp.HoldAcknowledgement(true)
			e.queue(test.answer)
			e.say(test.want...)
			e.quiet()
			e.qp.HoldAcknowledgement(false)
			if len(test.want) == 1 {
				e.say("ack 100 msn 1")
			}
			e.quiet()
			// Once told, what comes next is a matter of its own.
			next := write(101)
			if test.hears.Opcode == roce.WriteOnly {
				return
			}
			e.hear(next)
			e.qp.HoldAcknowledgement(true)
			e.queue(reads(2, 1))
			if sent := e.answers(0); !strings.HasPrefix(sent, "read") {
				t.Errorf("said %s, want the READ alone", sent)
			}
		})
	}
}

// TestLastWord: what was executed before the end, and its acknowledgement put off, the
// peer is told all the same.
func TestLastWord(t *testing.T) {
	for name, end := range map[string]func(e *end){
		"our error": func(e *end) {
			e.hear(ack(100, roce.SyndromeRemoteAccess))
			e.completed("send remote-access 1")
		},
		"flush": func(e *end) {
			e.qp.Flush()
			e.completed("send flushed 1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newReady(t, nil)
			e.queue(sends(1, 1))
			e.answers(0)
			e.hear(write(100))
			e.qp.HoldAcknowledgement(true)
			e.quiet()
			end(e)
			e.say("ack 100 msn 1")
			e.quiet()
		})
	}
	t.Run("a request that cannot be carried out", func(t *testing.T) {
		e := newReady(t, nil)
		e.hear(write(100))
		e.qp.HoldAcknowledgement(true)
		e.quiet()
		answer := sends(1, 1)
		answer.SGL[0].Token = 99
		e.queue(answer)
		e.say("ack 100 msn 1")
		e.quiet()
		e.completed("send local-protection 1")
	})
	t.Run("what was refused is not told", func(t *testing.T) {
		e := newReady(t, nil)
		e.hear(write(102))
		e.qp.Flush()
		e.quiet()
	})
}

// TestNoWordAfterOurError: when it is a request of our own that ends the
// connection, READs that wait are answered no more (roce.md 8).
func TestNoWordAfterOurError(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1))
	e.answers(0)
	e.hear(readOf(100, 0, 600), write(103))
	e.hear(ack(100, roce.SyndromeRemoteAccess))
	e.completed("send remote-access 1")
	e.quiet()
}
