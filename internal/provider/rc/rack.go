package rc

import (
	"slices"
	"time"
)

// This file tells what is lost from the order of sending, as RACK does (RFC 8985):
// a packet is lost if one that was sent later has arrived, and either that one
// was sent the reordering window later or the round trip of this one is over by as much.
// The order is that of sending, not of sequence numbers, so a packet that is lost a
// second time is missed as soon as the first time. The reordering window is a quarter of
// the round trip: packets that overtake each other by less have nothing sent again.

// A rack has the packet that was sent last of all that have arrived (RFC 8985, 5.2).
type rack struct {
	sentAt   time.Duration // negative if none has arrived
	sequence int64
	rtt      time.Duration // time from sentAt until it was known to have arrived
}

func (r *rack) reset() { r.sentAt, r.rtt = -1, 0 }

// isAfter reports whether the packet was sent after the one with sequence number s that was sent at a time.
func (r *rack) isAfter(s int64, sentAt time.Duration) bool {
	return sentAt < r.sentAt || sentAt == r.sentAt && s < r.sequence
}

// updateRACK notes in the order of sending that a packet has arrived.
func (b *scoreboard) updateRACK(now time.Duration, s int64) {
	rec := b.record(s)
	if rec.waited || rec.resent && now-rec.sentAt < b.window.known {
		return // or that was the first one after all: no round trip is as short (RFC 8985 6.2)
	}
	if rec.sentAt > b.rack.sentAt || rec.sentAt == b.rack.sentAt && s > b.rack.sequence {
		b.rack = rack{rec.sentAt, s, now - rec.sentAt}
	}
}

// A transmission is a run of sequence numbers sent at once.
type transmission struct {
	from, to int64
	sentAt   time.Duration
}

// transmissions are in the order of sending. Those before oldest are dealt with.
type transmissions struct {
	list   []transmission
	oldest int
}

func (t *transmissions) clear() { t.list, t.oldest = t.list[:0], 0 }

// addTransmission notes that [from, to) were sent.
func (b *scoreboard) addTransmission(from, to int64, sentAt time.Duration) {
	t := &b.transmissions
	if len(t.list) == cap(t.list) {
		b.removeFinished()
	}
	at := len(t.list)
	for at > t.oldest && t.list[at-1].sentAt > sentAt {
		at--
	}
	if at > t.oldest && t.list[at-1].to == from && t.list[at-1].sentAt == sentAt {
		t.list[at-1].to = to
		return
	}
	t.list = slices.Insert(t.list, at, transmission{from, to, sentAt})
}

// removeFinished removes the transmissions of which nothing is in flight any more, and makes room for as
// many as are left: so there are never many more than records.
func (b *scoreboard) removeFinished() {
	t := &b.transmissions
	t.list = t.list[:copy(t.list, t.list[t.oldest:])]
	t.oldest = 0
	t.list = slices.DeleteFunc(t.list, func(f transmission) bool {
		for s := f.from; s < f.to; s++ {
			if rec := b.record(s); rec.state == inFlight && rec.sentAt == f.sentAt {
				return false
			}
		}
		return true
	})
	t.list = slices.Grow(t.list, max(len(t.list), 16))
}

// detectLoss gives up what must be lost by the order of sending, where srtt is the smoothed round trip. It returns when to
// look again at the rest of what has been overtaken, 0 if there is none.
func (b *scoreboard) detectLoss(now, srtt time.Duration) (recheckAt time.Duration) {
	b.changed = false
	t := &b.transmissions
	expected, reorderingWindow := max(srtt, b.rack.rtt), max(b.window.known/4, minTimer)
	for ; t.oldest < len(t.list); t.oldest++ {
		f := &t.list[t.oldest]
		f.from = max(f.from, b.queue.una)
		over := f.sentAt + expected + reorderingWindow
		gone := b.rack.sentAt >= f.sentAt+reorderingWindow || now >= over
		for f.from < f.to {
			rec := b.record(f.from)
			if rec.sentAt == f.sentAt && rec.state == inFlight {
				if !b.rack.isAfter(f.from, f.sentAt) {
					return 0
				}
				if !gone {
					return over
				}
				b.markLost(f.from)
			}
			f.from++
		}
	}
	t.clear()
	return 0
}
