package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A repair sends again what is lost where the responder keeps what arrives early
// (early.go): from the first sign that something in [una, max)
// is missing until all of that has been acknowledged, the scoreboard tells what
// is, and that is sent again before anything new. Elsewhere the cursor goes back.
type repair struct {
	scoreboard
	news      bool  // something has arrived since detect
	until     int64 // una when it is over
	executed  int64 // the responder has executed everything before it
	responses earlyStore
}

// startRepair starts a repair unless there is one. All that is known of what is in
// flight is when the packets were sent that are being timed.
func (r *requester) startRepair(now time.Duration) {
	if r.repair != nil {
		return
	}
	if r.spareRepair == nil {
		r.spareRepair = &repair{responses: earlyStore{memory: r.q.config.Early}}
	}
	p := r.spareRepair
	r.repair = p
	r.outstanding = maxEarlyDistance(r.q.connection.MTU) // more would not be kept
	p.until, p.executed, p.lowestLost = r.max, r.una, r.una
	p.rackSentAt, p.rackRTT = -1, 0
	if w := r.slot(r.head); w.op == OpRead && (r.una-w.first)%r.chunk != 0 {
		p.executed = r.chunkEnd(w, r.una) // a part of the response is here
	}
	sequence := r.una
	for i := range r.window.timed {
		m := &r.window.marks[(r.window.oldest+i)%len(r.window.marks)]
		end := m.sequence + 1
		if w := r.slot(r.indexOf(m.sequence)); w.op.isAnswered() {
			end = r.chunkEnd(w, m.sequence)
		}
		r.recordSent(sequence, end, m.sentAt)
		sequence = max(sequence, end)
	}
	if r.probing() {
		r.recordSent(sequence, r.probe.end, r.probe.at) // at the latest
		sequence = max(sequence, r.probe.end)
	}
	r.recordSent(sequence, r.max, now) // at the latest
}

// endRepairIfDone ends the repair if nothing is missing. Otherwise conclusions are drawn
// when the next packet is made: by then everything that has arrived together has
// been handled, in whichever order.
func (r *requester) endRepairIfDone() {
	if r.q.state != Ready {
		return
	}
	p := r.repair
	p.news = true
	if r.una >= p.until && p.lost == 0 && p.early == 0 && p.waiting == 0 {
		p.flights, p.oldest = p.flights[:0], 0
		r.repair, r.outstanding, r.recheckAt = nil, maxOutstanding, 0
	}
}

// somethingLost reports whether there is something to be sent again, which goes
// before what is new.
func (r *requester) somethingLost(now time.Duration) bool {
	if r.repair.news {
		r.detectLoss(now)
	}
	return r.repair.lost > 0
}

// resend makes the packet for the lowest sequence number that is lost; false if
// it cannot be sent now. The oldest packet of all always can: everything waits
// for it.
func (r *requester) resend(now time.Duration, packet *roce.Packet) bool {
	p := r.repair
	s := max(p.lowestLost, r.una)
	for p.record(s).state != lost {
		s++
	}
	p.lowestLost = s
	w := r.slot(r.indexOf(s))
	if w.status != Success {
		return false
	}
	end, most := s+1, s+1
	if w.op.isAnswered() {
		most = r.chunkEnd(w, s)
	}
	cost := int64(p.record(s).cost)
	for end < most && p.record(end).state == lost {
		cost += int64(p.record(end).cost)
		end++
	}
	limit := r.limit()
	if s > r.una && !r.fits(cost, limit) {
		return false
	}
	if !r.makePacket(w, s, end, packet) {
		return false
	}
	r.sinceAckReq++
	if w.op.isAnswered() || end == r.max || p.record(end).state != lost ||
		r.sinceAckReq >= ackReqInterval || r.inFlight+2*cost > limit {
		packet.Header.AckReq = true
		r.sinceAckReq = 0
	}
	if r.inFlight == 0 {
		r.ptoAt = now + r.roundTrip.timeout()
	}
	r.countRetry(s)
	for at := s; at < end; at++ {
		rec := p.record(at)
		rec.state, rec.sentAt, rec.resent, rec.waited = inFlight, now, true, false
	}
	p.addFlight(s, end, now)
	p.lost -= int(end - s)
	p.lowestLost = end
	p.until = max(p.until, r.max)
	r.inFlight += cost
	r.resent = max(r.resent, end)
	r.waitingRNR = false
	r.q.counters.Retransmitted++
	return true
}

