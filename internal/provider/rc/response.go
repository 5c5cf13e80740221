package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// handle takes a packet from the peer's responder (roce.md 6.3).
func (r *requester) handle(now time.Duration, h *roce.Header, payload []byte) {
	q := &r.queue
	at, oldest := extend(h.PSN, q.una), q.una
	r.timers.noteHeard(now)
	if h.Opcode == roce.Acknowledge && h.Syndrome.IsNAK() && h.Syndrome != roce.SyndromePSNSequence &&
		q.head < q.tail && q.oldest().op == OpRead {
		// A READ that fails half-way is refused by the number of its request,
		// which its responses have passed (roce.md 7.3).
		oldest = q.oldest().first
	}
	if at < oldest || at >= q.max {
		if r.scoreboard != nil {
			r.scoreboard.changed = true // it may be the last of a row
		}
		r.handleStaleResponse(now, h, at)
		return
	}
	selective := r.q.connection.Selective
	switch {
	case h.Opcode.IsReadResponse(), h.Opcode == roce.AtomicAcknowledge:
		r.handleReadResponse(now, h, at, payload)
	case h.Opcode == roce.SelectiveAcknowledge:
		// From a peer of another make it is a manufacturer's own packet, of which
		// we do not know what it says (roce.md 3.2).
		if selective {
			r.handleSelectiveAck(now, h, at)
		}
	case h.Syndrome.IsACK():
		r.q.counters.AcknowledgementsReceived++
		asked := r.window.isTimed(at)
		switch r.handleExecuted(now, at+1); {
		case q.una == oldest:
			r.handleDuplicateAck(now, at)
		case !asked && r.probe.isOut(q.una):
			// No packet has asked for it but the probe: packets before the one that is
			// missing had arrived, and did not ask. The acknowledgement does not tell whether the
			// rest is lost or late.
			r.probe.pending = true
		}
	case h.Syndrome.IsRNR():
		r.q.counters.RNRsReceived++
		r.handleRNRNAK(now, at, h.Syndrome)
	case h.Syndrome == roce.SyndromePSNSequence: // roce.md 6.3, 8
		r.q.counters.NAKsReceived++
		r.q.noteLost(now)
		// During an RNR wait it changes nothing: the cursor is back already.
		if r.handleExecuted(now, at) && !selective {
			r.goBackOnce(now)
		}
	case h.Syndrome.IsNAK():
		r.handleFatalNAK(now, at, h.Syndrome)
	}
}

// handleStaleResponse takes a response to what is acknowledged already, or was never sent (roce.md 6.3,
// 1): nothing comes of it, but it may be the answer to a duplicate.
func (r *requester) handleStaleResponse(now time.Duration, h *roce.Header, at int64) {
	una := r.queue.una
	switch {
	case h.Opcode == roce.Acknowledge && h.Syndrome.IsACK():
		// Of READs that are last, not all responders acknowledge more than what was
		// before them (responder.acknowledgedEnd). Before it has executed anything else rxe
		// acknowledges the number before 0, which may seem to be ahead.
		if at == una-1 || !r.q.connection.Selective {
			r.handleDuplicateAck(now, at)
		}
	case at < una && (h.Opcode.IsReadResponse() && h.Opcode.Ends() || h.Opcode == roce.AtomicAcknowledge):
		r.q.counters.countSpurious()
	}
}

// handleExecuted takes it from the peer that everything before sequence number to has
// been executed, and reports whether it is complete. If not, responses are
// missing, and that is seen to.
func (r *requester) handleExecuted(now time.Duration, to int64) bool {
	if r.scoreboard == nil && r.advance(now, to) {
		return true
	}
	if r.q.connection.Selective {
		r.startRecovery(now).markExecuted(now, to)
		r.advanceOverArrived(now)
		r.endRecoveryIfDone()
	} else {
		r.q.counters.OutOfSequence++
		r.goBackOnce(now) // an implied NAK (roce.md 6.3, 2)
	}
	return r.queue.una >= to
}

// advance takes everything before sequence number to as acknowledged, and
// completes what that completes. READs are complete only with their data: if an
// incomplete one stands in the way, it stops there and reports false.
func (r *requester) advance(now time.Duration, to int64) bool {
	q := &r.queue
	before := q.una
	for q.una < to {
		w := q.oldest()
		if w.op.isAnswered() {
			break
		}
		r.advanceWithin(now, w, min(to, w.end))
	}
	if q.una != before {
		r.noteProgress(now, before)
	}
	return q.una >= to
}

