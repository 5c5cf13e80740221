package provider

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A moderation bounds the time for which a CQ's notifications may be held back, in
// the hope that one serves more completions. It begins when an arm is satisfied. It
// ends, and the consumer is told, when interval has passed, when count entries are
// queued, whatever their kind and however old, or when the queue is full: the next
// completion would overrun it. Entries that the consumer takes meanwhile count no
// longer. Failures are told at once.
type moderation struct {
	interval time.Duration // 0: no moderation
	count    uint32

	delayed bool // the arm is satisfied and its notification held back
	since   time.Duration
	timer   clock.Timer
}

// forever is the interval that never ends.
const forever = time.Duration(math.MaxInt64)

// ControlInterruptModeration has notifications held back for interval
// microseconds at most, and not when count entries are queued. There is no
// moderation, as for a new CQ, with an interval of 0 or a count of 0 or 1. With
// an interval of math.MaxUint32 count alone governs; with a count of
// math.MaxUint32 or more than the depth, interval alone; of both at once,
// nothing would be told: StatusInvalidParameterMix. A notification that is being
// held back follows the new settings at once. Without AdapterCQInterruptModeration
// the result is StatusNotSupported.
func (cq *CQ) ControlInterruptModeration(interval, count uint32) Status {
	if cq.adapter.miniport.info.AdapterFlags&AdapterCQInterruptModeration == 0 {
		return StatusNotSupported
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if interval == math.MaxUint32 && uint64(count) > uint64(cq.depth) {
		return StatusInvalidParameterMix
	}
	m := &cq.moderation
	m.interval, m.count = time.Duration(interval)*time.Microsecond, count
	switch {
	case count <= 1:
		m.interval = 0
	case interval == math.MaxUint32:
		m.interval = forever
	}
	cq.moderate()
	return StatusSuccess
}

// notifyOrModerate has the consumer told that what it armed for has happened, now or
// as moderation has it. cq.mu is held.
func (cq *CQ) notifyOrModerate() {
	m := &cq.moderation
	switch {
	case m.interval == 0, cq.isCountReached():
		cq.notify(StatusSuccess)
	case !m.delayed:
		m.delayed, m.since = true, cq.clock.Now()
		cq.moderate()
	}
}

// isCountReached reports whether so many entries are queued that a notification is not
// held back. cq.mu is held.
func (cq *CQ) isCountReached() bool {
	return uint64(cq.count) >= min(uint64(cq.moderation.count), uint64(cq.depth))
}

// moderate tells the consumer what has been held back for long enough, and sets
// the timer for what has not. cq.mu is held.
func (cq *CQ) moderate() {
	m := &cq.moderation
	if !m.delayed {
		return
	}
	left := forever
	if m.interval != forever {
		left = m.since + m.interval - cq.clock.Now()
	}
	switch {
	case left <= 0, cq.isCountReached():
		cq.notify(StatusSuccess)
	case left == forever:
	case m.timer == nil:
		m.timer = cq.clock.AfterFunc(left, cq.moderationTimeout)
	default:
		m.timer.Reset(left)
	}
}

// moderationTimeout runs at the end of the interval, or later or earlier if
// things have changed since the timer was set.
func (cq *CQ) moderationTimeout() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.moderate()
}

// stopModeration ends the timer for good: nothing satisfies the arm of a closed
// queue.
func (cq *CQ) stopModeration() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.moderation.delayed = false
	if cq.moderation.timer != nil {
		cq.moderation.timer.Stop()
	}
}
