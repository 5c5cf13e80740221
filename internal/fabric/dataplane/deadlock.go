package dataplane

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
)

// Deadlocks returns those that were found, in order.
func (p *Plane[F]) Deadlocks() []bufferstats.Deadlock { return p.deadlocks }

// findDeadlock looks for queues that wait for each other, as EndWindow does where a window lasts.
func (s *shard[F]) findDeadlock(now time.Duration) {
	if s.plane.windowed {
		s.obeyed = true
		return
	}
	s.plane.findDeadlock(now)
}

// cycle returns queues that wait for each other; nil if there are none.
func (p *Plane[F]) cycle() []mmu.Queue { return mmu.Deadlock(p.members, p.peer) }

// findDeadlock looks for queues that wait for each other, and tells of those that it finds once.
func (p *Plane[F]) findDeadlock(now time.Duration) {
	cycle := p.cycle()
	if cycle == nil {
		return
	}
	first := 0 // the cycle begins with the queue that is first, wherever it was found
	for i, q := range cycle {
		if p.endpoint(q) < p.endpoint(cycle[first]) {
			first = i
		}
	}
	cycle = slices.Concat(cycle[first:], cycle[:first])
	found := bufferstats.Deadlock{AtUS: (now - p.began).Seconds() * 1e6, Class: cycle[0].Class, Queues: p.endpoints(cycle)}
	for _, known := range p.deadlocks {
		if known.Class == found.Class && slices.Equal(known.Queues, found.Queues) {
			return
		}
	}
	p.deadlocks = append(p.deadlocks, found)
	p.shards[0].owner.Deadlocked(found)
}

// peer returns the switch and its port at the other end of a port's link; false if there is no buffer of a
// switch.
func (p *Plane[F]) peer(sw, port int) (peer, in int, ok bool) {
	w := p.switches[sw].ports[port].wire
	if w.To == nil || !w.To.OfSwitch() {
		return 0, 0, false
	}
	return w.To.index, w.In, true
}

// endpoint names a queue by the interface that it leaves by.
func (p *Plane[F]) endpoint(q mmu.Queue) string {
	n := p.switches[q.Switch].node
	return n.Name + ":" + n.Interfaces[q.Port].Name
}

func (p *Plane[F]) endpoints(cycle []mmu.Queue) []string {
	names := make([]string, len(cycle))
	for i, q := range cycle {
		names[i] = p.endpoint(q)
	}
	return names
}
