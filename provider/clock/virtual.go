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
	now   time.Duration
	seq   uint64
	queue queue
}

// NewVirtual makes a virtual clock that stands at zero.
func NewVirtual() *Virtual { return &Virtual{} }

// Now returns the present instant.
func (v *Virtual) Now() time.Duration { return v.now }

// AfterFunc has f run by the loop d from now.
func (v *Virtual) AfterFunc(d time.Duration, f func()) Timer {
	e := &event{clock: v, f: f}
	e.schedule(d)
	return e
}

// Go has f run by the loop at the present instant.
func (v *Virtual) Go(f func()) { v.AfterFunc(0, f) }

// Next returns the instant of the next event; false if there is none.
func (v *Virtual) Next() (at time.Duration, ok bool) { return v.queue.next() }

// Advance moves time forward to an instant that no event is due before. Time never goes back.
func (v *Virtual) Advance(to time.Duration) { v.now = max(v.now, to) }

// Step runs the next event, moving time forward to it; false if there is none.
func (v *Virtual) Step() bool { return v.step(math.MaxInt64) }

// step is Step for an event that is due until then.
func (v *Virtual) step(until time.Duration) bool {
	e := v.queue.take(until)
	if e == nil {
		return false
	}
	v.now = e.at
	e.f()
	return true
}

// Run runs events until none is left that is due within d from now, and leaves
// the clock d later than it was, or later still if an event moved it on.
func (v *Virtual) Run(d time.Duration) {
	end := v.now + d
	for v.step(end) {
	}
	v.now = max(v.now, end)
}

// RunUntil runs events until done reports true, for d at most, and says whether
// done did. done is asked before the first event and after each.
func (v *Virtual) RunUntil(done func() bool, d time.Duration) bool {
	end := v.now + d
	for !done() {
		if !v.step(end) {
			v.now = max(v.now, end)
			return false
		}
	}
	return true
}

// An event is a function that is to run once.
type event struct {
	clock          *Virtual
	at             time.Duration
	seq            uint64 // of two for the same instant, the smaller is first
	f              func()
	before, behind *event // in its slot
	wheel, slot    uint8
	pending        bool // it is in the queue
}

func (e *event) schedule(d time.Duration) {
	v := e.clock
	e.at = v.now + max(d, 0)
	e.seq = v.seq
	v.seq++
	v.queue.put(e)
}

// Stop implements Timer.
func (e *event) Stop() bool {
	if !e.pending {
		return false
	}
	e.clock.queue.remove(e)
	return true
}

// Reset implements Timer.
func (e *event) Reset(d time.Duration) bool {
	pending := e.Stop()
	e.schedule(d)
	return pending
}
