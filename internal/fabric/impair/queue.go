package impair

import (
	"math"
	"math/bits"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// Unless it is bounded otherwise, the queue before a direction with a rate holds
// this much; what comes when it is full is dropped. The first is about 1000
// packets of 4 KiB, what a Linux interface queues; the second lets fast links
// absorb the bursts that fast senders make.
const (
	queueBytes = 4 << 20
	queueTime  = 50 * time.Millisecond
)

// A queue holds the packets that wait for the rate.
//
// It is a token bucket, kept as the instant at which a wire of just the rate
// would have sent all packets so far: the bucket is full if that is a burst's
// time ago, and empty if it is now. Instants are exact, to a fraction of a
// nanosecond.
type queue struct {
	rate    uint64 // bits per second; 0: nothing waits
	limit   topology.Queue
	burst   instant // how long the rate takes for a burst
	free    instant // when that wire has sent all
	waiting []waiting
	head    int    // of waiting: what is before has left
	backlog uint64 // wire bytes of those from head on
}

// An instant is a time in ns and, in units of 1/rate ns, what it lacks.
type instant struct {
	ns   time.Duration
	rest uint64
}

func (a instant) before(b instant) bool { return a.ns < b.ns || a.ns == b.ns && a.rest < b.rest }

// waiting is a packet in the queue or in transmission.
type waiting struct {
	sent time.Duration // when its transmission ends
	wire uint64        // bytes
}

// set changes the settings at an instant. Packets that wait keep their departures. A rate
// after none begins with a full bucket.
func (q *queue) set(s *topology.Impairment, at time.Duration) {
	begins := q.rate == 0
	if q.rate != s.Rate {
		q.rate, q.free.rest = s.Rate, 0 // the unit changes
	}
	if q.rate == 0 {
		return
	}
	most := bytesIn(q.rate)
	q.burst = q.takes(min(s.Burst, most), 0)
	if full := q.full(at); begins && q.free.before(full) {
		q.free = full
	}
	q.limit = s.Queue
	switch {
	case q.limit == (topology.Queue{}):
		q.limit.Bytes = max(queueBytes, q.rate/8/uint64(time.Second/queueTime))
	case q.limit.Bytes == 0:
		q.limit.Bytes = most
	}
	q.limit.Bytes = min(q.limit.Bytes, most)
	if q.limit.Packets == 0 {
		q.limit.Packets = math.MaxUint64
	}
}

// maxWait bounds how long a queue or a burst lasts, so that instants stay in
// range, seconds: ten years.
const maxWait = 10 * 365 * 24 * 3600

// bytesIn returns what a rate sends in that time.
func bytesIn(rate uint64) uint64 {
	high, low := bits.Mul64(rate, maxWait/8)
	if high > 0 {
		return math.MaxUint64
	}
	return low
}

// takes returns how long the rate takes for so many bytes, and a rest.
func (q *queue) takes(bytes, rest uint64) instant {
	high, low := bits.Mul64(bytes, 8*uint64(time.Second))
	low, carry := bits.Add64(low, rest, 0)
	ns, rest := bits.Div64(high+carry, low, q.rate)
	return instant{time.Duration(ns), rest}
}

// room reports whether the queue has room for a packet.
func (q *queue) room(wire uint64, at time.Duration) bool {
	q.leave(at)
	return wire <= q.limit.Bytes && q.backlog <= q.limit.Bytes-wire && uint64(len(q.waiting)-q.head) < q.limit.Packets
}

// transmit returns when the last bit of a packet has left the sender.
func (q *queue) transmit(wire uint64, at time.Duration) (sent time.Duration) {
	if full := q.full(at); q.free.before(full) {
		q.free = full
	}
	// The rest is carried, so that a rate is exact however short the packets.
	took := q.takes(wire, q.free.rest)
	q.free = instant{q.free.ns + took.ns, took.rest}
	sent = max(at, q.free.ns)
	q.push(waiting{sent, wire})
	return sent
}

// full returns free of a full bucket.
func (q *queue) full(at time.Duration) instant {
	if q.burst.rest == 0 {
		return instant{ns: at - q.burst.ns}
	}
	return instant{at - q.burst.ns - 1, q.rate - q.burst.rest}
}

// leave removes from the queue what has been sent by an instant.
func (q *queue) leave(at time.Duration) {
	for q.head < len(q.waiting) && q.waiting[q.head].sent <= at {
		q.backlog -= q.waiting[q.head].wire
		q.head++
	}
}

// push appends to the queue, reusing the room of those that have left.
func (q *queue) push(w waiting) {
	if len(q.waiting) == cap(q.waiting) && 2*q.head >= len(q.waiting) && q.head > 0 {
		q.waiting = q.waiting[:copy(q.waiting, q.waiting[q.head:])]
		q.head = 0
	}
	q.waiting = append(q.waiting, w)
	q.backlog += w.wire
}

// FreeAt returns the instant from which the next packet would not wait for the rate. It is past where nothing waits.
func (d *Direction) FreeAt() time.Duration {
	free := d.queue.free
	if free.rest > 0 {
		free.ns++
	}
	return free.ns
}

// Backlog returns what waits for the rate or is in transmission, in packets and wire
// bytes, as of the last packet that was decided on.
func (d *Direction) Backlog() (packets int, bytes uint64) {
	return len(d.queue.waiting) - d.queue.head, d.queue.backlog
}
