package rc

import (
	"time"

	"github.com/ndklab/ndklab/provider/roce"
)

// A repair is what a requester knows of the range [una, max) packet by packet,
// from the first sign that something in it is missing until all of that has
// been acknowledged. It exists where the responder keeps what arrives early
// (early.go); elsewhere the cursor goes back.
//
// What is missing is told from the order of sending, as RACK does it (RFC 8985):
// a packet is lost if one that was sent later has arrived, and either that one
// was sent a good while later or the round trip of this one is over by as much.
// The order of sending, not of sequence numbers, so a packet that is lost a
// second time is missed as soon as the first time. The good while is a quarter of
// the round trip: packets that overtake each other by less have nothing sent again.
//
// The responses to READs are kept early too, and take part as if they were the
// packets that asked for them.
type repair struct {
	on      bool
	records []record // a sequence number is in slot itself modulo the length, a power of two
	flights []flight // in the order of sending; those before oldest are dealt with
	oldest  int

	lost   int   // records with that fate
	lowest int64 // no packet before it is lost
	early  int   // records that have arrived
	// waiting is what the responses cost that wait, in bytes: part of inFlight.
	// Nothing comes of them for now, so as much again may be in flight.
	waiting int64
	until   int64 // una when it is over

	executed int64 // the responder has executed everything before it
	// Of all packets that have arrived, one was sent last: when, which, and how
	// long it took to know. latest is negative if none has arrived.
	latest         time.Duration
	latestSequence int64
	took           time.Duration
	news           bool // something has arrived since detect

	responses earlyStore
}

// A fate is what became of a sequence number.
type fate uint8

const (
	flying  fate = iota
	waiting      // of a READ: the request has arrived, but waits for what is missing before it
	arrived      // or its response has
	lost
)

type record struct {
	sentAt time.Duration
	cost   int32 // as window counts it
	fate   fate
	again  bool // sent more than once
	read   bool
}

// A flight is a run of sequence numbers sent at once.
type flight struct {
	from, to int64
	sentAt   time.Duration
}

func (p *repair) record(sequence int64) *record {
	return &p.records[sequence&int64(len(p.records)-1)]
}

// begin starts keeping records. All that is known of what is in flight is when
// the packets were sent that are being timed.
func (r *requester) begin(now time.Duration) {
	p := &r.repair
	if p.on {
		return
	}
	p.on = true
	p.until, p.executed, p.lowest = r.max, r.una, r.una
	p.latest, p.took = -1, 0
	r.outstanding = reach(r.q.connection.MTU) // more would not be kept
	if w := r.slot(r.head); w.op == OpRead && (r.una-w.first)%r.chunk != 0 {
		p.executed = r.chunkEnd(w, r.una) // a part of the response is here
	}
	r.makeRoom(r.max)
	sequence := r.una
	for i := range r.window.timed {
		m := &r.window.marks[(r.window.oldest+i)%len(r.window.marks)]
		end := m.sequence + 1
		if w := r.slot(r.indexOf(m.sequence)); w.op == OpRead {
			end = r.chunkEnd(w, m.sequence)
		}
		r.note(sequence, end, m.sentAt)
		sequence = max(sequence, end)
	}
	r.note(sequence, r.max, now) // at the latest
	index := r.head
	for s := r.una; s < r.max; s++ {
		for s >= r.slot(index).end {
			index++
		}
		w := r.slot(index)
		rec := p.record(s)
		rec.cost, rec.read = int32(r.cost(w, s, s+1)), w.op == OpRead
	}
}

// makeRoom has records for sequence numbers from una up to end.
func (r *requester) makeRoom(end int64) {
	p := &r.repair
	if end-r.una <= int64(len(p.records)) {
		return
	}
	size := max(64, len(p.records))
	for int64(size) < end-r.una {
		size *= 2
	}
	records := make([]record, size)
	if len(p.records) > 0 {
		for s := r.una; s < min(end, r.una+int64(len(p.records))); s++ {
			records[s&int64(size-1)] = *p.record(s)
		}
	}
	p.records = records
}

