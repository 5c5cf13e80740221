package scenario

import (
	"cmp"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/priority"
	"github.com/ndklab/ndklab/provider/clock"
)

// A loop calls one after the other what a play reacts to: the stage's callbacks and the
// clock's timers. It counts those that the play waits for, and goes on to the play's next
// phase when there are none.
type loop struct {
	clock clock.Clock

	mu          sync.Mutex // guards the whole play; held while the stage's methods are called
	pending     int        // callbacks and timers that are waited for
	next        func()     // begins the phase that comes when there are none; nil: the play is over
	finish      func()     // called when mu is released; nil most of the time
	interrupted bool       // no timer starts any more

	began  bool          // start was called
	zero   time.Duration // the instant of the clock from which the scenario's times count
	timers timers
}

// enter runs f with mu held. Everything that happens outside comes in here.
func (l *loop) enter(f func()) {
	l.mu.Lock()
	f()
	for l.pending == 0 && l.next != nil {
		next := l.next
		next()
	}
	finish := l.finish
	l.finish = nil
	l.mu.Unlock()
	if finish != nil {
		finish()
	}
}

// expect returns a callback that is waited for. f is called with mu held.
func (l *loop) expect(f func()) func() {
	callback := l.awaited()
	return func() { callback(f) }
}

// awaited returns a callback that is waited for, and calls its argument with mu held.
func (l *loop) awaited() func(f func()) {
	l.pending++
	return func(f func()) {
		l.enter(func() {
			l.pending--
			f()
		})
	}
}

// ofMachine returns a time by the machine's clock as the loop's clock has it, which may be slower (clock.Dilated). Bounds on
// what programs, agents and people take are the machine's.
func (l *loop) ofMachine(d time.Duration) time.Duration {
	return d / time.Duration(clock.Factor(l.clock))
}

// start begins to count the scenario's time.
func (l *loop) start() { l.zero, l.began = l.clock.Now(), true }

// now returns how long the scenario has been going on; 0 before it begins.
func (l *loop) now() time.Duration {
	if !l.began {
		return 0
	}
	return l.clock.Now() - l.zero
}

// A timer calls a function later.
type timer struct {
	at      time.Duration // by the clock
	number  uint64        // of two for the same instant, the smaller is first
	awaited bool
	f       func()
	place   priority.Place // in timers.running
}

// Before implements priority.Item.
func (t *timer) Before(other *timer) bool {
	return cmp.Or(cmp.Compare(t.at, other.at), cmp.Compare(t.number, other.number)) < 0
}

// Place implements priority.Item.
func (t *timer) Place() *priority.Place { return &t.place }

// timers are those that are running. The clock has one for the first of them. So what is
// due at one instant happens in the order in which it was asked for, on a real clock too.
type timers struct {
	running priority.Queue[*timer]
	number  uint64
	clock   clock.Timer // nil before there was one
	armed   time.Duration
	runs    bool // clock is to fire, at armed
}

// after calls f, with mu held, at d from now. The timer is waited for. It does nothing
// once the play is interrupted.
func (l *loop) after(d time.Duration, f func()) *timer { return l.newTimer(d, true, f) }

// background is after without waiting for the timer.
func (l *loop) background(d time.Duration, f func()) { l.newTimer(d, false, f) }

func (l *loop) newTimer(d time.Duration, awaited bool, f func()) *timer {
	t := &timer{at: l.clock.Now() + max(d, 0), number: l.timers.number, awaited: awaited, f: f}
	if l.interrupted {
		return t
	}
	l.timers.number++
	if awaited {
		l.pending++
	}
	l.timers.running.Put(t)
	l.arm()
	return t
}

// stop keeps a timer from calling its function.
func (l *loop) stop(t *timer) {
	if t == nil || !t.place.Queued() {
		return
	}
	l.timers.running.Remove(t)
	if t.awaited {
		l.pending--
	}
}

// stopAll stops all timers.
func (l *loop) stopAll() {
	for l.timers.running.Len() > 0 {
		l.stop(l.timers.running.First())
	}
	if l.timers.clock != nil {
		l.timers.clock.Stop()
		l.timers.runs = false
	}
}

// arm makes the clock call when the first timer is due.
func (l *loop) arm() {
	t := &l.timers
	if t.running.Len() == 0 || t.runs && t.armed <= t.running.First().at {
		return // the clock may call early
	}
	t.armed, t.runs = t.running.First().at, true
	d := t.armed - l.clock.Now()
	if t.clock == nil {
		t.clock = l.clock.AfterFunc(d, func() { l.enter(l.fire) })
		return
	}
	t.clock.Reset(d)
}

// fire calls the functions of the timers that are due.
func (l *loop) fire() {
	t := &l.timers
	t.runs = false
	for now := l.clock.Now(); t.running.Len() > 0 && t.running.First().at <= now; {
		first := t.running.First()
		l.stop(first)
		first.f()
	}
	l.arm()
}