// advanceWithin moves una to a later place in w, the oldest request, or to its end.
func (r *requester) advanceWithin(now time.Duration, w *request, to int64) {
	q := &r.queue
	if r.scoreboard != nil {
		r.scoreboard.remove(now, to)
	} else {
		r.window.delivered += q.cost(w, q.una, to)
		// If next is less, it is acknowledged after all, though the cursor has
		// gone back to send it again.
		r.window.inFlight -= q.cost(w, q.una, min(to, q.next))
		q.next = max(to, q.next)
	}
	q.una = to
	if to == w.end {
		q.finish(Success)
		q.finishPerformed()
	}
}

// noteProgress, of una from where it was before, restarts whatever counts time or
// tries without progress.
func (r *requester) noteProgress(now time.Duration, before int64) {
	q := &r.queue
	// Nor is it known for what was sent before a probe: it may be the probe's.
	took, once := r.noteAcknowledged(now, q.una, before >= max(q.resent, r.probe.end))
	if !once && took > 0 && before >= q.resent {
		r.timers.roundTrip.setBound(took)
	}
	r.timers.noteProgress(now, r.q.connection.RNRRetryCount)
	r.window.onePacket, r.probe.pending = false, false
	if r.spare != nil && r.spare.responses.ring != nil && r.spare.responses.unneeded(q.una) {
		r.spare.responses.clear()
	}
}

// noteAcknowledged notes that packets before sequence number to have arrived, each of which was sent only once, if once
// says so. It returns what window.acknowledged does.
func (r *requester) noteAcknowledged(now time.Duration, to int64, once bool) (took time.Duration, sample bool) {
	took, sample = r.window.acknowledged(now, to, once)
	if took > 0 {
		r.timers.path.noteAnswered(now - took)
	}
	if sample {
		r.timers.roundTrip.sample(took)
	}
	return took, sample
}

// handleRNRNAK handles an RNR NAK (roce.md 6.3, 7). One packet is sent after the
// wait, to see whether the receiver is ready for more.
func (r *requester) handleRNRNAK(now time.Duration, at int64, s roce.Syndrome) {
	complete := r.handleExecuted(now, at)
	if r.q.state != Ready || at < r.queue.una {
		return
	}
	selective := r.q.connection.Selective
	if selective {
		r.startRecovery(now).markDropped(at)
	}
	if !complete || r.timers.rnrWaiting {
		return
	}
	if !r.timers.startRNRWait(now, s) {
		r.fail(r.queue.head, RNRRetryExceeded)
		return
	}
	if !selective {
		r.goBack(now)
	}
	r.window.onePacket = true
}

// handleFatalNAK handles a NAK that ends the connection (roce.md 6.3, 9). READs before
// the request that was refused and not complete never will be: they are flushed.
func (r *requester) handleFatalNAK(now time.Duration, at int64, s roce.Syndrome) {
	r.advance(now, at)
	index := r.queue.head
	for at >= r.queue.slot(index).end {
		index++
	}
	status := BadResponse
	switch s {
	case roce.SyndromeInvalidRequest:
		status = RemoteInvalidRequest
	case roce.SyndromeRemoteAccess:
		status = RemoteAccess
	case roce.SyndromeRemoteOperation:
		status = RemoteOperation
	}
	r.fail(index, status)
}

// handleReadResponse places a packet of a READ's data (roce.md 6.3, 5), or an atomic's. Its opcode
// (First or Middle, and Last or Only) depends on how much the request asked for
// that it answers, which after a retry may be more than one; Linux answers a
// retry as if it went on (6.5). Only the beginning and end of a chunk are known.
func (r *requester) handleReadResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	switch {
	case r.scoreboard == nil && r.advance(now, at):
		r.placeResponse(now, h, at, payload)
	case r.q.connection.Selective:
		r.keepResponse(now, h, at, payload)
	default:
		r.q.counters.OutOfSequence++
		r.goBackOnce(now) // an implied NAK (roce.md 6.3, 2)
	}
}

// placeResponse takes a packet of the answer to a READ or an atomic in its turn.
func (r *requester) placeResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	q := &r.queue
	w := q.oldest()
	chunkEnd := q.chunkEnd(w, at)
	status := BadResponse
	switch {
	case w.op == OpRead && h.Opcode.IsReadResponse():
		if int64(len(payload)) != q.payloadAt(w, at) {
			r.q.counters.BadLengths++
		} else {
			status = r.sink.placeData(q, w, h, at, payload, r.q.connection.Selective)
		}
	case w.op.isAtomic() && len(payload) == 0:
		status = r.sink.placeOriginal(q, w, h)
	}
	if status != Success {
		r.fail(q.head, status)
		return
	}
	if at+1 == chunkEnd && q.next >= chunkEnd {
		q.readsOnWire--
	}
	r.advanceWithin(now, w, at+1)
	r.noteProgress(now, at)
}
