package lab

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/provider"
)

// This file passes a lab's events to those who watch. The supervisor keeps the last
// ones, and each watcher reads them at its own pace. A watcher that is slower than
// they come misses those that are no longer kept, and is told how many.

// keptEvents is the number of events that a supervisor keeps, some 200 bytes each.
const keptEvents = 4096

// A history is the last keptEvents events of a lab. They are numbered from 1.
type history struct {
	mu   sync.Mutex    // guards what follows
	ring []event.Event // event n is at n % keptEvents once that many have come
	last uint64        // the latest event's number
	more chan struct{} // closed when another has come; nil if nobody waits
}

// add keeps an event, in the place of the one that came keptEvents before.
func (h *history) add(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ring == nil {
		h.ring = make([]event.Event, 1, 64) // there is no event 0
	}
	h.last++
	if i := h.last % keptEvents; i == uint64(len(h.ring)) {
		h.ring = append(h.ring, e)
	} else {
		h.ring[i] = e
	}
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}

// from is the oldest event kept whose number is n or more, and that number. If there
// is none yet, its number is 0 and more is closed when one comes.
func (h *history) from(n uint64) (e event.Event, number uint64, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last >= keptEvents {
		n = max(n, h.last-keptEvents+1)
	}
	if n <= h.last {
		return h.ring[n%keptEvents], n, nil
	}
	if h.more == nil {
		h.more = make(chan struct{})
	}
	return event.Event{}, 0, h.more
}

// next is the number of the event to come.
func (h *history) next() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last + 1
}

// all is every event kept that came at since or later, and the number of the event
// to come next.
func (h *history) all(since time.Time) (events []event.Event, next uint64) {
	events = []event.Event{}
	for n := uint64(1); ; n++ {
		e, number, _ := h.from(n)
		if number == 0 {
			return events, n
		}
		n = number
		if !e.Time.Before(since) {
			events = append(events, e)
		}
	}
}

// Publish sends an event to every client that watches, keeps it, and logs it.
func (s *Supervisor) Publish(e event.Event) {
	e.Lab, e.At, e.Time = s.name, s.fabricTime(), time.Now()
	log.Print(e.Text)
	s.history.add(e)
}

// publishQPError tells of a queue pair in error.
func (s *Supervisor) publishQPError(node string, e provider.QPError) {
	s.Publish(event.OfQPError(node, e))
}

// watch sends a client the events from number on; 0: those from now on. A client
// watches once.
func (s *Supervisor) watch(conn *control.Conn, number uint64) {
	if !s.clients.beginWatch(conn) {
		return
	}
	if number == 0 {
		number = s.history.next()
	}
	go s.history.send(conn.Done(), number, func(e event.Event) error { return noticeEvent.Send(conn, e) })
}

// send passes on the events from number on, until done is closed or one cannot be
// passed on: whoever watched has gone.
func (h *history) send(done <-chan struct{}, number uint64, pass func(event.Event) error) {
	for {
		e, found, more := h.from(number)
		if found == 0 {
			select {
			case <-more:
				continue
			case <-done:
				return
			}
		}
		if lost := found - number; lost > 0 {
			told := event.Event{Lab: e.Lab, At: e.At, Time: e.Time, Kind: event.EventsLost, Lost: lost,
				Text: fmt.Sprintf("%d events came too fast for who reads them, and are lost", lost)}
			if pass(told) != nil {
				return
			}
		}
		if pass(e) != nil {
			return
		}
		number = found + 1
	}
}

type eventsParams struct{ Since time.Time }

type eventsAnswer struct {
	Events []event.Event
	Next   uint64 // for methodWatch
}

// watchParams say what to send events from; 0: those from now on.
type watchParams struct{ From uint64 }

// Events are those that the lab still keeps and that came at since or later, oldest
// first. The number is that of the next, for WatchFrom.
func (l *Lab) Events(ctx context.Context, since time.Time) (events []event.Event, next uint64, err error) {
	answer, err := call(ctx, l.session, methodEvents, eventsParams{since})
	return answer.Events, answer.Next, err
}

// Watch calls events for every event from now on, in order, one at a time, in
// the place of what Options or an earlier Watch gave.
func (l *Lab) Watch(ctx context.Context, events func(event.Event)) error {
	return l.WatchFrom(ctx, 0, events)
}

// WatchFrom is Watch from the event of a number that Events gave; 0: from now on. A
// Lab that watches already goes on from where it is.
func (l *Lab) WatchFrom(ctx context.Context, number uint64, events func(event.Event)) error {
	l.mu.Lock()
	l.events = events
	l.mu.Unlock()
	return l.whyEnded(methodWatch.Call(ctx, l.conn, watchParams{number}))
}
