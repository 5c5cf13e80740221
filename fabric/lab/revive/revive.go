// Package revive says when a node is started again that has died and is to come back: soon,
// and each time later while it dies again and again.
//
// It starts nothing itself: that is for a lab's supervisor, or for a simulation.
package revive

import (
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// How long a node whose agent has died waits before it is started again: each time
// twice as long as before, until it has lived for a while. These are Docker's times.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = time.Minute
	recovered  = 10 * time.Second // a life of this length was no failure of the start
)

// A Reviver starts a node again that has died, some time later. Its methods may be
// called from any goroutine.
type Reviver struct {
	Clock clock.Clock // set before use, and not changed

	mu    sync.Mutex // guards what follows
	delay time.Duration
	timer clock.Timer // of the last start that was wanted; nil before
	turn  int         // changes when a start is wanted, begins or is called off
}

// After has start called because of the end of a life that took so long, and says how
// long that will be from now. start is given a function that says whether it is still
// wanted, which is true once at most.
func (r *Reviver) After(lived time.Duration, start func(wanted func() bool)) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = min(2*r.delay, maxDelay)
	if r.delay == 0 || lived >= recovered {
		r.delay = firstDelay
	}
	r.turn++
	turn := r.turn
	r.timer = r.Clock.AfterFunc(r.delay, func() {
		start(func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.turn != turn {
				return false
			}
			r.turn++
			return true
		})
	})
	return r.delay
}

// Cancel calls the start off that is to come, if there is one.
func (r *Reviver) Cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	if r.timer != nil {
		r.timer.Stop()
	}
}
