package workload

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// requests is the work of an exchange of requests and answers: Storage and Rping. Requests
// have numbers. Those under way on a channel whose connection fails are made again, before
// any other.
type requests struct {
	exchange

	// Guarded by endpoint.mu.
	next   uint64   // the first request that was never made, by number
	repeat []uint64 // requests to be made once more
}

// A requester is the session of a channel that carries requests.
type requester interface {
	clientSession
	// ready reports whether another request may be made.
	ready() bool
	// ask makes a request, by number, and tells the exchange when that is answered.
	ask(number uint64) provider.Status
	// unanswered returns the requests that were made and have no answer, in order.
	unanswered() []uint64
}

// run starts the client. each is how many entries of the CQ a channel may take.
func (w *requests) run(work work, needs func(provider.AdapterInfo) []need, each int, prepare func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(work, needs, cqEntries(w.spec.channels(), each), prepare); err != nil {
		return err
	}
	w.await()
	w.startProbes()
	w.soon()
	return nil
}

// start implements work.
func (w *requests) start(now time.Duration) { w.begin(now, w.spec.Size) }

// proceed implements work: it makes as many requests as may be made.
func (w *requests) proceed() {
	if !w.started {
		return
	}
	for i := range w.channels {
		for ch := &w.channels[i]; ch.up(); {
			s := ch.conn.session.(requester)
			if !s.ready() {
				break
			}
			now := w.clock.Now()
			var number uint64
			switch {
			case len(w.repeat) > 0:
				number, w.repeat = w.repeat[0], w.repeat[1:]
				w.result.Retried++
			case w.wanted(now) > 0:
				number = w.next
				w.next++
				w.begun(now, now)
			default:
				return
			}
			if status := s.ask(number); status != provider.StatusSuccess {
				ch.conn.fail(fmt.Sprintf("request %d: %v", number, status))
			}
		}
	}
}

// complete implements work.
func (w *requests) complete(now time.Duration) bool {
	return (w.started || w.stopped) && w.underWay == 0 && w.wanted(now) == 0
}

// retry implements work.
func (w *requests) retry(s clientSession) {
	w.repeat = append(w.repeat, s.(requester).unanswered()...)
}

// abandon implements work.
func (w *requests) abandon(now time.Duration, why string) {
	for range max(1, w.underWay) {
		w.failed(now, why)
	}
	w.giveUp(now)
}

// answered takes the answer to a request that was made at an instant. why says what is
// wrong with it; "" if nothing is.
func (w *requests) answered(made time.Duration, bytes uint64, why string) {
	now := w.clock.Now()
	w.ended(now)
	if why != "" {
		w.failed(now, why)
		return
	}
	w.completed(now, bytes, now-made, false)
}
