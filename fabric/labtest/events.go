package labtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
)

// An Event is something that has happened in a lab. Package lab has the kinds.
type Event = event.Event

// events are those of a lab so far.
type events struct {
	mu   sync.Mutex // guards what follows
	all  []Event
	more chan struct{} // closed when another has come; nil if nobody waits
}

func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
	if e.more != nil {
		close(e.more)
		e.more = nil
	}
}

// from is the events from the n-th on, and what is closed when there are more.
func (e *events) from(n int) ([]Event, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.more == nil {
		e.more = make(chan struct{})
	}
	return slices.Clone(e.all[n:]), e.more
}

// Events are all that have happened in the lab so far, as `ndklab events` has them.
func (l *Lab) Events() []Event {
	all, _ := l.events.from(0)
	return all
}

// A Watch is a place in the events of a lab.
type Watch struct {
	lab   *Lab
	since time.Time // what happened before is on its way, perhaps, and not watched for
	next  int
}

// Watch is for the events from now on.
func (l *Lab) Watch() *Watch { return &Watch{lab: l, since: time.Now(), next: len(l.Events())} }

// Next waits for the next event of one of some kinds, such as "node-down", or of any if none
// is given. The place is behind it then.
func (w *Watch) Next(kinds ...string) Event {
	l := w.lab
	l.t.Helper()
	ctx, cancel := l.waiting()
	defer cancel()
	for {
		some, more := l.events.from(w.next)
		for _, e := range some {
			w.next++
			if !e.Time.IsZero() && e.Time.Before(w.since) {
				continue
			}
			if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
				return e
			}
		}
		select {
		case <-more:
		case <-l.lab.Done():
			l.t.Fatalf("lab %s: no event of %q came: the lab has ended: %v", l.topo.Name, kinds, explain(l.lab.Err()))
		case <-ctx.Done():
			l.t.Fatalf("lab %s: no event of %q comes: %v", l.topo.Name, kinds, context.Cause(ctx))
		}
	}
}

// lookInterval is the interval at which Eventually asks when nothing happens.
const lookInterval = 10 * time.Millisecond

// Eventually asks whether something holds until it does: until holds returns nil. It asks
// when something has happened in the lab, and every 10 ms. If it comes to hold in no time
// the test ends with what was missing last.
func (l *Lab) Eventually(holds func() error) {
	l.t.Helper()
	ctx, cancel := l.waiting()
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		_, more := l.events.from(0)
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-more:
		case <-tick.C:
		case <-ctx.Done():
			l.t.Fatalf("lab %s: %v: %v", l.topo.Name, context.Cause(ctx), err)
		}
	}
}

// Await waits for a condition, as `ndklab wait --for` has them: ready, workload=NAME or,
// summed over all nodes, a counter such as Connect>=2.
func (l *Lab) Await(condition string) {
	l.t.Helper()
	l.await("", condition)
}

// Await waits for a condition, as `ndklab wait --for` has them: ready, down, or a counter
// such as retransmitted>0.
func (n *Node) Await(condition string) {
	n.lab.t.Helper()
	n.lab.await(n.name, condition)
}

func (l *Lab) await(node, condition string) {
	l.t.Helper()
	c, err := lab.ParseCondition(condition)
	l.must(err)
	ctx, cancel := l.waiting()
	defer cancel()
	left, _ := ctx.Deadline() // waiting has one
	// Await says what it found last when its time limit is over, not when a context ends.
	got, err := lab.Await(context.Background(), l.topo.Name, node, c, time.Until(left))
	l.must(err)
	if !got.Reached {
		what := condition
		if node != "" {
			what = fmt.Sprintf("%s of node %s", condition, node)
		}
		l.t.Fatalf("lab %s: %s does not come true: %s", l.topo.Name, what, got.Got)
	}
}
