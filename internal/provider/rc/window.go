package rc

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
)

// A window says how much a requester may have in flight.
//
// Two things hold what is in flight: the path, which holds its rate times its
// delay, and the receive buffer behind it, of Credit bytes, which must never
// overflow and should never run dry. So the window is the one plus the other.
// Rate and delay are measured as BBR does it: the rate is the highest at which
// acknowledgements have lately confirmed deliveries, the delay the shortest
// round trip. In a round trip, no more can be confirmed than was in flight, so
// the window grows by up to Credit per round trip until the rate stops growing:
// then the path is full, and about Credit bytes queue where it is narrowest, or as much as the
// path holds if that is less.
//
// Loss says nothing here. On an emulated link it is mostly what the
// topology asks for, not a queue that overflowed, and a reliable connection of a
// NIC does not slow down for it either.
type window struct {
	credit    int64
	packet    int64 // what a full packet counts, in bytes
	inFlight  int64 // bytes sent, neither acknowledged nor given up for lost, in the same count
	delivered int64 // bytes ever acknowledged, likewise
	lost      int64 // bytes ever given up for lost, likewise

	marks         []mark // packets being timed, a ring in sending order, of a power of 2
	oldest, timed int

	// The rate is the best of this and the last period of ratePeriod round
	// trips, in bytes per second. A round trip ends when what is sent after the
	// last one ended is acknowledged.
	rate, lastRate float64
	roundEnd       int64 // value of delivered

	delay      time.Duration // shortest round trip seen, 0 before the first
	delayAt    time.Duration // when
	known      time.Duration // the same of all connections on the path, 0 likewise
	draining   bool          // to see the delay without our own queue
	pathShared bool          // others' packets wait where ours do
	rounds     int8          // round trips of this period

	onePacket     bool // no more in flight than one packet, until something is acknowledged
	creditLimited bool // something could not be sent for want of credit

	// sharedDelay bounds the round trip on a shared path where the path adds no delay:
	// what fits the receive buffer waits there, and passes at 1 GB/s or more. Where the
	// delay is the path's after all, that much per round trip is as fast.
	sharedDelay time.Duration

	pacer *congestion.Pacer // whose window bounds what is in flight, too; nil if there is none
}

// A mark is a packet that asks for an acknowledgement, and what had been
// delivered when it was sent.
type mark struct {
	sequence  int64
	sentAt    time.Duration
	delivered int64
	lost      int64
	inFlight  int64
	full      bool // as long as a packet can be
}

const (
	ratePeriod = 5
	// hostDelay bounds the round trip where the path adds next to nothing: the time
	// passes in the two hosts, where packets wait in the receive buffer itself.
	hostDelay = 200 * time.Microsecond
	// shortQueue is the most that queues where the path is short, in bytes: more would make
	// no path full that is not already, but leave the processors' caches.
	shortQueue = 1 << 20
	// fewPackets in flight make no queue.
	fewPackets = 4
	// maxMarks bounds the packets that are timed at once.
	maxMarks = 64
)

func newWindow(c *Connection) window {
	w := window{
		credit: int64(c.Credit), packet: int64(c.MTU) + PacketOverhead, pacer: c.Pacer,
		sharedDelay: time.Duration(c.Credit) * time.Nanosecond,
	}
	if w.pacer != nil {
		w.pacer.Count = w.packet
	}
	return w
}

// limit returns how many bytes may be in flight; peerLost says that all that is in flight has to be taken for lost. Packets
// that are sent again do not wait until the path has drained: their acknowledgements tell nothing of the delay (Karn's rule).
func (w *window) limit(peerLost, again bool) int64 {
	if w.onePacket || peerLost {
		return 0
	}
	if w.unbounded() {
		return w.controlled()
	}
	bdp := w.bdp()
	limit := min(w.credit, maxQueue(bdp)) + bdp
	if w.draining && !again {
		limit = min(fewPackets*w.packet, limit)
	}
	return min(limit, w.controlled())
}

// maxQueue returns the most that is worth having in flight beyond what the path holds.
func maxQueue(bdp int64) int64 { return max(shortQueue, bdp) }

// fits reports whether cost bytes more may be in flight, where limit is the limit.
// One packet may, whatever the limit is, unless there is no credit at all; and to send
// again what is not acknowledged takes none.
func (w *window) fits(cost, limit int64, again bool) bool {
	if w.inFlight+cost <= limit || w.inFlight == 0 && (w.credit > 0 || again || w.unbounded()) {
		return true
	}
	w.creditLimited = !w.unbounded() && (w.inFlight == 0 || w.creditLimits(limit))
	return false
}

// creditLimits reports whether more credit would raise limit.
func (w *window) creditLimits(limit int64) bool {
	bdp := w.bdp()
	return limit == w.credit+bdp && w.credit < maxQueue(bdp)
}

// creditInUse returns the bytes in flight beyond what the path holds.
func (w *window) creditInUse() int64 {
	if w.unbounded() {
		return 0
	}
	return max(0, w.inFlight-w.bdp())
}

