package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// handle takes a packet from the peer's responder (roce.md 6.3).
func (r *requester) handle(now time.Duration, h *roce.Header, payload []byte) {
	at := extend(h.PSN, r.una)
	oldest := r.una
	r.heardAt, r.ptoCount = now, 0
	if h.Opcode == roce.Acknowledge && h.Syndrome.IsNAK() && h.Syndrome != roce.SyndromePSNSequence &&
		r.head < r.tail && r.slot(r.head).op == OpRead {
		// A READ that fails half-way is refused by the number of its request,
		// which its responses have passed (roce.md 7.3).
		oldest = r.slot(r.head).first
	}
	if at < oldest || at >= r.max {
		if r.repair != nil {
			r.repair.news = true // it may be the last of a row
		}
		r.handleStaleResponse(now, h, at)
		return
	}
	switch {
	case h.Opcode.IsReadResponse(), h.Opcode == roce.AtomicAcknowledge:
		r.handleReadResponse(now, h, at, payload)
	case h.Opcode == roce.SelectiveAcknowledge:
		// From a peer of another make it is a manufacturer's own packet, of which
		// we do not know what it says (roce.md 3.2).
		if r.q.connection.Selective {
			r.selectiveAcknowledge(now, h, at)
		}
	case h.Syndrome.IsACK():
		r.q.counters.AcknowledgementsReceived++
		asked := r.window.isTimed(at)
		switch r.handleExecuted(now, at+1); {
		case r.una == oldest:
			r.handleDuplicateAck(now, at)
		case !asked:
			r.advancedByProbe()
		}
	case h.Syndrome.IsRNR():
		r.q.counters.RNRsReceived++
		r.handleRNRNAK(now, at, h.Syndrome)
	case h.Syndrome == roce.SyndromePSNSequence:
		r.q.counters.NAKsReceived++
		r.handlePSNSequenceNAK(now, at)
	case h.Syndrome.IsNAK():
		r.handleFatalNAK(now, at, h.Syndrome)
	}
}

// handleStaleResponse takes a response to what is acknowledged already, or was never sent (roce.md 6.3,
// 1): nothing comes of it, but it may be the answer to a duplicate.
func (r *requester) handleStaleResponse(now time.Duration, h *roce.Header, at int64) {
	switch {
	case h.Opcode == roce.Acknowledge && h.Syndrome.IsACK():
		// Of READs that are last, not all responders acknowledge more than what was
		// before them (replies.acknowledged). Before it has executed anything else rxe
		// acknowledges the number before 0, which may seem to be ahead.
		if at == r.una-1 || !r.q.connection.Selective {
			r.handleDuplicateAck(now, at)
		}
	case at < r.una && (h.Opcode.IsReadResponse() && h.Opcode.Starts() || h.Opcode == roce.AtomicAcknowledge):
		r.countSpurious()
	}
}

// handleExecuted takes it from the peer that everything before sequence number to has
// been executed, and reports whether it is complete. If not, responses are
// missing, and that is seen to.
func (r *requester) handleExecuted(now time.Duration, to int64) bool {
	if r.repair == nil && r.advance(now, to) {
		return true
	}
	if r.q.connection.Selective {
		r.startRepair(now)
		r.executedTo(now, to)
		r.endRepairIfDone()
	} else {
		r.resendRead(now)
	}
	return r.una >= to
}

// advance takes everything before sequence number to as acknowledged, and
// completes what that completes. READs are complete only with their data: if an
// incomplete one stands in the way, it stops there and reports false.
func (r *requester) advance(now time.Duration, to int64) bool {
	before := r.una
	for r.una < to {
		w := r.slot(r.head)
		if w.op.isAnswered() {
			break
		}
		r.advanceWithin(now, w, min(to, w.end))
	}
	if r.una != before {
		r.noteProgress(now, before)
	}
	return r.una >= to
}

// advanceWithin moves una to a later place in w, the oldest request, or to its end.
func (r *requester) advanceWithin(now time.Duration, w *request, to int64) {
	if r.repair != nil {
		r.removeRecords(now, to)
	} else {
		r.window.delivered += r.cost(w, r.una, to)
		// If next is less, it is acknowledged after all, though the cursor has
		// gone back to send it again.
		r.inFlight -= r.cost(w, r.una, min(to, r.next))
		r.next = max(to, r.next)
	}
	r.una = to
	if to == w.end {
		r.finish(Success)
		r.finishPerformed()
	}
}

// noteProgress, of una from where it was before, restarts whatever counts time or
// tries without progress.
func (r *requester) noteProgress(now time.Duration, before int64) {
	// Nor is it known for what was sent before a probe: it may be the probe's.
	took, once := r.window.acknowledged(now, r.una, before >= max(r.resent, r.probe.end))
	if took > 0 {
		r.path.noteAnswered(now - took)
	}
	switch {
	case once:
		r.roundTrip.sample(took)
	case took > 0 && before >= r.resent:
		r.roundTrip.setBound(took)
	}
	r.progressAt = now
	r.ptoAt = now + r.roundTrip.timeout()
	r.rnrLeft = int8(r.q.connection.RNRRetryCount)
	r.retries, r.onlyOne, r.waitingRNR, r.probe.pending = 0, false, false, false
	if r.spareRepair != nil && r.spareRepair.responses.ring != nil && r.spareRepair.responses.unneeded(r.una) {
		r.spareRepair.responses.clear()
	}
}

