package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// The Pacer and a busy line hold back packets that have data or ask for it: requests, new or sent again, and
// responses to READs and atomics, of which the responder is the sender. Acknowledgements, NAKs and probes are short,
// and others wait for them: nothing holds them back.

// beginPacing begins a call of Next.
func (q *QP) beginPacing(now time.Duration) {
	q.heldBack, q.paceDue = false, 0
	if p := q.connection.Pacer; p != nil && p.Next(now) > now {
		q.paceDue = p.Deadline(now)
	}
}

// holdsBack reports whether the packet that is to be made next is held back.
func (q *QP) holdsBack() bool {
	q.heldBack = q.paceDue > 0 || q.lineBusy
	return q.heldBack
}

// paceDeadline returns when to look again whether a packet may go that the Pacer held back; false if it held back none.
func (q *QP) paceDeadline() (time.Duration, bool) { return q.paceDue, q.heldBack && q.paceDue > 0 }

// HoldData has Next hold back packets that have data or ask for it, since the line is busy, until
// it is called with false.
func (q *QP) HoldData(busy bool) { q.lineBusy = busy }

// WaitsForLine reports whether Next last held back a packet for no other reason than HoldData.
func (q *QP) WaitsForLine() bool { return q.heldBack && q.paceDue == 0 }

// Notified takes a CNP, and reports whether there is a Pacer that heeds it.
func (q *QP) Notified(now time.Duration) bool {
	p := q.connection.Pacer
	if p == nil || q.state != Ready {
		return false
	}
	p.Notified(now)
	return true
}

// noteLost tells the Pacer that the peer has said that a packet is missing, or has not acknowledged one in time.
func (q *QP) noteLost(now time.Duration) {
	if p := q.connection.Pacer; p != nil {
		p.Lost(now)
	}
}

// noteSent tells the pacer of a packet that Next has made, unless it only acknowledges.
func (q *QP) noteSent(now time.Duration, p *roce.Packet) {
	op := p.Header.Opcode
	if pacer := q.connection.Pacer; pacer != nil && !op.OnlyAcknowledges() {
		pacer.Sent(now, op.HeaderLen()+(p.PayloadLen()+3)&^3)
	}
}