// note records that [from, to) were sent.
func (r *requester) note(from, to int64, sentAt time.Duration) {
	if from >= to {
		return
	}
	p := &r.repair
	for s := from; s < to; s++ {
		*p.record(s) = record{sentAt: sentAt}
	}
	r.fly(from, to, sentAt)
}

func (r *requester) fly(from, to int64, sentAt time.Duration) {
	p := &r.repair
	if n := len(p.flights); n > p.oldest && p.flights[n-1].to == from && p.flights[n-1].sentAt == sentAt {
		p.flights[n-1].to = to
		return
	}
	if len(p.flights) == cap(p.flights) && p.oldest > len(p.flights)/2 {
		p.flights = p.flights[:copy(p.flights, p.flights[p.oldest:])]
		p.oldest = 0
	}
	p.flights = append(p.flights, flight{from, to, sentAt})
}

// sentNew records a packet of w that is sent for the first time and takes up
// [from, to).
func (r *requester) sentNew(now time.Duration, w *request, from, to int64) {
	r.makeRoom(to)
	r.note(from, to, now)
	for s := from; s < to; s++ {
		rec := r.repair.record(s)
		rec.cost, rec.read = int32(r.cost(w, s, s+1)), w.op == OpRead
	}
}

// arrive notes that a sequence number has reached the responder or, of a READ,
// that its response is here.
func (r *requester) arrive(now time.Duration, s int64) {
	p := &r.repair
	rec := p.record(s)
	switch rec.fate {
	case arrived:
		return
	case lost:
		p.lost--
	case waiting:
		p.waiting -= int64(rec.cost)
		fallthrough
	default:
		r.inFlight -= int64(rec.cost)
	}
	rec.fate = arrived
	p.early++
	r.window.delivered += int64(rec.cost)
	r.overtake(now, s, rec)
}

// overtake notes that a packet has arrived in the order of sending.
func (r *requester) overtake(now time.Duration, s int64, rec *record) {
	p := &r.repair
	if rec.again && now-rec.sentAt < r.window.delay {
		return // that was the first one after all
	}
	if rec.sentAt > p.latest || rec.sentAt == p.latest && s > p.latestSequence {
		p.latest, p.latestSequence, p.took = rec.sentAt, s, now-rec.sentAt
	}
}

// lose gives a sequence number up for lost. A READ request that has not been
// executed is lost as a whole: in parts it would be more requests than the
// responder has resources for.
func (r *requester) lose(s int64) {
	p := &r.repair
	end := s + 1
	if s >= p.executed && p.record(s).read {
		w := r.slot(r.indexOf(s))
		s -= (s - w.first) % r.chunk
		end = r.chunkEnd(w, s)
	}
	for ; s < end; s++ {
		rec := p.record(s)
		switch rec.fate {
		case arrived, lost:
			continue
		case waiting:
			p.waiting -= int64(rec.cost)
		}
		rec.fate = lost
		r.inFlight -= int64(rec.cost)
		r.window.lost += int64(rec.cost)
		p.lost++
		p.lowest = min(p.lowest, s)
	}
	p.until = max(p.until, r.max)
}

// drop notes that the responder does not have what it may have reported: for
// want of a receive it has dropped the packet when its turn came. The oldest
// packet is taken for dropped when the timer runs out, whatever was reported;
// what its acknowledgement then tells of the rest is the order of sending.
func (r *requester) drop(s int64) {
	p := &r.repair
	if rec := p.record(s); rec.fate == arrived && s >= p.executed {
		rec.fate = flying
		p.early--
		r.inFlight += int64(rec.cost)
		r.window.delivered -= int64(rec.cost)
	}
	r.lose(s)
}

