package clock

import (
	"sync"
	"time"
)

// Precise returns a clock that tells the time of c and is woken as precisely as can be. It is for waits of which each
// microsecond counts, such as those between the packets of a queue pair that sends at a rate of its own. Each wake-up
// of a real one costs a system call more than one of c.
//
// A clock of another package has a method Precise to take part; one that has none is as precise as it is.
func Precise(c Clock) Clock {
	if p, ok := c.(interface{ Precise() Clock }); ok {
		return p.Precise()
	}
	return c
}

// Precise implements what the function Precise asks for.
func (realClock) Precise() Clock { return preciseClock{} }

// lateness bounds the lateness of Go's timers on Linux: the runtime waits for them in epoll_wait, whose unit is the
// millisecond (netpoll_epoll.go). Waits of that or more are left to them, and those that are over.
const lateness = time.Millisecond

// A preciseClock is the real clock, but that its short waits end within some tens of microseconds, by theAlarm.
//
// A timer that is set again and again for longer waits, as that of a retransmission is, costs no system call; one for a short
// wait costs one only if it is due before all others.
type preciseClock struct{ realClock }

// AfterFunc implements Clock.
func (preciseClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &preciseTimer{short: event{f: f}}
	t.Reset(d)
	return t
}

// A preciseTimer is one of Go's for a long wait, and an event of theAlarm for a short one. At most one of them is pending.
type preciseTimer struct {
	mu      sync.Mutex // guards what follows; locked before theAlarm's
	long    *time.Timer
	short   event // locked by theAlarm
	isShort bool  // short was set, and not stopped since
}

// Stop implements Timer.
func (t *preciseTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop()
}

func (t *preciseTimer) stop() bool {
	pending := t.long != nil && t.long.Stop()
	if !t.isShort {
		return pending // without theAlarm's lock, which all timers share
	}
	t.isShort = false
	return theAlarm.stop(&t.short) || pending
}

// Reset implements Timer.
func (t *preciseTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := t.stop()
	switch {
	case 0 < d && d < lateness:
		t.isShort = true
		theAlarm.set(&t.short, Real().Now()+d)
	case t.long == nil:
		t.long = time.AfterFunc(d, t.short.f)
	default:
		t.long.Reset(d)
	}
	return pending
}
