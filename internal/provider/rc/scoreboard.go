package rc

import (
	"slices"
	"time"
)

// A scoreboard has what a requester knows of the range [una, max) packet by packet:
// when each was last sent, and what became of it.
//
// What is missing is told from the order of sending, as RACK does (RFC 8985):
// a packet is lost if one that was sent later has arrived, and either that one
// was sent a good while later or the round trip of this one is over by as much.
// The order of sending, not of sequence numbers, so a packet that is lost a
// second time is missed as soon as the first time. The good while is a quarter of
// the round trip: packets that overtake each other by less have nothing sent again.
//
// The responses to READs are kept early too, and take part as if they were the
// packets that asked for them.
type scoreboard struct {
	records []record // a sequence number is in slot itself modulo the length, a power of two
	flights []flight // in the order of sending; those before oldest are dealt with
	oldest  int

	lost       int   // records in that state
	lowestLost int64 // no packet before it is lost
	early      int   // records that have arrived
	waiting    int   // records in that state

	// Of all packets that have arrived, one was sent last: when, which, and how
	// long it took to know. latest is negative if none has arrived.
	rackSentAt   time.Duration
	rackSequence int64
	rackRTT      time.Duration
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

// A flight is a run of sequence numbers sent at once.
type flight struct {
	from, to int64
	sentAt   time.Duration
}

func (b *scoreboard) record(sequence int64) *record {
	return &b.records[sequence&int64(len(b.records)-1)]
}

// makeRoom has records for sequence numbers from una up to end.
func (b *scoreboard) makeRoom(una, end int64) {
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

// addFlight notes that [from, to) were sent.
func (b *scoreboard) addFlight(from, to int64, sentAt time.Duration) {
	if len(b.flights) == cap(b.flights) {
		b.removeFinishedFlights()
	}
	at := len(b.flights)
	for at > b.oldest && b.flights[at-1].sentAt > sentAt {
		at--
	}
	if at > b.oldest && b.flights[at-1].to == from && b.flights[at-1].sentAt == sentAt {
		b.flights[at-1].to = to
		return
	}
	b.flights = slices.Insert(b.flights, at, flight{from, to, sentAt})
}

// removeFinishedFlights removes the flights of which nothing flies any more, and makes room for as
// many as are left: so there are never many more than records.
func (b *scoreboard) removeFinishedFlights() {
	b.flights = b.flights[:copy(b.flights, b.flights[b.oldest:])]
	b.oldest = 0
	b.flights = slices.DeleteFunc(b.flights, func(f flight) bool {
		for s := f.from; s < f.to; s++ {
			if rec := b.record(s); rec.state == inFlight && rec.sentAt == f.sentAt {
				return false
			}
		}
		return true
	})
	b.flights = slices.Grow(b.flights, max(len(b.flights), 16))
}

// sentBeforeRACK reports whether a packet that was sent after s at that time has arrived.
func (b *scoreboard) sentBeforeRACK(s int64, sentAt time.Duration) bool {
	return sentAt < b.rackSentAt || sentAt == b.rackSentAt && s < b.rackSequence
}

// recordSent records that [from, to) were sent for the first time.
func (r *requester) recordSent(from, to int64, sentAt time.Duration) {
	if from >= to {
		return
	}
	r.repair.makeRoom(r.una, to)
	index := r.indexOf(from)
	for s := from; s < to; s++ {
		for s >= r.slot(index).end {
			index++
		}
		w := r.slot(index)
		*r.repair.record(s) = record{sentAt: sentAt, cost: int32(r.cost(w, s, s+1)), read: w.op.isAnswered()}
	}
	r.repair.addFlight(from, to, sentAt)
}

// indexOf returns the index of the request that a sequence number in [una, max) is
// part of.
func (r *requester) indexOf(s int64) int64 {
	low, high := r.head, r.tail-1
	for low < high {
		if middle := (low + high) / 2; r.slot(middle).end > s {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// markArrived notes that a sequence number has reached the responder or, of a READ,
// that its response is here.
func (r *requester) markArrived(now time.Duration, s int64) {
	p := r.repair
	rec := p.record(s)
	switch rec.state {
	case arrived:
		return
	case lost:
		p.lost--
	case waiting:
		p.waiting--
		fallthrough
	default:
		r.inFlight -= int64(rec.cost)
	}
	rec.state = arrived
	p.early++
	r.window.delivered += int64(rec.cost)
	r.updateRACK(now, s)
}

// updateRACK notes in the order of sending that a packet has arrived.
func (r *requester) updateRACK(now time.Duration, s int64) {
	p := r.repair
	rec := p.record(s)
	if rec.waited || rec.resent && now-rec.sentAt < r.window.known {
		return // or that was the first one after all: no round trip is as short (RFC 8985 6.2)
	}
	if rec.sentAt > p.rackSentAt || rec.sentAt == p.rackSentAt && s > p.rackSequence {
		p.rackSentAt, p.rackSequence, p.rackRTT = rec.sentAt, s, now-rec.sentAt
	}
}

// markWaiting notes that the READ request that begins with sequence number s is kept by
// the responder until its turn comes.
func (r *requester) markWaiting(now time.Duration, s int64) {
	p := r.repair
	w := r.slot(r.indexOf(s))
	if (s-w.first)%r.chunk != 0 {
		return
	}
	r.updateRACK(now, s)
	for end := r.chunkEnd(w, s); s < end; s++ {
		rec := p.record(s)
		switch rec.state {
		case arrived, waiting:
			continue
		case lost:
			p.lost--
			r.inFlight += int64(rec.cost)
		}
		rec.state = waiting
		p.waiting++
	}
}

// markLost gives a sequence number up for lost. A READ request that has not been
// executed is lost as a whole: in parts it would be more requests than the
// responder has resources for.
func (r *requester) markLost(s int64) {
	p := r.repair
	end := s + 1
	if s >= p.executed && p.record(s).read {
		w := r.slot(r.indexOf(s))
		s -= (s - w.first) % r.chunk
		end = r.chunkEnd(w, s)
	}
	for ; s < end; s++ {
		rec := p.record(s)
		switch rec.state {
		case arrived, lost:
			continue
		case waiting:
			p.waiting--
		}
		rec.state = lost
		r.inFlight -= int64(rec.cost)
		r.window.lost += int64(rec.cost)
		p.lost++
		p.lowestLost = min(p.lowestLost, s)
	}
	p.until = max(p.until, r.max)
}

// markDropped notes that the responder does not have what it may have reported: for
// want of a receive it has dropped the packet when its turn came. The oldest
// packet is taken for dropped when the timer runs out, whatever was reported;
// what its acknowledgement then tells of the rest is the order of sending.
func (r *requester) markDropped(s int64) {
	p := r.repair
	if rec := p.record(s); rec.state == arrived && s >= p.executed {
		rec.state = inFlight
		p.early--
		r.inFlight += int64(rec.cost)
		r.window.delivered -= int64(rec.cost)
	}
	r.markLost(s)
}

// detectLoss gives up what must be lost by the order of sending, and has the timer
// look again at the rest of what has been overtaken.
func (r *requester) detectLoss(now time.Duration) {
	p := r.repair
	p.news, r.recheckAt = false, 0
	expected, tolerance := max(r.roundTrip.srtt, p.rackRTT), max(r.window.known/4, minTimer)
	for ; p.oldest < len(p.flights); p.oldest++ {
		f := &p.flights[p.oldest]
		f.from = max(f.from, r.una)
		over := f.sentAt + expected + tolerance
		gone := p.rackSentAt >= f.sentAt+tolerance || now >= over
		for f.from < f.to {
			rec := p.record(f.from)
			if rec.sentAt == f.sentAt && rec.state == inFlight {
				if !p.sentBeforeRACK(f.from, f.sentAt) {
					return
				}
				if !gone {
					r.recheckAt = over
					return
				}
				r.markLost(f.from)
			}
			f.from++
		}
	}
	p.flights, p.oldest = p.flights[:0], 0
}
