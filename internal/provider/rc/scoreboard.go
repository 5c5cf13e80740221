package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A scoreboard has what a requester knows of the range [una, max) packet by packet (RFC 6675):
// when each was last sent, and what became of it. There is one where the responder keeps
// packets that arrive early (early.go), from the first sign that something is missing until
// everything that had been sent by then, or was lost since, is acknowledged. Meanwhile what is lost is sent
// again before anything new. It detects losses as RACK does (rack.go).
//
// The responses to READs are kept early too, and take part as if they were the
// packets that asked for them.
type scoreboard struct {
	queue  *sendQueue
	window *window

	records       []record // a sequence number is in slot itself modulo the length, a power of two
	lost          int      // records in that state
	lowestLost    int64    // no packet before it is lost
	arrived       int      // records in that state
	waiting       int      // likewise
	recoveryPoint int64    // the scoreboard ends when una is there
	executed      int64    // the responder has executed everything before it
	missing       int64    // the packet that was last reported to be missing
	responses     earlyStore

	rack          rack
	transmissions transmissions
	changed       bool // something has arrived since detectLoss
}

// A packetState says what became of a sequence number.
type packetState uint8

const (
	inFlight packetState = iota
	waiting              // of a READ: the request has arrived, but waits for what is missing before it
	arrived              // or its response has
	lost
)

type record struct {
	sentAt time.Duration
	cost   int32 // as window counts it
	state  packetState
	resent bool // sent more than once
	waited bool // and was executed shortly before sentAt, which is no place in the order
	read   bool
}

// start has the scoreboard begin where the queue is, with no records.
func (b *scoreboard) start() {
	q := b.queue
	b.recoveryPoint, b.executed, b.lowestLost, b.missing = q.max, q.una, q.una, q.una-1
	b.rack.reset()
	if w := q.oldest(); w.op == OpRead && q.chunkStart(w, q.una) != q.una {
		b.executed = q.chunkEnd(w, q.una) // a part of the response is here
	}
}

// isDone reports whether nothing is missing.
func (b *scoreboard) isDone() bool {
	return b.queue.una >= b.recoveryPoint && b.lost == 0 && b.arrived == 0 && b.waiting == 0
}

func (b *scoreboard) record(sequence int64) *record {
	return &b.records[sequence&int64(len(b.records)-1)]
}

// makeRoom has records for sequence numbers from una up to end.
func (b *scoreboard) makeRoom(end int64) {
	una := b.queue.una
	if end-una <= int64(len(b.records)) {
		return
	}
	size := max(64, len(b.records))
	for int64(size) < end-una {
		size *= 2
	}
	old := *b
	b.records = make([]record, size)
	for s := una; s < una+int64(len(old.records)); s++ {
		*b.record(s) = *old.record(s)
	}
}

// recordSent records that [from, to) were sent for the first time.
func (b *scoreboard) recordSent(from, to int64, sentAt time.Duration) {
	if from >= to {
		return
	}
	b.makeRoom(to)
	q := b.queue
	index := q.indexOf(from)
	for s := from; s < to; s++ {
		for s >= q.slot(index).end {
			index++
		}
		w := q.slot(index)
		*b.record(s) = record{sentAt: sentAt, cost: int32(q.cost(w, s, s+1)), read: w.op.isAnswered()}
	}
	b.addTransmission(from, to, sentAt)
}

// markArrived notes that a sequence number has reached the responder or, of a READ,
// that its response is here.
func (b *scoreboard) markArrived(now time.Duration, s int64) {
	rec := b.record(s)
	switch rec.state {
	case arrived:
		return
	case lost:
		b.lost--
	case waiting:
		b.waiting--
		fallthrough
	default:
		b.window.inFlight -= int64(rec.cost)
	}
	rec.state = arrived
	b.arrived++
	b.window.delivered += int64(rec.cost)
	b.updateRACK(now, s)
}

// markWaiting notes that the READ request that begins with sequence number s is kept by
// the responder until its turn comes.
func (b *scoreboard) markWaiting(now time.Duration, s int64) {
	w := b.queue.requestAt(s)
	if b.queue.chunkStart(w, s) != s {
		return
	}
	b.updateRACK(now, s)
	for end := b.queue.chunkEnd(w, s); s < end; s++ {
		rec := b.record(s)
		switch rec.state {
		case arrived, waiting:
			continue
		case lost:
			b.lost--
			b.window.inFlight += int64(rec.cost)
		}
		rec.state = waiting
		b.waiting++
	}
}

