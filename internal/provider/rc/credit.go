package rc

import (
	"math/bits"
	"time"
)

// SetCredit says how many bytes may be in flight beyond what the path itself holds,
// from now on, as Connection.Credit did until now. With 0 nothing new is sent but what
// the path holds; the oldest packet may always be sent again.
func (q *QP) SetCredit(credit int64) { q.requester.window.credit = credit }

// SetRoundTrip tells the shortest round trip that is known of the path, from other
// connections, too; and whether those have packets on their way now, so that
// a round trip may well take longer.
func (q *QP) SetRoundTrip(known time.Duration, crowded bool) {
	q.requester.window.setPath(known, crowded)
}

// RoundTrip returns the shortest round trip that is known of the path: what SetRoundTrip
// told, or what this connection has found out since.
func (q *QP) RoundTrip() time.Duration { return q.requester.window.known }

// SlowRoundTrip is about how long acknowledgements take lately, up to twice as much, and 0
// if that is nothing to be told to others.
func (q *QP) SlowRoundTrip() time.Duration {
	slow := q.requester.roundTrip.upperBound()
	if slow < slowRoundTrip {
		return 0
	}
	return 1 << bits.Len64(uint64(slow))
}

// slowRoundTrip is less than any AckTimeout that leaves a peer time to answer.
const slowRoundTrip = 100 * time.Millisecond

// CreditLimited reports whether there was something to send when Next last reported false
// that more credit would have let go.
func (q *QP) CreditLimited() bool { return q.state == Ready && q.requester.creditLimited }

// Unsent returns the number of packets, or of READs and atomics, that have been posted and not sent, and InFlight those that
// have been sent and not acknowledged.
func (q *QP) Unsent() int64 { return q.requester.posted - q.requester.max }

// Posted counts all requests that were ever posted.
func (q *QP) Posted() int64 { return q.requester.tail }

// InFlight is as Unsent says.
func (q *QP) InFlight() int64 { return q.requester.max - q.requester.una }

// CreditInUse counts the bytes in flight beyond what the path holds. When the
// timer has run out twice and nothing has been heard since, all of that is lost, or the
// peer no longer there: others need not wait for it. Once may be the fault of a host
// that was busy, and then of many connections at the same time.
func (q *QP) CreditInUse() int64 {
	r := &q.requester
	if !q.Busy() || r.ptoCount > 1 {
		return 0
	}
	return max(0, r.inFlight-r.window.bdp())
}

// CreditWanted returns what CreditInUse would be if all that has been posted were sent at
// once, as far as the window goes. It is 1 at least where nothing is in flight: with no
// credit at all not even the first packet may go, however much the path holds.
func (q *QP) CreditWanted() int64 {
	r := &q.requester
	if q.state != Ready || r.una == r.posted {
		return 0
	}
	least := int64(0)
	if r.inFlight == 0 {
		least = 1
	}
	bdp := r.window.bdp()
	return max(least, min(r.inFlight+r.backlog()-bdp, maxQueue(bdp)))
}

// backlog returns the bytes of what is to be sent, or sent again, at most.
func (r *requester) backlog() int64 {
	bytes := int64(0)
	if r.repair != nil {
		bytes = int64(r.repair.lost) * r.window.packet
	}
	if r.cursor < r.tail {
		w := r.slot(r.cursor)
		bytes += r.postedCost - w.costBefore - r.cost(w, w.first, r.next)
	}
	return bytes
}