// creditWanted returns what creditInUse would be with backlog bytes more in flight, as far as
// the window goes. It is 1 at least where nothing is in flight: with no
// credit at all not even the first packet may go, however much the path holds.
func (w *window) creditWanted(backlog int64) int64 {
	if w.unbounded() {
		return 0
	}
	least := int64(0)
	if w.inFlight == 0 {
		least = 1
	}
	bdp := w.bdp()
	return max(least, min(min(w.inFlight+backlog, w.controlled())-bdp, maxQueue(bdp)))
}

// bdp returns how many bytes the path holds: its bandwidth-delay product.
func (w *window) bdp() int64 {
	if w.known <= hostDelay || w.pathShared && w.known <= w.sharedDelay {
		return 0
	}
	return int64(max(w.rate, w.lastRate) * w.known.Seconds())
}

// mark starts to time a packet that is about to be sent and counts cost, unless enough are being timed already.
func (w *window) mark(now time.Duration, sequence, cost int64) {
	if w.timed == len(w.marks) && !w.growMarks() {
		return
	}
	w.marks[(w.oldest+w.timed)&(len(w.marks)-1)] = mark{sequence, now, w.delivered, w.lost, w.inFlight, cost >= w.packet}
	w.timed++
}

// growMarks makes room for more packets to be timed, as long as they are few. Most
// connections have little to do and never need much.
func (w *window) growMarks() bool {
	if len(w.marks) == maxMarks {
		return false
	}
	marks := make([]mark, max(4, 2*len(w.marks)))
	for i := range w.timed {
		marks[i] = w.marks[(w.oldest+i)&(len(w.marks)-1)]
	}
	w.marks, w.oldest = marks, 0
	return true
}

// lastTimed returns how long ago the last packet was sent that is being timed; a long time if none is.
func (w *window) lastTimed(now time.Duration) time.Duration {
	if w.timed == 0 {
		return math.MaxInt64
	}
	return now - w.marks[(w.oldest+w.timed-1)&(len(w.marks)-1)].sentAt
}

// isTimed reports whether a packet is being timed, so that it has asked for an
// acknowledgement.
func (w *window) isTimed(sequence int64) bool {
	for i := range w.timed {
		if w.marks[(w.oldest+i)&(len(w.marks)-1)].sequence == sequence {
			return true
		}
	}
	return false
}

// acknowledged takes note that everything before una is acknowledged, and
// returns how long that took at most, 0 if no packet was timed. It took as long if once
// says that all of what was acknowledged at once had been sent only once: else
// nobody knows what the acknowledgement is for (Karn's rule).
func (w *window) acknowledged(now time.Duration, una int64, once bool) (took time.Duration, sample bool) {
	var first, m mark
	found := false
	for w.timed > 0 && w.marks[w.oldest].sequence < una {
		m = w.marks[w.oldest]
		if !found {
			first, found = m, true
		}
		w.oldest = (w.oldest + 1) & (len(w.marks) - 1)
		w.timed--
	}
	if found {
		took = max(now-m.sentAt, 1)
	}
	w.tellControl(now, now-first.sentAt, found && once && first.full)
	if !found || !once {
		return took, false
	}
	w.sampleDelay(now, took, m.inFlight <= fewPackets*w.packet)
	delivered := w.delivered - m.delivered
	// Lost bytes were in flight too. But where many are lost, it may be the receive
	// buffer that overflows.
	delivered += min(w.lost-m.lost, delivered/4)
	w.sampleRate(float64(delivered)/took.Seconds(), m.delivered)
	return took, true
}

func (w *window) sampleRate(rate float64, from int64) {
	if from >= w.roundEnd {
		w.roundEnd = w.delivered
		if w.rounds++; w.rounds == ratePeriod {
			w.rounds, w.rate, w.lastRate = 0, 0, w.rate
		}
	}
	w.rate = max(w.rate, rate)
}

// setPath takes what all connections on the path know together. As long as that is
// nothing, few packets go to find out: an answer that waits behind a great many of our
// own would tell of those.
func (w *window) setPath(known time.Duration, crowded bool) {
	w.known, w.pathShared = known, crowded
	if w.delay == 0 {
		w.draining = known == 0
	}
}

// sampleDelay keeps the shortest round trip. Paths change: after a while it is
// forgotten and, unless the packet was alone on the way, measured anew with
// next to nothing in flight. On a path that is shared that would measure the others' queue: what
// the path was then taken to hold would lengthen that queue, and so for ever.
func (w *window) sampleDelay(now, took time.Duration, alone bool) {
	old := now-w.delayAt > max(time.Second, 50*w.delay) && !w.pathShared
	w.draining = old && !alone
	if old && alone {
		w.delay, w.known = took, took
		w.delayAt = now
	}
	if w.delay == 0 || took <= w.delay {
		w.delay, w.delayAt, w.draining = took, now, false
	}
	if w.known == 0 || took < w.known {
		w.known = took
	}
}
