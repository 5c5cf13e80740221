package linkem

import (
	"errors"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
)

// A link is two lines and, unless it is detached, the two ports they join. It
// belongs to the loop's thread.
type link struct {
	name   string
	state  state
	ports  [2]*port // nil: the end is a switch with a packet buffer, or at another host
	peer   *peer    // the engine of that host; nil: there is none
	number uint32   // in the topology
	lines  [2]*line // [0] from ports[0] to ports[1], [1] back
	taps   []*packetTap
	idle   chan struct{} // closed, and nil, once no packet is on its way; nil unless somebody waits for that
}

// A state is the step that a link has reached in the sequence of package linkem's
// documentation.
type state string

const (
	detached  state = "detached"
	attached  state = "attached"
	started   state = "started"
	releasing state = "being released"
	released  state = "released"
)

// open returns the ports that there are.
func (k *link) open() []*port {
	return slices.DeleteFunc(slices.Clone(k.ports[:]), func(p *port) bool { return p == nil })
}

// closeIfIdle closes idle if no packet is on its way.
func (k *link) closeIfIdle() {
	if k.idle != nil && k.lines[0].queue.empty() && k.lines[1].queue.empty() {
		close(k.idle)
		k.idle = nil
	}
}

// whenIdle returns a channel that is closed as soon as no packet is on its way.
func (k *link) whenIdle() <-chan struct{} {
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.closeIfIdle()
	return idle
}

// measure returns the figures of the link's directions: so far, or since begin.
func (k *link) measure(since bool) (m [2]linkstats.Statistics, err error) {
	err = k.countOverruns()
	for i, n := range k.lines {
		m[i] = n.measure(since)
	}
	return m, err
}

// changed returns the last look at which observe would have returned something else than at the look before. look is the
// number of the present one (linkstats.Collector.Changed).
func (k *link) changed(look uint64) (last uint64, err error) {
	err = k.countOverruns()
	for _, n := range k.lines {
		last = max(last, n.stats.Changed(look), n.changedPause(look))
	}
	return last, err
}

// observe returns the counters of the link's directions, and the delay by bounds in nanoseconds.
func (k *link) observe(bounds []int64) (m [2]linkstats.Statistics) {
	for i, n := range k.lines {
		m[i] = n.stats.Observe(bounds)
		m[i].Pauses = n.pauses()
	}
	return m
}

// begin begins another period of the link's statistics, and its model anew, at an instant of the fabric. logged is true if
// its decisions are in a log.
func (k *link) begin(now time.Duration, logged bool) error {
	err := k.countOverruns()
	for _, n := range k.lines {
		if n.wire != nil {
			now = n.fabric.clock.Now()
		}
		n.stats.Begin(n.model, now, logged)
	}
	return err
}

// countOverruns adds what the kernel had no room for to the lines' counters.
func (k *link) countOverruns() (err error) {
	if k.state == detached {
		return nil
	}
	for _, p := range k.open() {
		err = errors.Join(err, p.countOverruns())
	}
	return err
}

// replay has both directions replay what a log has of them, if there is one.
func (k *link) replay(log *impair.Log) {
	if log == nil {
		return
	}
	for _, n := range k.lines {
		n.model.Replay(log.Sequence(k.name, n.direction))
	}
}
