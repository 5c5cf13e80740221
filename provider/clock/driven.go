package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/priority"
)

// Driven returns a clock that tells the time of c, and whose timers somebody can run who has a processor anyway: they call
// advance often, several times in each half of a millisecond, which runs the functions that are due, one after the other, on the
// calling goroutine. While they do, no thread is woken for a timer. When they have stopped, what is due in the half of a
// millisecond from the next function on runs at its end, as far as a processor is free, and the others when timers of c would. A
// function must return soon, and may call advance.
//
// A clock of another package has a method Driven to take part; one that has none runs its timers itself, and advance does nothing.
func Driven(c Clock) (_ Clock, advance func()) {
	if d, ok := c.(interface{ Driven() (Clock, func()) }); ok {
		return d.Driven()
	}
	return c, func() {}
}

// Driven implements what the function Driven asks for.
func (realClock) Driven() (Clock, func()) {
	c := &drivenClock{alarms: &theAlarm, wakeAt: never}
	c.alarm.f = c.wake
	c.due.Store(int64(never))
	return c, c.advance
}

// slack bounds the lateness of a timer that whoever drives its clock no longer runs. It is less than Go's timers may be late by.
const slack = lateness / 2

// never is later than all instants.
const never = time.Duration(math.MaxInt64)

// A drivenClock is the real clock, but for its timers. It is woken for the first of them: at its instant by a timer of Go's,
// or slack later by theAlarm while somebody drives it, who puts that off before it rings. A timer of Go's would not do
// then: threads that wait for one wake up at its instant though it has been put off.
type drivenClock struct {
	realClock
	alarms *alarm       // theAlarm; tests have others
	due    atomic.Int64 // the instant from which advance has something to do

	mu     sync.Mutex // guards what follows; locked before that of alarms
	queue  priority.Queue[*event]
	driven bool          // somebody has put off what wakes the clock since it was last woken
	wakeAt time.Duration // when it is woken next, in time for the first timer; never: it is not
	timer  *time.Timer   // wakes it if it is not driven; nil before the first time
	alarm  event         // does if it is; locked by alarms
}

// AfterFunc implements Clock.
func (c *drivenClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &drivenTimer{clock: c, event: event{f: f}}
	t.Reset(d)
	return t
}

// advance runs what is due. Others may do the same meanwhile: each function is run by one of them. If one takes long, the clock is
// woken for those behind it.
func (c *drivenClock) advance() {
	now := c.Now()
	if int64(now) < c.due.Load() {
		return
	}
	c.mu.Lock()
	for f := takeDue(&c.queue, now); f != nil; f = takeDue(&c.queue, now) {
		c.mu.Unlock()
		f() // whose panic is the caller's
		c.mu.Lock()
	}
	if c.wakeAt-slack <= now {
		c.putOff()
	}
	c.publish()
	c.mu.Unlock()
}

// wake runs what is due since nobody has, each function in a goroutine of its own, as Go's timers do.
func (c *drivenClock) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	for f := takeDue(&c.queue, now); f != nil; f = takeDue(&c.queue, now) {
		go f()
	}
	c.driven, c.wakeAt = false, never
	c.wind(now)
	c.publish()
}

// putOff has the clock, which would be woken soon, be woken slack after the next timer. The lock is held.
func (c *drivenClock) putOff() {
	if !c.driven && c.timer != nil {
		c.timer.Stop()
	}
	c.driven = true
	if c.queue.Len() == 0 {
		c.wakeAt = never
		c.alarms.stop(&c.alarm)
	} else {
		c.wakeAt = c.queue.First().at + slack
		c.alarms.set(&c.alarm, c.wakeAt)
	}
	c.alarms.settle()
}

// wind has the clock be woken for the next timer, or, if it is driven, earlier: a timer of Go's is cheap to put off. The lock is
// held.
func (c *drivenClock) wind(now time.Duration) {
	if c.queue.Len() == 0 {
		return
	}
	at := c.queue.First().at
	if c.driven {
		at += slack
	}
	if at == c.wakeAt || c.driven && at > c.wakeAt {
		return
	}
	c.wakeAt = at
	switch {
	case c.driven:
		c.alarms.set(&c.alarm, at)
	case c.timer == nil:
		c.timer = time.AfterFunc(at-now, c.wake)
	default:
		c.timer.Reset(at - now)
	}
}

// publish tells advance when there is something to do: to put off what wakes the clock. No function is due before, since wakeAt is
// slack after the first timer at the latest. The lock is held.
func (c *drivenClock) publish() { c.due.Store(int64(c.wakeAt - slack)) }

// A drivenTimer is one of a drivenClock, in whose queue its event is.
type drivenTimer struct {
	clock *drivenClock
	event
}

// Stop implements Timer.
func (t *drivenTimer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := t.place.Queued()
	c.queue.Remove(&t.event)
	return pending
}

// Reset implements Timer.
func (t *drivenTimer) Reset(d time.Duration) bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := t.place.Queued()
	now := c.Now()
	t.at = now + min(d, never-slack-now)
	c.queue.Put(&t.event)
	c.wind(now)
	c.publish()
	return pending
}
