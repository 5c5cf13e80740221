package lab

import (
	"context"
	"fmt"
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

// A reviver starts a node again that has died, some time later. Its methods may be
// called from any goroutine.
type reviver struct {
	clock clock.Clock

	mu    sync.Mutex // guards what follows
	delay time.Duration
	timer clock.Timer // of the last start that was wanted; nil before
	turn  int         // changes when a start is wanted, begins or is called off
}

// after has start called because of the end of a life that took so long, and says how
// long that will be from now. start is given a function that says whether it is still
// wanted, which is true once at most.
func (r *reviver) after(lived time.Duration, start func(wanted func() bool)) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = min(2*r.delay, maxDelay)
	if r.delay == 0 || lived >= recovered {
		r.delay = firstDelay
	}
	r.turn++
	turn := r.turn
	r.timer = r.clock.AfterFunc(r.delay, func() {
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

// cancel calls the start off that is to come, if there is one.
func (r *reviver) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	if r.timer != nil {
		r.timer.Stop()
	}
}

// reviveLater starts a node again, whose life has ended by itself, if the topology
// wants that, and says in words when.
func (s *Supervisor) reviveLater(n *labNode, lived time.Duration) string {
	s = s.now()
	if n = s.as(n); n == nil || !n.spec.Restart || s.checkReady() != nil {
		return ""
	}
	delay := n.reviver.after(lived, func(wanted func() bool) { s.revive(n, wanted) })
	return fmt.Sprintf("; it is started again in %v", delay)
}

// revive starts a node again unless that is not wanted any more.
func (s *Supervisor) revive(n *labNode, wanted func() bool) {
	ctx := context.Background() // the lab's end ends it
	if n.lock(ctx) != nil {
		return
	}
	defer n.unlock()
	s = s.now()
	if n = s.as(n); n == nil || !wanted() {
		return
	}
	if err := s.startAgain(ctx, n); err != nil {
		words := s.reviveLater(n, 0)
		s.Publish(Event{Kind: Warning, Node: n.spec.Name, Text: fmt.Sprintf("node %s does not start: %v%s", n.spec.Name, err, words)})
	}
}
