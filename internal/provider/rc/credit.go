package rc

import (
	"math/bits"
	"time"
)

// SetCredit sets how many bytes may be in flight beyond what the path itself holds,
// in place of Connection.Credit. With 0 nothing new is sent but what
// the path holds; the oldest packet may always be sent again.
func (q *QP) SetCredit(credit int64) { q.requester.window.credit = credit }

// SetRoundTrip sets the shortest round trip that is known of the path, from other
// connections too, and whether those have packets in flight now, so that a round trip may
// take longer.
func (q *QP) SetRoundTrip(known time.Duration, crowded bool) {
	q.requester.window.setPath(known, crowded)
}

// A PathEstimate describes the path to a QP's peer as the QP has found it.
type PathEstimate struct {
	// RoundTrip is the shortest that is known: what SetRoundTrip told, or what this connection has found out since.
	RoundTrip time.Duration
	// Slow is about how long acknowledgements take lately, up to twice as much, and 0 if that is nothing to be told
	// to others.
	Slow time.Duration
	// Answered is the time at which the latest packet was sent that the peer is known to have
	// answered, or an earlier time: on this connection or as SetPath told.
	Answered time.Duration
}

// PathEstimate returns what the QP has found out of the path to its peer.
func (q *QP) PathEstimate() PathEstimate {
	t := &q.requester.timers
	e := PathEstimate{RoundTrip: q.requester.window.known, Answered: t.path.known.Answered}
	if slow := t.roundTrip.upperBound(); slow >= slowRoundTrip {
		e.Slow = 1 << bits.Len64(uint64(slow))
	}
	return e
}

// slowRoundTrip is less than any AckTimeout that leaves a peer time to answer.
const slowRoundTrip = 100 * time.Millisecond

// CreditLimited reports whether there was something to send when Next last reported false
// that more credit would have allowed.
func (q *QP) CreditLimited() bool { return q.state == Ready && q.requester.window.creditLimited }

// CreditInUse counts the bytes in flight beyond what the path holds. When the
// peer is lost (timers.peerLost) it is 0: others need not wait for it.
func (q *QP) CreditInUse() int64 {
	if q.state != Ready || q.requester.timers.peerLost() {
		return 0
	}
	return q.requester.window.creditInUse()
}

// CreditWanted returns what CreditInUse would be if all that has been posted were sent at
// once, as far as the window goes. It is 1 at least where nothing is in flight: with no
// credit at all not even the first packet may go, however much the path holds.
func (q *QP) CreditWanted() int64 {
	r := &q.requester
	if q.state != Ready || r.queue.una == r.queue.posted {
		return 0
	}
	backlog := r.queue.unsentCost()
	if r.scoreboard != nil {
		backlog += int64(r.scoreboard.lost) * r.window.packet
	}
	return r.window.creditWanted(backlog)
}
