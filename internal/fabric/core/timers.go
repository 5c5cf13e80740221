package core

import (
	"slices"
	"time"
)

// A timer calls a function at a time.
type timer struct {
	at      time.Duration // 0: the timer is stopped
	expired func()
}

func (t *timer) stop() { t.at = 0 }

// timers are the timers that are set, in no order, and some that were stopped.
type timers []*timer

// set sets a timer.
func (ts *timers) set(t *timer, at time.Duration) {
	t.at = at
	if !slices.Contains(*ts, t) {
		*ts = append(*ts, t)
	}
}

// deadline returns when the first timer expires; false if none is set.
func (ts timers) deadline() (at time.Duration, ok bool) {
	for _, t := range ts {
		if t.at > 0 && (!ok || t.at < at) {
			at, ok = t.at, true
		}
	}
	return at, ok
}

// expire calls the functions of the timers that expire until now, and removes the timers that are stopped.
func (ts *timers) expire(now time.Duration) {
	for _, t := range slices.Clone(*ts) {
		if t.at > 0 && t.at <= now {
			t.stop()
			t.expired()
		}
	}
	*ts = slices.DeleteFunc(*ts, func(t *timer) bool { return t.at == 0 })
}
