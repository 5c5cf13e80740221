package udp

import (
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// watchdogTick bounds the time of a consumer's callback: another goroutine goes on receiving
// after one tick, or two at most.
const watchdogTick = 5 * time.Millisecond

// A watchdog watches over a listener's goroutine while it runs consumers' callbacks. They
// are not supposed to block; but if one waits for something that only a further packet can
// bring about, somebody has to receive that. A tick looks while there is traffic
// whether the goroutine is still where it was at the tick before.
type watchdog struct {
	takeOver func()      // receives in place of the goroutine
	clock    clock.Clock // of the ticks

	mu        sync.Mutex  // guards what follows
	timer     clock.Timer // of the next tick; nil before the first
	ticking   bool        // timer is set
	round     uint64      // odd while callbacks run
	seen      uint64      // round at the last tick
	takenOver bool
}

func newWatchdog(l *listener, r provider.Receiver) *watchdog {
	return &watchdog{takeOver: func() { l.receive(r) }, clock: l.timers}
}

// run has the callbacks run. It reports whether something is still put off, and whether
// the goroutine still is the listener's.
func (r *watchdog) run(d provider.Deferrer) (later, mine bool) {
	r.begin()
	later = d.Delivered()
	return later, r.end()
}

func (r *watchdog) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	if r.ticking {
		return
	}
	r.ticking = true
	if r.timer == nil {
		r.timer = r.clock.AfterFunc(watchdogTick, r.tick)
	} else {
		r.timer.Reset(watchdogTick)
	}
}

func (r *watchdog) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	return !r.takenOver
}

func (r *watchdog) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	stuck := r.round == r.seen && r.round%2 == 1
	idle := r.round == r.seen && !stuck
	r.seen = r.round
	switch {
	case stuck:
		r.takenOver = true
		go r.takeOver()
	case idle:
		r.ticking = false
	default:
		r.timer.Reset(watchdogTick)
	}
}