// detect gives up what must be lost by the order of sending, and has the timer
// look again at the rest of what has been overtaken.
func (r *requester) detect(now time.Duration) {
	p := &r.repair
	p.news, r.againAt = false, 0
	expected, tolerance := max(r.roundTrip.mean, p.took), max(r.window.delay/4, shortestPause)
	if r.roundTrip.mean == 0 {
		tolerance = r.roundTrip.timeout()
	}
	for ; p.oldest < len(p.flights); p.oldest++ {
		f := &p.flights[p.oldest]
		f.from = max(f.from, r.una)
		over := f.sentAt + expected + tolerance
		gone := p.latest >= f.sentAt+tolerance || now >= over
		for f.from < f.to {
			rec := p.record(f.from)
			if rec.sentAt == f.sentAt && rec.fate == flying {
				if f.sentAt > p.latest || f.sentAt == p.latest && f.from > p.latestSequence {
					return // not overtaken
				}
				if !gone {
					r.againAt = over
					return
				}
				r.lose(f.from)
			}
			f.from++
		}
	}
	p.flights, p.oldest = p.flights[:0], 0
}

// resend makes the packet for the lowest sequence number that is lost; false if
// it cannot be sent now. The oldest packet of all always can: everything waits
// for it.
func (r *requester) resend(now time.Duration, packet *roce.Packet) bool {
	p := &r.repair
	s := max(p.lowest, r.una)
	for p.record(s).fate != lost {
		s++
	}
	p.lowest = s
	w := r.slot(r.indexOf(s))
	if w.status != Success {
		return false
	}
	end, most := s+1, s+1
	if w.op == OpRead {
		most = r.chunkEnd(w, s)
	}
	cost := int64(p.record(s).cost)
	for end < most && p.record(end).fate == lost {
		cost += int64(p.record(end).cost)
		end++
	}
	limit := r.limit()
	if s > r.una && r.inFlight > 0 && r.inFlight+cost > limit || !r.make(w, s, end, packet) {
		return false
	}
	r.unasked++
	if w.op == OpRead || end == r.max || p.record(end).fate != lost ||
		r.unasked >= askEvery || r.inFlight+2*cost > limit {
		packet.Header.AckReq = true
		r.unasked = 0
	}
	if r.inFlight == 0 {
		r.resendAt = now + r.roundTrip.timeout()
	}
	for at := s; at < end; at++ {
		rec := p.record(at)
		rec.fate, rec.again, rec.sentAt = flying, true, now
	}
	r.fly(s, end, now)
	p.lost -= int(end - s)
	p.lowest = end
	p.until = max(p.until, r.max)
	r.inFlight += cost
	r.resent = max(r.resent, end)
	r.waiting = false
	r.q.counters.Retransmitted++
	return true
}

// indexOf is the index of the request that a sequence number in [una, max) is
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

// passRecords takes the records of [una, to) off the accounts.
func (r *requester) passRecords(now time.Duration, to int64) {
	for s := r.una; s < to; s++ {
		r.arrive(now, s)
		r.repair.early--
	}
}

// selectiveAcknowledge takes the peer's word for what has arrived.
func (r *requester) selectiveAcknowledge(now time.Duration, h *roce.Header, at int64) {
	newest := extend(h.MSN, at)
	if newest < at || newest >= r.max {
		r.fail(r.head, BadResponse)
		return
	}
	r.q.counters.AcknowledgementsReceived++
	r.begin(now)
	r.executedTo(now, at)
	if r.q.state != Ready {
		return
	}
	news := false
	for s := max(newest-mapBits, r.una); s <= newest; s++ {
		if s < newest && h.Original>>(newest-1-s)&1 == 0 {
			continue
		}
		if rec := r.repair.record(s); s < r.repair.executed || rec.fate == arrived || rec.fate == waiting {
			continue
		} else if rec.read {
			r.waitFor(now, s)
		} else {
			r.arrive(now, s)
		}
		news = true
	}
	if news {
		r.heard(now, newest)
	}
	if !h.Solicited {
		r.settle(now)
	}
}

