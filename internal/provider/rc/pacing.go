package rc

import (
	"math"
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

// holdsBack reports whether the packet that is to be made next is held back. The line is asked only if nothing else holds it back.
func (q *QP) holdsBack() bool {
	p := q.connection.Pacer
	q.heldBack = q.paceDue > 0 || p != nil && p.Line != nil && p.Line.Busy()
	return q.heldBack
}

// paceDeadline returns when to look again whether a packet may go that the Pacer held back; false if it held back none.
func (q *QP) paceDeadline() (time.Duration, bool) { return q.paceDue, q.heldBack && q.paceDue > 0 }

// HoldAll says that Next will not be called for now, whatever there is to be sent: until it is, no deadline is for the sake of
// what the Pacer holds back.
func (q *QP) HoldAll() { q.heldBack = false }

// WaitsForLine reports whether Next last held back a packet for no other reason than its line.
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

// An Allowance bounds how a queue pair sends.
type Allowance struct {
	Rate   float64 // bits per second on the wire, by its congestion control; 0: any
	Target float64 // that the rate recovers to, likewise; 0: there is none
	Window int64   // bytes that may be in flight, headers included, of one packet at least; 0: any number
}

// Allowance returns what bounds the queue pair now. It changes nothing. It returns false of one that is not connected.
func (q *QP) Allowance(now time.Duration) (a Allowance, ok bool) {
	if q.state != Ready {
		return a, false
	}
	if p := q.connection.Pacer; p != nil {
		a.Rate, a.Target = p.Observe(now)
	}
	w := &q.requester.window
	if limit := w.limit(false, false); limit < boundless {
		a.Window = max(limit, w.packet)
	}
	return a, true
}

// noteLost tells the Pacer that the peer has said that a packet is missing, or has said nothing for so long that
// all that is in flight has to be taken for lost.
func (q *QP) noteLost(now time.Duration) {
	if p := q.connection.Pacer; p != nil {
		p.Lost(now)
	}
}

// The Control of a Pacer may bound what is in flight: instead of the window of this package, if that is unbounded, or
// beside it. A READ has its response in flight, as everywhere in a requester.

// unbounded reports whether neither the path nor the peer's receive buffer bounds what is in flight.
func (w *window) unbounded() bool { return w.pacer != nil && w.pacer.Unbounded }

// isControlled reports whether the Control bounds what is in flight.
func (w *window) isControlled() bool { return w.pacer != nil && w.pacer.Bounds() }

// boundless is a window without a bound. Sums with it do not overflow.
const boundless = math.MaxInt64 / 2

// controlled returns what the Control lets be in flight.
func (w *window) controlled() int64 {
	if w.pacer == nil {
		return boundless
	}
	return w.pacer.Limit(boundless)
}

// tellControl tells the Control what has been acknowledged, and the time that took of the packet that was sent first, if that
// is the round trip of a full one: a window has to last so long.
func (w *window) tellControl(now, took time.Duration, isRoundTrip bool) {
	if w.pacer == nil {
		return
	}
	if !isRoundTrip {
		took = 0
	}
	w.pacer.Delivered(now, w.delivered, w.inFlight, took)
}

// readChunk returns how many packets one READ on the wire may ask for. Responses that are asked for cannot be held back,
// so they must fit the receive buffer, and twice, or the next would be asked for too late. A window of the Control is small,
// may become smaller, and is not used but in whole chunks: sixteen of them leave little of it unused.
func (w *window) readChunk() int64 {
	return min(maxChunk, max(1, min(w.credit/2, w.controlled()/16)/w.packet))
}

// noteSent tells the pacer of a packet that Next has made, unless it only acknowledges.
func (q *QP) noteSent(now time.Duration, p *roce.Packet) {
	op := p.Header.Opcode
	if pacer := q.connection.Pacer; pacer != nil && !op.OnlyAcknowledges() {
		pacer.Sent(now, op.HeaderLen()+(p.PayloadLen()+3)&^3)
	}
}
