package clock

import (
	"math"
	"time"
)

// Virtual is a clock that advances only when told to: an event loop. Functions
// due at one instant run in the order in which they were asked for, so that a
// run depends on nothing but its inputs. Not for concurrent use, but Step, Run
// and RunUntil may be called from within a function that they run: then time
// goes on while that function is in progress.
type Virtual struct {
	at    *moment // own or, between the windows of Shards, that of all of them
	own   moment
	queue queue
	log   *log // of a window of Shards; nil outside
}

// A moment says where a clock stands.
type moment struct {
	now    time.Duration
	seq    uint64 // of the next event or turn
	passed uint64 // those before have run that were due now
}

// NewVirtual makes a virtual clock that stands at zero.
func NewVirtual() *Virtual {
	v := new(Virtual)
	v.at = &v.own
	return v
}

// Now returns the present instant.
func (v *Virtual) Now() time.Duration { return v.at.now }

// AfterFunc has f run by the loop d from now.
func (v *Virtual) AfterFunc(d time.Duration, f func()) Timer {
	e := v.NewTimer(f)
	e.schedule(d)
	return e
}

// NewTimer returns a timer that runs f by the loop when it has been set.
func (v *Virtual) NewTimer(f func()) *VirtualTimer {
	e := new(VirtualTimer)
	e.Init(v, call(f))
	return e
}

// Go has f run by the loop at the present instant.
func (v *Virtual) Go(f func()) { v.AfterFunc(0, f) }

// Next returns the instant of the next event; false if there is none.
func (v *Virtual) Next() (at time.Duration, ok bool) {
	e := v.queue.peek()
	if e == nil {
		return 0, false
	}
	return e.at, true
}

// Advance moves time forward to an instant that no event is due before. Time never goes back.
func (v *Virtual) Advance(to time.Duration) {
	if to > v.at.now {
		v.at.now, v.at.passed = to, 0
	}
}

// Step runs the next event, moving time forward to it; false if there is none.
func (v *Virtual) Step() bool { return v.step(math.MaxInt64) }

// step is Step for an event that is due until then.
func (v *Virtual) step(until time.Duration) bool {
	e := v.queue.take(until)
	if e == nil {
		return false
	}
	v.at.now, v.at.passed = e.at, e.seq+1
	e.expirer.Expire()
	return true
}

// Run runs events until none is left that is due within d from now, and leaves
// the clock d later than it was, or later still if an event moved it on.
func (v *Virtual) Run(d time.Duration) {
	end := v.at.now + d
	for v.step(end) {
	}
	v.reach(end)
}

// reach moves time forward to an instant up to which all events have run.
func (v *Virtual) reach(end time.Duration) {
	if end >= v.at.now {
		v.at.now, v.at.passed = end, v.at.seq
	}
}

// RunUntil runs events until done reports true, for d at most, and says whether
// done did. done is asked before the first event and after each.
func (v *Virtual) RunUntil(done func() bool, d time.Duration) bool {
	end := v.at.now + d
	for !done() {
		if !v.step(end) {
			v.reach(end)
			return false
		}
	}
	return true
}

// A Turn is a place among the events of a Virtual clock. One that nothing is to run in costs no event.
type Turn struct {
	at  time.Duration
	seq uint64
}

// At returns the instant of the turn.
func (t Turn) At() time.Duration { return t.at }

// Moved returns the turn of a function that was asked for when this one was, to run at another instant.
func (t Turn) Moved(at time.Duration) Turn { return Turn{at, t.seq} }

// Earlier reports whether of two turns, for whichever instants, this one was asked for first.
func (t Turn) Earlier(than Turn) bool { return t.seq < than.seq }

// Take sets the turn to the one that a function has which is asked for now, to run d from now. A copy is for ResetTo, Came and
// Shards.Final alone as long as a window of Shards lasts.
func (t *Turn) Take(v *Virtual, d time.Duration) {
	t.at = v.at.now + max(d, 0)
	t.seq = v.number(&t.seq)
}

// number returns the next number of an event or a turn, which is kept in a place.
func (v *Virtual) number(place *uint64) uint64 {
	n := v.at.seq
	v.at.seq++
	if v.log != nil {
		v.log.places = append(v.log.places, place)
	}
	return n
}

// Came reports whether a function in a turn would have run, or be running.
func (v *Virtual) Came(t Turn) bool {
	return t.at < v.at.now || t.at == v.at.now && t.seq < v.at.passed
}

// An Expirer is told when a VirtualTimer expires.
type Expirer interface{ Expire() }

// A call is a function that is called then.
type call func()

// Expire implements Expirer.
func (f call) Expire() { f() }

// A VirtualTimer is one of a Virtual clock. It may be part of what it tells, which is then there to be looked at as soon as the
// timer is.
type VirtualTimer struct {
	clock          *Virtual
	at             time.Duration
	seq            uint64 // of two for the same instant, the smaller is first
	expirer        Expirer
	before, behind *VirtualTimer // in its slot
	wheel          uint8
	pending        bool // it is in the queue
	slot           uint16
}

// Init has a timer that was never set tell x when it expires. It is not to be copied from then on.
func (e *VirtualTimer) Init(v *Virtual, x Expirer) { e.clock, e.expirer = v, x }

// schedule puts the timer, which is not pending, into the queue.
func (e *VirtualTimer) schedule(d time.Duration) {
	v := e.clock
	e.at = v.at.now + max(d, 0)
	e.seq = v.number(&e.seq)
	v.queue.put(e)
}

// Stop implements Timer.
func (e *VirtualTimer) Stop() bool {
	if !e.pending {
		return false
	}
	e.clock.queue.remove(e)
	return true
}

// Reset implements Timer.
func (e *VirtualTimer) Reset(d time.Duration) bool {
	pending := e.Stop()
	e.schedule(d)
	return pending
}

// ResetTo is Reset for a turn that has not come.
func (e *VirtualTimer) ResetTo(t Turn) bool {
	pending := e.Stop()
	e.at, e.seq = t.at, t.seq
	if log := e.clock.log; log != nil {
		log.places = append(log.places, &e.seq)
	}
	e.clock.queue.put(e)
	return pending
}
