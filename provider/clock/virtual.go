package clock

import (
	"container/heap"
	"time"
)

// Virtual is a clock that advances only when told to: an event loop. Functions
// due at one instant run in the order in which they were asked for, so that a
// run depends on nothing but its inputs. Not for concurrent use, but Step, Run
// and RunUntil may be called from within a function that they run: then time
// goes on while that function is in progress.
type Virtual struct {
	now    time.Duration
	seq    uint64
	events eventHeap
}

// NewVirtual makes a virtual clock that stands at zero.
func NewVirtual() *Virtual { return &Virtual{} }

// Now returns the present instant.
func (v *Virtual) Now() time.Duration { return v.now }

// AfterFunc has f run by the loop d from now.
func (v *Virtual) AfterFunc(d time.Duration, f func()) Timer {
	e := &event{clock: v, f: f, index: -1}
	e.schedule(d)
	return e
}

// Go has f run by the loop at the present instant.
func (v *Virtual) Go(f func()) { v.AfterFunc(0, f) }

// Next returns the instant of the next event; false if there is none.
func (v *Virtual) Next() (at time.Duration, ok bool) {
	if len(v.events) == 0 {
		return 0, false
	}
	return v.events[0].at, true
}

// Advance moves time forward to an instant that no event is due before. Time never goes back.
func (v *Virtual) Advance(to time.Duration) { v.now = max(v.now, to) }

// Step runs the next event, moving time forward to it; false if there is none.
func (v *Virtual) Step() bool {
	if len(v.events) == 0 {
		return false
	}
	e := heap.Pop(&v.events).(*event)
	v.now = e.at
	e.f()
	return true
}

// Run runs events until none is left that is due within d from now, and leaves
// the clock d later than it was, or later still if an event moved it on.
func (v *Virtual) Run(d time.Duration) {
	end := v.now + d
	for len(v.events) > 0 && v.events[0].at <= end {
		v.Step()
	}
	v.now = max(v.now, end)
}

// RunUntil runs events until done reports true, for d at most, and says whether
// done did. done is asked before the first event and after each.
func (v *Virtual) RunUntil(done func() bool, d time.Duration) bool {
	end := v.now + d
	for !done() {
		if len(v.events) == 0 || v.events[0].at > end {
			v.now = max(v.now, end)
			return false
		}
		v.Step()
	}
	return true
}

// event is one pending function; index is its place in the heap, -1 outside it.
type event struct {
	clock *Virtual
	at    time.Duration
	seq   uint64
	f     func()
	index int
}

func (e *event) schedule(d time.Duration) {
	e.at = e.clock.now + max(d, 0)
	e.seq = e.clock.seq
	e.clock.seq++
	heap.Push(&e.clock.events, e)
}

// Stop implements Timer.
func (e *event) Stop() bool {
	if e.index < 0 {
		return false
	}
	heap.Remove(&e.clock.events, e.index)
	return true
}

// Reset implements Timer.
func (e *event) Reset(d time.Duration) bool {
	pending := e.Stop()
	e.schedule(d)
	return pending
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *eventHeap) Push(x any) {
	e := x.(*event)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