// goBackOnce goes back, unless that has been done for this gap already: then
// there is nothing to do until there is progress, or the timer runs out.
func (r *requester) goBackOnce(now time.Duration) {
	if r.wentBack != r.una {
		r.goBack(now)
		r.roundTrip.reduceBackOff()
	}
}

// resendRead goes back to a READ whose responses were overtaken: an implied
// NAK (roce.md 6.3, 2).
func (r *requester) resendRead(now time.Duration) {
	r.q.counters.OutOfSequence++
	r.goBackOnce(now)
}

// handlePSNSequenceNAK handles a NAK of a PSN (roce.md 6.3, 8). During an RNR wait it
// changes nothing: the cursor is back already.
func (r *requester) handlePSNSequenceNAK(now time.Duration, at int64) {
	if r.handleExecuted(now, at) && !r.q.connection.Selective {
		r.goBackOnce(now)
	}
}

// handleRNRNAK handles an RNR NAK (roce.md 6.3, 7). What is sent after the wait is
// one packet, to see whether the receiver is ready for more.
func (r *requester) handleRNRNAK(now time.Duration, at int64, s roce.Syndrome) {
	there := r.handleExecuted(now, at)
	if r.q.state != Ready || at < r.una {
		return
	}
	if r.q.connection.Selective {
		r.startRepair(now)
		r.markDropped(at)
	}
	if !there || r.waitingRNR {
		return
	}
	r.path.noteAnswered(r.rnrUntil) // what was sent again then, or later
	if r.rnrLeft == 0 {
		r.fail(r.head, RNRRetryExceeded)
		return
	}
	if r.rnrLeft != 7 {
		r.rnrLeft--
	}
	if !r.q.connection.Selective {
		r.goBack(now)
	}
	r.onlyOne, r.waitingRNR = true, true
	r.rnrUntil = now + roce.RNRTimer(s.RNRCode())
	r.progressAt = r.rnrUntil // the peer is alive
	r.ptoAt = r.rnrUntil + r.roundTrip.timeout()
}

// handleFatalNAK handles a NAK that ends the connection (roce.md 6.3, 9). READs before
// the request that was refused and not complete never will be: they are flushed.
func (r *requester) handleFatalNAK(now time.Duration, at int64, s roce.Syndrome) {
	r.advance(now, at)
	index := r.head
	for at >= r.slot(index).end {
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

// handleReadResponse places a packet of a READ's data (roce.md 6.3, 5), or an atomic's. Whether it is
// First or Middle, and Last or Only, depends on how much the request asked for
// that it answers, which after a retry may be more than one; Linux answers a
// retry as if it went on (6.5). What is known is where a chunk begins and ends.
func (r *requester) handleReadResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	switch {
	case r.repair == nil && r.advance(now, at):
		r.placeResponse(now, h, at, payload)
	case r.q.connection.Selective:
		r.keepResponse(now, h, at, payload)
	default:
		r.resendRead(now)
	}
}

// placeResponse takes a packet of the answer to a READ or an atomic in its turn.
func (r *requester) placeResponse(now time.Duration, h *roce.Header, at int64, payload []byte) {
	w := r.slot(r.head)
	chunkEnd := r.chunkEnd(w, at)
	switch {
	case w.op == OpRead && h.Opcode.IsReadResponse():
		if !r.placeData(w, h, at, chunkEnd, payload) {
			return
		}
	case w.op.isAtomic() && len(payload) == 0:
		if !r.placeOriginal(w, h) {
			return
		}
	default:
		r.fail(r.head, BadResponse)
		return
	}
	if at+1 == chunkEnd && r.next >= chunkEnd {
		r.reads--
	}
	r.advanceWithin(now, w, at+1)
	r.noteProgress(now, at)
}

// placeData places the data of packet at of w, a READ, and reports whether all is well; if not,
// the QP has failed.
func (r *requester) placeData(w *request, h *roce.Header, at, chunkEnd int64, payload []byte) bool {
	beginsChunk := (at-w.first)%r.chunk == 0
	offset, n := r.bytesBefore(w, at), r.payloadAt(w, at)
	ends := at+1 == chunkEnd
	if int64(len(payload)) != n {
		r.q.counters.BadLengths++
	}
	if h.Opcode.Ends() != ends && (ends || !r.q.connection.Selective) || beginsChunk && !h.Opcode.Starts() || int64(len(payload)) != n {
		r.fail(r.head, BadResponse)
		return false
	}
	var ok bool
	r.ranges, ok = r.sink.Resolve(r.ranges[:0], r.q.config.Memory, r.sglOf(w), offset, int(n), ReadSink)
	if !ok || !r.q.config.Scatter(r.ranges, payload, at+1 == w.end) {
		r.fail(r.head, LocalProtection)
		return false
	}
	if w.invalidate && at+1 == w.end && w.pieces > 0 && !r.q.config.Memory.InvalidateLocal(r.sglOf(w)[0].Token) {
		r.fail(r.head, LocalProtection)
		return false
	}
	return true
}