// markLost gives a sequence number up for lost. A READ request that has not been
// executed is lost as a whole: in parts it would be more requests than the
// responder has resources for.
func (b *scoreboard) markLost(s int64) {
	end := s + 1
	if s >= b.executed && b.record(s).read {
		w := b.queue.requestAt(s)
		s, end = b.queue.chunkStart(w, s), b.queue.chunkEnd(w, s)
	}
	for ; s < end; s++ {
		rec := b.record(s)
		switch rec.state {
		case arrived, lost:
			continue
		case waiting:
			b.waiting--
		}
		rec.state = lost
		b.window.inFlight -= int64(rec.cost)
		b.window.lost += int64(rec.cost)
		b.lost++
		b.lowestLost = min(b.lowestLost, s)
	}
	b.recoveryPoint = max(b.recoveryPoint, b.queue.max)
}

// markDropped notes that the responder does not have what it may have reported: for
// want of a receive it has dropped the packet when its turn came. The oldest
// packet is taken for dropped when the timer runs out, whatever was reported;
// what its acknowledgement then tells of the rest is the order of sending.
func (b *scoreboard) markDropped(s int64) {
	if rec := b.record(s); rec.state == arrived && s >= b.executed {
		rec.state = inFlight
		b.arrived--
		b.window.inFlight += int64(rec.cost)
		b.window.delivered -= int64(rec.cost)
	}
	b.markLost(s)
}

// markExecuted notes that the responder has executed everything before sequence
// number to. The responses to READs that waited are on their way from now on.
func (b *scoreboard) markExecuted(now time.Duration, to int64) {
	for s := max(b.executed, b.queue.una); s < to; s++ {
		switch rec := b.record(s); {
		case !rec.read:
			b.markArrived(now, s)
		case rec.state == waiting:
			b.waiting--
			rec.state, rec.sentAt, rec.resent, rec.waited = inFlight, now, true, true
			b.addTransmission(s, s+1, now)
		}
	}
	b.executed = max(b.executed, to)
}

// markReported takes what a SelectiveAcknowledge says of newest and the packets before, and reports whether any of it is
// new.
func (b *scoreboard) markReported(now time.Duration, newest int64, h *roce.Header) (isNew bool) {
	for s := max(newest-mapBits, b.queue.una, b.executed); s <= newest; s++ {
		if s < newest && h.Original>>(newest-1-s)&1 == 0 {
			continue
		}
		switch rec := b.record(s); {
		case rec.state == arrived || rec.state == waiting:
			continue
		case rec.read:
			b.markWaiting(now, s)
		default:
			b.markArrived(now, s)
		}
		isNew = true
	}
	return isNew
}

// remove counts the records of [una, to) no longer, all of which has arrived.
func (b *scoreboard) remove(now time.Duration, to int64) {
	for s := b.queue.una; s < to; s++ {
		b.markArrived(now, s)
		b.arrived--
	}
}

// nextLost returns the lowest sequence numbers that are lost and can be sent again in one packet, and what that costs.
// Something is lost.
func (b *scoreboard) nextLost() (w *request, from, to, cost int64) {
	from = max(b.lowestLost, b.queue.una)
	for b.record(from).state != lost {
		from++
	}
	b.lowestLost = from
	w = b.queue.requestAt(from)
	most := from + 1
	if w.op.isAnswered() {
		most = b.queue.chunkEnd(w, from)
	}
	for to = from; to < most && b.record(to).state == lost; to++ {
		cost += int64(b.record(to).cost)
	}
	return w, from, to, cost
}

// markResent notes that [from, to), which nextLost has returned, is sent again.
func (b *scoreboard) markResent(now time.Duration, from, to, cost int64) {
	for s := from; s < to; s++ {
		rec := b.record(s)
		rec.state, rec.sentAt, rec.resent, rec.waited = inFlight, now, true, false
	}
	b.addTransmission(from, to, now)
	b.lost -= int(to - from)
	b.lowestLost = to
	b.recoveryPoint = max(b.recoveryPoint, b.queue.max)
	b.window.inFlight += cost
}
