package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A probe asks the responder how far it has got. It goes out when the timer has run
// out, in place of a packet that may not be lost: the path may have become slower, or
// other packets may wait before it. On a link that is a thousand times slower than it
// was, no timer could know.
//
// The probe is an empty WRITE with the sequence number before the oldest packet in
// flight. The responder has executed that one, so the probe is a duplicate: it changes
// nothing, and every responder answers it with an acknowledgement of what it has
// executed (IBTA C9-105; roce.md 7.4). TCP probes an idle peer in the same way (RFC
// 1122, 4.2.3.6).
//
// Packets that were sent before the probe arrive before it. So an acknowledgement that
// moves nothing is the answer that what is missing is lost, and only then it is sent again.
// One that moves something may be for the packets themselves, and the timer starts anew.
type probe struct {
	at  time.Duration // when the first was sent that is not answered
	end int64         // sendQueue.max then; una has passed it when there is nothing left to ask

	// Probes are sent again with a longer timeout. Each answer tells of what was sent
	// before the first.
	last       int64 // sendQueue.max when the last was sent
	unanswered int8  // probes since at, the first included

	pending bool // to be sent next
	hasLost bool // an answer ever said that something was lost

	// Before the answers to earlier ones have come there may be something else to ask for.
	// Those say that what was sent before them has arrived, and nothing of what is behind.
	stale    int8  // so many
	staleEnd int64 // last then
}

// mostProbes bounds what is counted of probes.
const mostProbes = 100

// isProbe reports whether a duplicate is a probe, and repeats nothing.
func isProbe(h *roce.Header, payload []byte) bool {
	return h.Opcode == roce.WriteOnly && h.DMALength == 0 && len(payload) == 0
}

// isOut reports whether a probe is out, and what was sent before it is not all
// acknowledged.
func (b *probe) isOut(una int64) bool { return una < b.end }

// make makes a probe.
func (b *probe) make(now time.Duration, q *sendQueue) roce.Header {
	b.pending = false
	if !b.isOut(q.una) {
		if q.una > b.staleEnd {
			b.stale = 0
		}
		b.stale, b.staleEnd = min(b.stale+b.unanswered, mostProbes), b.last
		b.at, b.end, b.unanswered = now, q.max, 0
	}
	b.last = q.max
	b.unanswered = min(b.unanswered+1, mostProbes)
	return roce.Header{Opcode: roce.WriteOnly, PSN: psn(q.una - 1), AckReq: true}
}

// staleLost reports whether the answers to earlier probes will not come any more, where a round trip takes
// upperBound at most. Where packets are lost so are probes, and to wait for the answer to each
// would take as many more, of which some are lost again. So they are waited for no longer
// than the path takes.
func (b *probe) staleLost(now, upperBound time.Duration) bool {
	return b.hasLost && now-b.at > 4*upperBound
}

// handleDuplicateAck takes an acknowledgement that moves nothing, of sequence number at: of a
// duplicate. It is a probe, or a packet that was sent again and need not have been.
func (r *requester) handleDuplicateAck(now time.Duration, at int64) {
	b, t, una := &r.probe, &r.timers, r.queue.una
	switch {
	case b.stale > 0 && (una <= b.staleEnd || at < una-1 && r.q.connection.Selective) && !b.staleLost(now, t.roundTrip.upperBound()):
		b.stale--
	case b.unanswered == 0:
		r.q.counters.countSpurious()
	default:
		out := b.isOut(una)
		if b.unanswered == 1 {
			t.path.noteAnswered(b.at)
			if out {
				t.roundTrip.sample(now - b.at)
			}
		}
		b.unanswered--
		if out {
			r.markProbedLost(now)
		}
	}
}

// markProbedLost gives up for lost what was sent before the probe.
func (r *requester) markProbedLost(now time.Duration) {
	p, q := &r.probe, &r.queue
	p.hasLost = true
	r.timers.roundTrip.reduceBackOff()
	if r.q.connection.Selective {
		b := r.startRecovery(now)
		if b.record(q.una).sentAt <= p.at {
			b.markDropped(q.una)
			if b.missing != q.una { // else it was told
				b.missing = q.una
				r.q.noteLost(now)
			}
		}
		if p.at > b.rack.sentAt {
			b.rack = rack{p.at, p.end, now - p.at}
		}
		b.changed = true
	} else if r.back.una != q.una || r.back.at <= p.at {
		r.q.noteLost(now)
		r.goBack(now)
		r.back.discarded = 0 // there are none before the probe
	}
	p.end = q.una
	r.timers.startPTO(now)
}