// selectiveAcknowledge takes the peer's word for what has arrived.
func (r *requester) selectiveAcknowledge(now time.Duration, h *roce.Header, at int64) {
	newest := extend(h.MSN, at)
	if newest < at || newest >= r.max {
		r.fail(r.head, BadResponse)
		return
	}
	r.q.counters.AcknowledgementsReceived++
	r.startRepair(now)
	r.executedTo(now, at)
	if r.q.state != Ready {
		return
	}
	p := r.repair
	news := false
	for s := max(newest-mapBits, r.una, p.executed); s <= newest; s++ {
		if s < newest && h.Original>>(newest-1-s)&1 == 0 {
			continue
		}
		switch rec := p.record(s); {
		case rec.state == arrived || rec.state == waiting:
			continue
		case rec.read:
			r.markWaiting(now, s)
		default:
			r.markArrived(now, s)
		}
		news = true
	}
	if news {
		r.noteEarlyArrival(now, newest)
	}
	if !h.Solicited {
		r.endRepairIfDone()
	}
}

// noteEarlyArrival notes that the packet with sequence number s, and perhaps others, have
// arrived early.
func (r *requester) noteEarlyArrival(now time.Duration, s int64) {
	took, once := r.window.acknowledged(now, s+1, !r.repair.record(s).resent && !r.probing())
	if once {
		r.roundTrip.sample(took)
	}
	if took > 0 {
		r.path.noteAnswered(now - took)
	}
	r.ptoAt = now + r.roundTrip.timeout()
}

// executedTo notes that the responder has executed everything before sequence
// number to, and moves una as far as responses to READs let it. Those that
// responses are missing from are on their way from now on, if they waited.
func (r *requester) executedTo(now time.Duration, to int64) {
	p := r.repair
	for s := max(p.executed, r.una); s < to; s++ {
		switch rec := p.record(s); {
		case !rec.read:
			r.markArrived(now, s)
		case rec.state == waiting:
			p.waiting--
			rec.state, rec.sentAt, rec.resent, rec.waited = inFlight, now, true, true
			p.addFlight(s, s+1, now)
		}
	}
	p.executed = max(p.executed, to)
	r.advanceOverArrived(now)
}

// advanceOverArrived moves una over everything that is known to be there.
func (r *requester) advanceOverArrived(now time.Duration) {
	p := r.repair
	for r.q.state == Ready && (r.una >= p.executed || !r.advance(now, p.executed)) {
		response := p.responses.next(r.una)
		if response == nil {
			return
		}
		r.placeResponse(now, &response.header, response.sequence, response.payload)
		r.q.config.placed()
		p.responses.recycle(response)
	}
}

// removeRecords counts the records of [una, to) no longer.
func (r *requester) removeRecords(now time.Duration, to int64) {
	for s := r.una; s < to; s++ {
		r.markArrived(now, s)
		r.repair.early--
	}
}

// keepResponse takes a packet of a READ's data, which is placed in its turn. It
// also says that everything before it has been executed.
func (r *requester) keepResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	if w := r.slot(r.indexOf(at)); w.op == OpRead && at > r.una && int64(len(payload)) != r.payloadAt(w, at) {
		r.q.counters.BadLengths++
		return // it ends the connection when it comes in its turn
	}
	r.startRepair(now)
	p := r.repair
	if !p.record(at).read {
		r.fail(r.head, BadResponse)
		return
	}
	r.executedTo(now, r.chunkEnd(r.slot(r.indexOf(at)), at))
	switch {
	case r.q.state != Ready:
		return
	case at == r.una:
		r.placeResponse(now, h, at, payload)
		r.advanceOverArrived(now)
	case at > r.una:
		r.q.counters.OutOfSequence++
		if p.record(at).state == arrived && h.Opcode.Starts() {
			r.countSpurious()
		}
		switch {
		case p.responses.at(at) != nil:
		case at-r.una < maxEarlyDistance(r.q.connection.MTU) && p.responses.keep(r.una, at, h, payload):
			r.markArrived(now, at)
			r.noteEarlyArrival(now, at)
		default:
			r.q.counters.EarlyDropped++
		}
	}
	r.endRepairIfDone()
}
