package scenario

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A timer is a function that is to be called later.
type timer struct {
	at      time.Duration // by the clock
	number  uint64        // of two for the same instant, the smaller is first
	awaited bool
	f       func()
	index   int // in timers.heap; -1 if it is not there
}

// timers are those that are running. The clock has one for the first of them, so that
// what is due at one instant happens in the order in which it was asked for, also where
// the clock is real.
type timers struct {
	heap   timerHeap
	number uint64
	clock  clock.Timer // nil before there was one
	armed  time.Duration
	runs   bool // clock is to fire, at armed
}

// after calls f, with p.mu held, at d from now, and is waited for. Once the play is
// interrupted nothing is begun any more.
func (p *Play) after(d time.Duration, f func()) *timer { return p.newTimer(d, true, f) }

// aside is after for what is not waited for.
func (p *Play) aside(d time.Duration, f func()) { p.newTimer(d, false, f) }

func (p *Play) newTimer(d time.Duration, awaited bool, f func()) *timer {
	t := &timer{at: p.clock.Now() + max(d, 0), number: p.timers.number, awaited: awaited, f: f, index: -1}
	if p.interrupted {
		return t
	}
	p.timers.number++
	if awaited {
		p.pending++
	}
	heap.Push(&p.timers.heap, t)
	p.arm()
	return t
}

// stop keeps a timer's function from being called.
func (p *Play) stop(t *timer) {
	if t == nil || t.index < 0 {
		return
	}
	heap.Remove(&p.timers.heap, t.index)
	if t.awaited {
		p.pending--
	}
}

func (p *Play) stopAll() {
	for len(p.timers.heap) > 0 {
		p.stop(p.timers.heap[0])
	}
	if p.timers.clock != nil {
		p.timers.clock.Stop()
		p.timers.runs = false
	}
}

// arm has the clock call when the first timer is due.
func (p *Play) arm() {
	t := &p.timers
	if len(t.heap) == 0 || t.runs && t.armed <= t.heap[0].at {
		return // it may call when nothing is due
	}
	t.armed, t.runs = t.heap[0].at, true
	d := t.armed - p.clock.Now()
	if t.clock == nil {
		t.clock = p.clock.AfterFunc(d, func() { p.enter(p.ring) })
		return
	}
	t.clock.Reset(d)
}

// ring calls the functions of the timers that are due.
func (p *Play) ring() {
	t := &p.timers
	t.runs = false
	for now := p.clock.Now(); len(t.heap) > 0 && t.heap[0].at <= now; {
		first := t.heap[0]
		p.stop(first)
		first.f()
	}
	p.arm()
}

// timerHeap is timers with the first at its root.
type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].number, h[j].number)) < 0
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds a timer.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop removes the last one.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	t.index = -1
	return t
}
