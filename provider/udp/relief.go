package udp

import (
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// reliefTick is how long a consumer's callback may take, at most twice, before another
// goroutine goes on receiving.
const reliefTick = 5 * time.Millisecond

// A relief watches over a listener's goroutine while it runs consumers' callbacks. They
// are not supposed to block; but if one waits for something that only a further packet can
// bring about, somebody has to receive that. A tick looks while there is traffic
// whether the goroutine is still where it was at the tick before.
type relief struct {
	next func() // what takes over

	mu       sync.Mutex  // guards what follows
	timer    *time.Timer // of the next tick; nil before the first
	ticking  bool        // timer is set
	round    uint64      // odd while callbacks run
	seen     uint64      // round at the last tick
	relieved bool
}

func newRelief(l *listener, r provider.Receiver) *relief {
	return &relief{next: func() { l.receive(r) }}
}

// deliver has the callbacks run. It reports whether something is still put off, and whether
// the goroutine still is the listener's.
func (r *relief) deliver(d provider.Deferrer) (later, mine bool) {
	r.enter()
	later = d.Delivered()
	return later, r.leave()
}

func (r *relief) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	if r.ticking {
		return
	}
	r.ticking = true
	if r.timer == nil {
		r.timer = time.AfterFunc(reliefTick, r.tick)
	} else {
		r.timer.Reset(reliefTick)
	}
}

func (r *relief) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	return !r.relieved
}

func (r *relief) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	stuck := r.round == r.seen && r.round%2 == 1
	idle := r.round == r.seen && !stuck
	r.seen = r.round
	switch {
	case stuck:
		r.relieved = true
		go r.next()
	case idle:
		r.ticking = false
	default:
		r.timer.Reset(reliefTick)
	}
}
