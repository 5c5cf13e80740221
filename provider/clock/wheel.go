package clock

import (
	"math/bits"
	"time"
)

// This file is the queue of a Virtual clock: a hierarchy of timing wheels (Varghese and Lauck, SOSP'87), scheme 6 and 7
// of that paper, whose slots at the lowest level are one nanosecond wide. So events of one slot are due at one instant.
// It takes no comparison of instants, and no time that grows with the number of events, to add, remove or find one.

const (
	// slotBits has the lowest wheel span 4 us, which most events of a simulated network are due within: those are put once. Others
	// are put again for each wheel that they come down.
	slotBits = 2 * wordBits
	wordBits = 6             // 64 slots are a word of a wheel's bits
	slots    = 1 << slotBits // of a wheel
	wheels   = (64 + slotBits - 1) / slotBits
)

// A wheel has the events whose instants agree with the queue's base in all digits (of slotBits each) above the wheel's, and
// differ in that of the wheel. At the lowest wheel, that may be the same, too. All are due later than those of lower wheels.
type wheel struct {
	words  uint64                    // bit i: filled[i] is not 0
	filled [slots >> wordBits]uint64 // bit i of word w: slot 64w+i has events
	slots  [slots]slot
}

// A slot is a list of events; at the lowest wheel, in their order.
type slot struct{ first, last *VirtualTimer }

// A queue is the events that are pending. No event is due before base.
type queue struct {
	base   time.Duration
	head   *VirtualTimer // the event that is due next, if peek was called since others came and went; else nil
	filled uint          // bit i: wheel i has events
	wheels [wheels]*wheel
}

// put adds an event.
func (q *queue) put(e *VirtualTimer) {
	if q.head != nil && e.precedes(q.head) {
		q.head = e
	}
	number := 0
	if differ := uint64(e.at ^ q.base); differ >= slots {
		number = (bits.Len64(differ) - 1) / slotBits
	}
	w := q.wheels[number]
	if w == nil {
		w = new(wheel)
		q.wheels[number] = w
	}
	i := uint16(e.at>>(number*slotBits)) % slots
	e.wheel, e.slot, e.pending = uint8(number), i, true
	w.filled[i>>wordBits] |= 1 << (i % 64)
	w.words |= 1 << (i >> wordBits)
	q.filled |= 1 << number
	s := &w.slots[i]
	before := s.last
	if number == 0 { // the event may have a turn before that of others which are there already
		for before != nil && before.seq > e.seq {
			before = before.before
		}
	}
	s.insert(e, before)
}

// insert adds an event behind another; nil: in front of all.
func (s *slot) insert(e, before *VirtualTimer) {
	behind := s.first
	if before != nil {
		behind = before.behind
		before.behind = e
	} else {
		s.first = e
	}
	if behind != nil {
		behind.before = e
	} else {
		s.last = e
	}
	e.before, e.behind = before, behind
}

// remove takes out an event that is pending.
func (q *queue) remove(e *VirtualTimer) {
	if e == q.head {
		q.head = nil
	}
	w := q.wheels[e.wheel]
	s := &w.slots[e.slot]
	if e.before != nil {
		e.before.behind = e.behind
	} else {
		s.first = e.behind
	}
	if e.behind != nil {
		e.behind.before = e.before
	} else {
		s.last = e.before
	}
	e.before, e.behind, e.pending = nil, nil, false
	if s.first == nil {
		q.emptied(e.wheel, e.slot)
	}
}

// emptied takes note of a slot that has no events any more.
func (q *queue) emptied(number uint8, i uint16) {
	w := q.wheels[number]
	word := i >> wordBits
	if w.filled[word] &^= 1 << (i % 64); w.filled[word] != 0 {
		return
	}
	if w.words &^= 1 << word; w.words == 0 {
		q.filled &^= 1 << number
	}
}

// first returns the slot with the event that is due next, and its wheel; false if none is.
func (q *queue) first() (number uint8, i uint16, ok bool) {
	if q.filled == 0 {
		return 0, 0, false
	}
	number = uint8(bits.TrailingZeros(q.filled))
	w := q.wheels[number]
	word := bits.TrailingZeros64(w.words) % len(w.filled)
	return number, uint16(word<<wordBits + bits.TrailingZeros64(w.filled[word])), true
}

// peek returns the event that is due next; nil if none is.
func (q *queue) peek() *VirtualTimer {
	if q.head != nil {
		return q.head
	}
	number, i, ok := q.first()
	if !ok {
		return nil
	}
	head := q.wheels[number].slots[i].first
	if number > 0 {
		for e := head.behind; e != nil; e = e.behind {
			if e.precedes(head) {
				head = e
			}
		}
	}
	q.head = head
	return head
}

// precedes reports whether an event is due before another.
func (e *VirtualTimer) precedes(other *VirtualTimer) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// take takes out the event that is due next, unless that is later than an instant; nil if there is none.
func (q *queue) take(until time.Duration) *VirtualTimer {
	for {
		number, i, ok := q.first()
		if !ok {
			return nil
		}
		s := &q.wheels[number].slots[i]
		e := s.first
		if number == 0 || e == s.last {
			if e.at > until {
				return nil
			}
			q.base = e.at // which all others are not before, and differ from in the same digit as before
			q.remove(e)
			return e
		}
		shift := number * slotBits
		begin := e.at >> shift << shift
		if begin > until {
			return nil
		}
		q.base = begin
		*s = slot{}
		q.emptied(number, i)
		for e != nil {
			behind := e.behind
			q.put(e)
			e = behind
		}
	}
}