// waitFor notes that the READ request that begins with sequence number s is kept
// by the responder until its turn comes.
func (r *requester) waitFor(now time.Duration, s int64) {
	w := r.slot(r.indexOf(s))
	if (s-w.first)%r.chunk != 0 {
		return
	}
	r.overtake(now, s, r.repair.record(s))
	for end := r.chunkEnd(w, s); s < end; s++ {
		rec := r.repair.record(s)
		switch rec.fate {
		case arrived, waiting:
			continue
		case lost:
			r.repair.lost--
			r.inFlight += int64(rec.cost)
		}
		rec.fate = waiting
		r.repair.waiting += int64(rec.cost)
	}
}

// heard notes that the packet with sequence number s, and perhaps others, have
// arrived early.
func (r *requester) heard(now time.Duration, s int64) {
	if sample, ok := r.window.acknowledged(now, s+1, !r.repair.record(s).again); ok {
		r.roundTrip.sample(sample)
	}
	r.resendAt = now + r.roundTrip.timeout()
}

// executedTo notes that the responder has executed everything before sequence
// number to, and moves una as far as responses to READs let it. Those that
// responses are missing from are on their way from now on, if they waited.
func (r *requester) executedTo(now time.Duration, to int64) {
	p := &r.repair
	for s := max(p.executed, r.una); s < to; s++ {
		switch rec := p.record(s); {
		case !rec.read:
			r.arrive(now, s)
		case rec.fate == waiting:
			p.waiting -= int64(rec.cost)
			rec.fate, rec.sentAt, rec.again = flying, now, true
			r.fly(s, s+1, now)
		}
	}
	p.executed = max(p.executed, to)
	r.proceed(now)
}

// proceed moves una over everything that is known to be there.
func (r *requester) proceed(now time.Duration) {
	for r.q.state == Ready && (r.una >= r.repair.executed || !r.advance(now, r.repair.executed)) {
		response := r.repair.responses.take(r.una)
		if response == nil {
			return
		}
		r.place(now, &response.header, response.sequence, response.payload)
		r.repair.responses.giveBack(response)
	}
}

// settle ends the repair if nothing is missing. Otherwise conclusions are drawn
// when the next packet is made: by then everything that has arrived together has
// been handled, in whichever order.
func (r *requester) settle(now time.Duration) {
	if r.q.state != Ready {
		return
	}
	p := &r.repair
	p.news = true
	p.responses.settle(r.una)
	if r.una >= p.until && p.lost == 0 && p.early == 0 && p.waiting == 0 {
		p.on, p.news = false, false
		r.outstanding, r.againAt = maxOutstanding, 0
		p.flights, p.oldest = p.flights[:0], 0
	}
}

// acknowledgedTo takes an acknowledgement of everything before sequence number
// to from a responder that keeps what arrives early.
func (r *requester) acknowledgedTo(now time.Duration, to int64) {
	if !r.repair.on && r.advance(now, to) {
		return
	}
	r.begin(now)
	r.executedTo(now, to)
	r.settle(now)
}

// response takes a packet of a READ's data where those that arrive early are
// kept. It also says that everything before it has been executed.
func (r *requester) response(now time.Duration, h *roce.Header, at int64, payload []byte) {
	if r.repair.on || !r.advance(now, at) {
		r.begin(now)
		end := at + 1
		if r.repair.record(at).read {
			end = r.chunkEnd(r.slot(r.indexOf(at)), at)
		}
		r.executedTo(now, end)
		if r.q.state != Ready || at < r.una {
			r.settle(now)
			return
		}
	}
	if at == r.una {
		r.place(now, h, at, payload)
		if r.repair.on {
			r.proceed(now)
			r.settle(now)
		}
		return
	}
	r.q.counters.OutOfSequence++
	p := &r.repair
	if !p.record(at).read {
		r.fail(r.head, BadResponse)
		return
	}
	if p.responses.at(at) == nil && at-r.una < reach(r.q.connection.MTU) {
		p.responses.keep(r.una, at, at+1, h, payload)
		r.arrive(now, at)
		r.heard(now, at)
	}
	r.settle(now)
}
