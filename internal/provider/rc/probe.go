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
// What was sent before the probe arrives before it. So an acknowledgement that moves
// nothing is the answer that what is missing is lost, and only then it is sent again.
// One that moves something may be for the packets themselves, and the timer starts anew.
type probe struct {
	at  time.Duration // when the first was sent that is not answered
	end int64         // requester.max then; una has passed it when there is nothing left to ask

	// Probes are sent again with a longer timeout. Each answer tells of what was sent
	// before the first.
	last       int64 // requester.max when the last was sent
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

// probing reports whether a probe is out, and what was sent before it is not all
// acknowledged.
func (r *requester) probing() bool { return r.una < r.probe.end }

// staleProbesLost reports whether the answers to earlier probes will not come any more. Where
// packets are lost so are probes, and to wait for the answer to each
// would take as many more, of which some are lost again. So they are waited for no longer
// than the path takes.
func (r *requester) staleProbesLost(now time.Duration) bool {
	return r.probe.hasLost && now-r.probe.at > 4*r.roundTrip.upperBound()
}

func (r *requester) makeProbe(now time.Duration, p *roce.Packet) {
	b := &r.probe
	b.pending = false
	if !r.probing() {
		if r.una > b.staleEnd {
			b.stale = 0
		}
		b.stale, b.staleEnd = min(b.stale+b.unanswered, mostProbes), b.last
		b.at, b.end, b.unanswered = now, r.max, 0
	}
	b.last = r.max
	b.unanswered = min(b.unanswered+1, mostProbes)
	p.Header = roce.Header{Opcode: roce.WriteOnly, PSN: psn(r.una - 1), AckReq: true}
}

// handleDuplicateAck takes an acknowledgement that moves nothing, of sequence number at: of a
// duplicate. It is a probe, or a packet that was sent again and need not have been.
func (r *requester) handleDuplicateAck(now time.Duration, at int64) {
	b := &r.probe
	switch {
	case b.stale > 0 && (r.una <= b.staleEnd || at < r.una-1 && r.q.connection.Selective) && !r.staleProbesLost(now):
		b.stale--
	case b.unanswered == 0:
		r.countSpurious()
	default:
		if b.unanswered == 1 {
			r.path.noteAnswered(b.at)
			if r.probing() {
				r.roundTrip.sample(now - b.at)
			}
		}
		b.unanswered--
		if r.probing() {
			r.markProbedLost(now)
		}
	}
}

// advancedByProbe takes an acknowledgement that moves something and that no packet has
// asked for but the probe: packets before the one that is missing had arrived, and did not
// ask. Whether the rest is lost or late it does not tell, so the probe goes out again.
func (r *requester) advancedByProbe() {
	if r.probing() {
		r.probe.pending = true
	}
}

// markProbedLost gives up for lost what was sent before the probe.
func (r *requester) markProbedLost(now time.Duration) {
	b := &r.probe
	b.hasLost = true
	r.roundTrip.reduceBackOff()
	if r.q.connection.Selective {
		r.startRepair(now)
		p := r.repair
		if p.record(r.una).sentAt <= b.at {
			r.markDropped(r.una)
		}
		if b.at > p.rackSentAt {
			p.rackSentAt, p.rackSequence, p.rackRTT = b.at, b.end, now-b.at
		}
		p.news = true
	} else if r.wentBack != r.una || r.wentBackAt <= b.at {
		r.goBack(now)
		r.discarded = 0 // there are none before the probe
	}
	b.end = r.una
	r.ptoAt = now + r.roundTrip.timeout()
}

// countSpurious counts a packet that the peer had when it was sent again.
func (r *requester) countSpurious() {
	if c := &r.q.counters; c.Spurious < c.Retransmitted {
		c.Spurious++
	}
}
