package transport

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A path has what the queue pairs of a device find out together about the path to one address. Each for itself could not
// tell a long path from a queue that all of them make: only one that is alone can.
type path struct {
	roundTrip atomic.Int64            // the shortest, in nanoseconds; 0: nobody knows yet
	slow      atomic.Int64            // rc.PathEstimate.Slow of the queue pair that found out last that it has changed
	answered  atomic.Int64            // the latest rc.PathEstimate.Answered
	heard     atomic.Int64            // when a packet last came from the address to any queue pair
	heardBy   atomic.Pointer[Channel] // the queue pair that it came to
}

// snapshot returns what a queue pair is to know of the path when its peer says nothing.
func (p *path) snapshot() rc.Path {
	return rc.Path{
		Slow:     time.Duration(p.slow.Load()),
		Heard:    time.Duration(p.heard.Load()),
		Answered: time.Duration(p.answered.Load()),
	}
}

// noteHeard takes note of packets from the address.
func (p *path) noteHeard(now time.Duration, c *Channel) {
	p.heard.Store(int64(now))
	if p.heardBy.Load() != c {
		p.heardBy.Store(c)
	}
}

// probeOnAnother has the queue pair ask its peer that heard from the address last, unless that is
// the one whose peer says nothing, silent, whose lock is held.
func (p *path) probeOnAnother(silent *Channel) {
	if w := p.heardBy.Load(); w != nil && w != silent {
		w.device.Clock.Go(w.probe)
	}
}

// noteAnswered takes what a queue pair says. Where two do at once, either will do.
func (p *path) noteAnswered(at time.Duration) {
	if int64(at) > p.answered.Load() {
		p.answered.Store(int64(at))
	}
}

// paths are those that a device knows: one to each address that a queue pair was ever connected with.
type paths struct {
	mu sync.Mutex           // guards to, but not the elements
	to map[netip.Addr]*path // by the peer's address
}

// find returns the path to an address, which it makes if there is none.
func (p *paths) find(remote netip.Addr) *path {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.to[remote]
	if found == nil {
		found = new(path)
		p.to[remote] = found
	}
	return found
}

// LastHeard returns when packets last came to queue pairs from an address, and whether the answer to a
// management datagram that was sent there at a time may be behind them.
func (d *Device) LastHeard(remote netip.Addr, sentAt time.Duration) (at time.Duration, behind bool) {
	d.paths.mu.Lock()
	p := d.paths.to[remote]
	d.paths.mu.Unlock()
	if p == nil {
		return 0, false
	}
	known := p.snapshot()
	return known.Heard, known.AnswerMayBeUnderWay(sentAt)
}
