package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

const (
	// ackReqInterval is the most packets that go without an AckReq.
	ackReqInterval = 16
	// maxOutstanding is the most PSNs in flight. 2^23 is where comparing them
	// fails (roce.md 5).
	maxOutstanding = 1 << 22
)

// A requester is the half of a QP that carries out what the consumer posts. It decides what
// is sent next, of what is in the send queue; requests complete by what response.go makes of the
// peer's answers.
//
// To send again, the cursor of the send queue goes back (go-back-N, roce.md 6.5). With a responder
// that keeps packets which arrive early it does not: a scoreboard says what is to be sent again.
type requester struct {
	q          *QP
	queue      sendQueue
	window     window
	timers     timers
	probe      probe
	back       goBackN
	sink       sink
	scoreboard *scoreboard // while something is missing
	spare      *scoreboard // the last one, which the next one reuses
}

func (r *requester) connect() {
	c := &r.q.connection
	start := int64(c.SendPSN & roce.PSNMask)
	r.window = newWindow(c)
	r.timers.roundTrip = newRoundTrip(c)
	r.timers.rnrLeft = int8(c.RNRRetryCount)
	r.back.una = start - 1
	r.queue.connect(start, segmentation{mtu: int32(c.MTU), chunk: int8(r.window.readChunk()), even: c.evenPackets()})
}

// nextPacket makes the next packet, having performed the local operations
// before it; false if there is none, or not now.
func (r *requester) nextPacket(now time.Duration, p *roce.Packet) bool {
	r.window.creditLimited = false
	if r.timers.rnrWaiting && now < r.timers.rnrUntil {
		return false
	}
	if r.probe.pending {
		p.Header = r.probe.make(now, &r.queue)
		return true
	}
	if b := r.scoreboard; b != nil {
		if b.changed {
			r.timers.recheckAt = b.detectLoss(now, r.timers.roundTrip.srtt)
		}
		if b.lost > 0 {
			return !r.q.holdsBack() && r.resend(now, p)
		}
	}
	return r.sendNext(now, p)
}

// sendNext makes the packet for the number next, which is new, or sent again by go-back-N.
func (r *requester) sendNext(now time.Duration, p *roce.Packet) bool {
	q := &r.queue
	if q.cursor == q.tail {
		return false
	}
	w := q.slot(q.cursor)
	if (r.q.draining || r.q.gathers) && w.first == q.next && q.next == q.max {
		return false
	}
	if w.op.isLocal() {
		if w = q.nextRequest(); w == nil {
			return false
		}
	}
	if w.status != Success {
		r.checkOldest()
		return false
	}
	if q.isFenced(w) || r.q.holdsBack() {
		return false
	}
	end, answered := q.next+1, w.op.isAnswered()
	if answered {
		end = q.chunkEnd(w, q.next)
		c := &r.q.connection
		if int(q.readsOnWire) >= c.readsOnWire(c.InitiatorDepth) || q.next == w.first && w.readsBefore-q.readsDone >= int64(c.InitiatorDepth) {
			return false // NDK-RL-07
		}
	}
	cost := q.cost(w, q.next, end)
	limit := r.window.limit(r.timers.peerLost(), q.next < q.max)
	if !r.window.fits(cost, limit, q.una < q.max) {
		return false
	}
	if r.window.inFlight > 0 {
		outstanding := int64(maxOutstanding)
		if r.scoreboard != nil {
			outstanding = maxEarlyDistance(int(q.mtu)) // more would not be kept
		}
		if end-q.una > outstanding {
			return false
		}
		srtt := r.timers.roundTrip.srtt
		if r.back.bytesDiscarded(now, srtt) > limit-r.window.inFlight-cost {
			r.timers.recheckAt = now + max(srtt/32, minTimer)
			return false
		}
	}
	if !q.makePacket(w, q.next, end, p) {
		r.checkOldest()
		return false
	}
	ask := answered || end == w.end || r.queue.sinceAckReq+1 >= ackReqInterval ||
		r.window.inFlight+2*cost > limit || // no other will fit
		r.window.isControlled() || // a window of few packets lives by each acknowledgement
		r.q.connection.Pacer != nil && r.window.lastTimed(now) >= r.timers.roundTrip.srtt/2 // others may follow much later
	p.Header.AckReq = ask
	r.noteSent(now, w, end, cost, ask)
	return true
}

