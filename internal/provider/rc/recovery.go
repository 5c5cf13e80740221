package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// This file has what a requester does with a responder that keeps what arrives early (early.go), as long as
// something is missing. Conclusions are drawn when the next packet is made: by then everything that has
// arrived together has been handled, in whichever order.

// startRecovery returns the scoreboard, which it makes unless there is one. All that is known of what is in
// flight is when the packets were sent that are being timed.
func (r *requester) startRecovery(now time.Duration) *scoreboard {
	if r.scoreboard != nil {
		return r.scoreboard
	}
	q := &r.queue
	if r.spare == nil {
		r.spare = &scoreboard{queue: q, window: &r.window, responses: earlyStore{memory: r.q.config.Early}}
	}
	b := r.spare
	r.scoreboard = b
	b.start()
	sequence := q.una
	for i := range r.window.timed {
		m := &r.window.marks[(r.window.oldest+i)%len(r.window.marks)]
		end := m.sequence + 1
		if w := q.requestAt(m.sequence); w.op.isAnswered() {
			end = q.chunkEnd(w, m.sequence)
		}
		b.recordSent(sequence, end, m.sentAt)
		sequence = max(sequence, end)
	}
	if r.probe.isOut(q.una) {
		b.recordSent(sequence, r.probe.end, r.probe.at) // at the latest
		sequence = max(sequence, r.probe.end)
	}
	b.recordSent(sequence, q.max, now) // at the latest
	return b
}

// endRecoveryIfDone ends the scoreboard if nothing is missing.
func (r *requester) endRecoveryIfDone() {
	if r.q.state != Ready {
		return
	}
	b := r.scoreboard
	b.changed = true
	if b.isDone() {
		b.transmissions.clear()
		r.scoreboard, r.timers.recheckAt = nil, 0
	}
}

// handleSelectiveAck takes the peer's word for what has arrived.
func (r *requester) handleSelectiveAck(now time.Duration, h *roce.Header, at int64) {
	newest := extend(h.MSN, at)
	if newest < at || newest >= r.queue.max {
		r.fail(r.queue.head, BadResponse)
		return
	}
	r.q.counters.AcknowledgementsReceived++
	b := r.startRecovery(now)
	if at != b.missing { // a responder that keeps nothing would send one NAK for it
		b.missing = at
		r.q.noteLost(now)
	}
	b.markExecuted(now, at)
	r.advanceOverArrived(now)
	if r.q.state != Ready {
		return
	}
	if b.markReported(now, newest, h) {
		r.noteEarlyArrival(now, newest)
	}
	if !h.Solicited {
		r.endRecoveryIfDone()
	}
}

// noteEarlyArrival notes that the packet with sequence number s, and perhaps others, have
// arrived early.
func (r *requester) noteEarlyArrival(now time.Duration, s int64) {
	r.noteAcknowledged(now, s+1, !r.scoreboard.record(s).resent && !r.probe.isOut(r.queue.una))
	r.timers.startPTO(now)
}

// advanceOverArrived moves una over everything that is known to be there, as far as responses to READs let it.
func (r *requester) advanceOverArrived(now time.Duration) {
	b, q := r.scoreboard, &r.queue
	for r.q.state == Ready && (q.una >= b.executed || !r.advance(now, b.executed)) {
		response := b.responses.next(q.una)
		if response == nil {
			return
		}
		r.placeResponse(now, &response.header, response.sequence, response.payload)
		r.q.config.settle()
		b.responses.recycle(response)
	}
}

// keepResponse takes a packet of a READ's data, which is placed in its turn. It
// also says that everything before it has been executed.
func (r *requester) keepResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	q, counters := &r.queue, &r.q.counters
	w := q.requestAt(at)
	if w.op == OpRead && at > q.una && int64(len(payload)) != q.payloadAt(w, at) {
		counters.BadLengths++
		return // it ends the connection when it comes in its turn
	}
	b := r.startRecovery(now)
	if !b.record(at).read {
		r.fail(q.head, BadResponse)
		return
	}
	b.markExecuted(now, q.chunkEnd(w, at))
	r.advanceOverArrived(now)
	switch {
	case r.q.state != Ready:
		return
	case at == q.una:
		r.placeResponse(now, h, at, payload)
		r.advanceOverArrived(now)
	case at > q.una:
		counters.OutOfSequence++
		if b.record(at).state == arrived && h.Opcode.Ends() {
			counters.countSpurious()
		}
		switch {
		case b.responses.at(at) != nil:
		case at-q.una < maxEarlyDistance(int(q.mtu)) && b.responses.keep(q.una, at, h, payload):
			b.markArrived(now, at)
			r.noteEarlyArrival(now, at)
		default:
			counters.EarlyDropped++
		}
	}
	r.endRecoveryIfDone()
}
