package transport

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A path has what the queue pairs of a device that are connected with one address find
// out together about the path there. Each for itself could not tell a long path from a
// queue that all of them make: only one that is alone can.
type path struct {
	roundTrip atomic.Int64            // the shortest, in nanoseconds; 0: nobody knows yet
	slow      atomic.Int64            // rc.QP.SlowRoundTrip of who found out last that it has changed
	answered  atomic.Int64            // the latest rc.QP.LastAnswered
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
// the one whose peer says nothing. That one is locked.
func (p *path) probeOnAnother(silent *Channel) {
	if w := p.heardBy.Load(); w != nil && w != silent {
		w.device.Clock.Go(w.probe)
	}
}

// LastHeard returns when packets last came to queue pairs from an address, and whether the answer to a
// management datagram that was sent there at a time may be behind them.
func (d *Device) LastHeard(remote netip.Addr, sentAt time.Duration) (at time.Duration, behind bool) {
	d.pathsMu.Lock()
	p := d.paths[remote]
	d.pathsMu.Unlock()
	if p == nil {
		return 0, false
	}
	known := p.snapshot()
	return known.Heard, known.AnswerMayBeUnderWay(sentAt)
}

// noteAnswered takes what a queue pair says. Where two do at once, either will do.
func (p *path) noteAnswered(at time.Duration) {
	if int64(at) > p.answered.Load() {
		p.answered.Store(int64(at))
	}
}

// pathTo returns the path to an address. There is one for each that the device has ever been
// connected with.
func (d *Device) pathTo(remote netip.Addr) *path {
	d.pathsMu.Lock()
	defer d.pathsMu.Unlock()
	p := d.paths[remote]
	if p == nil {
		p = new(path)
		d.paths[remote] = p
	}
	return p
}