// noteSent notes that the packet for [next, end) of w, the cursor's request, is
// on its way.
func (r *requester) noteSent(now time.Duration, w *request, end, cost int64, ask bool) {
	q, t := &r.queue, &r.timers
	if q.una == q.max {
		t.progressAt = now
	}
	if q.una == q.next {
		t.startPTO(now)
	}
	t.rnrWaiting = false
	if q.next < q.max {
		if q.next == q.una {
			t.countRetry()
		}
		r.q.counters.Retransmitted++
	} else if ask {
		r.window.mark(now, q.next, cost)
	}
	if r.scoreboard != nil {
		r.scoreboard.recordSent(q.next, end, now)
	}
	r.queue.sinceAckReq++
	if ask {
		r.queue.sinceAckReq = 0
	}
	r.window.inFlight += cost
	q.noteSent(w, end)
}

// resend makes the packet for the lowest sequence number that is lost; false if
// it cannot be sent now. The oldest packet of all always can: everything waits
// for it.
func (r *requester) resend(now time.Duration, p *roce.Packet) bool {
	b, q := r.scoreboard, &r.queue
	w, from, to, cost := b.nextLost()
	limit := r.window.limit(r.timers.peerLost(), true)
	if w.status != Success || from > q.una && !r.window.fits(cost, limit, true) {
		return false
	}
	if !q.makePacket(w, from, to, p) {
		r.checkOldest()
		return false
	}
	r.queue.sinceAckReq++
	if w.op.isAnswered() || to == q.max || b.record(to).state != lost ||
		r.queue.sinceAckReq >= ackReqInterval || r.window.inFlight+2*cost > limit {
		p.Header.AckReq = true
		r.queue.sinceAckReq = 0
	}
	if r.window.inFlight == 0 {
		r.timers.startPTO(now)
	}
	if from == q.una {
		r.timers.countRetry()
	}
	b.markResent(now, from, to, cost)
	q.resent = max(q.resent, to)
	r.timers.rnrWaiting = false
	r.q.counters.Retransmitted++
	return true
}

// A goBackN has the last time that the cursor went back (go-back-N, roce.md 6.5).
type goBackN struct {
	una       int64 // of the send queue then
	at        time.Duration
	discarded int64 // bytes that were in flight then
}

// note notes that the cursor goes back, where srtt is the smoothed round trip.
func (b *goBackN) note(now time.Duration, una, inFlight int64, srtt time.Duration) {
	b.una, b.at, b.discarded = una, now, inFlight+b.bytesDiscarded(now, srtt)
}

// bytesDiscarded returns how much of what was in flight when the cursor went back is
// still on its way, to be thrown away on arrival. Sending a whole window on top
// of it would overflow what the window is made to fit. It arrives, as it was
// sent, over one round trip.
func (b *goBackN) bytesDiscarded(now, srtt time.Duration) int64 {
	if b.discarded == 0 {
		return 0
	}
	left := 1 - float64(now-b.at)/float64(max(1, srtt))
	if left <= 0 {
		b.discarded = 0
	}
	return int64(left * float64(b.discarded))
}

// goBack moves the cursor to the oldest packet that is not acknowledged.
func (r *requester) goBack(now time.Duration) {
	r.back.note(now, r.queue.una, r.window.inFlight, r.timers.roundTrip.srtt)
	r.queue.goBack()
	r.window.inFlight = 0
}

// goBackOnce goes back, unless that has been done for this gap already: then
// there is nothing to do until there is progress, or the timer runs out.
func (r *requester) goBackOnce(now time.Duration) {
	if r.back.una != r.queue.una {
		r.goBack(now)
		r.timers.roundTrip.reduceBackOff()
	}
}

func (r *requester) handleTimeout(now time.Duration) {
	q, t := &r.queue, &r.timers
	switch {
	case !q.isOutstanding():
		return
	case t.rnrWaiting:
		t.rnrWaiting = now < t.rnrUntil
		return
	}
	if now >= t.recheckAt {
		t.recheckAt = 0
		if r.scoreboard != nil {
			r.scoreboard.changed = true
		}
	}
	if at, ok := t.giveUpAt(&r.q.connection); ok && now >= at {
		r.fail(q.head, RetryExceeded)
		return
	}
	if q.next > q.una && now >= t.ptoAt {
		r.q.counters.Timeouts++
		r.probe.pending = true
		t.expirePTO(now)
		if t.peerLost() { // the first timeout only asks: a host that was busy has lost nothing
			r.q.noteLost(now)
		}
	}
}

// checkOldest fails the QP if the oldest request is one that cannot go on.
func (r *requester) checkOldest() {
	if r.queue.head < r.queue.tail {
		if status := r.queue.oldest().status; status != Success {
			r.fail(r.queue.head, status)
		}
	}
}

// fail completes the request with the given index with status, flushes all
// others and takes the QP to Error.
func (r *requester) fail(index int64, status Status) {
	for r.queue.head < index {
		r.queue.finish(Flushed)
	}
	r.queue.finish(status)
	r.q.responder.clearReplies()
	r.q.enterError()
}
