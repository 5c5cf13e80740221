package provider

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/provider/transport"
)

// A CQ that overruns, and a CQ or an SRQ of a device that fails, is unusable for
// good, with every queue pair that uses it.

// fail has the CQ fail, unless it has already: StatusBufferOverflow of itself,
// StatusInternalError with the device.
func (cq *CQ) fail(status Status) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.failWith(status)
}

// failWith is fail with cq.mu held. The consumer is told at once if it is
// waiting, moderated or not, or else when it arms (NDK-CQ-22).
func (cq *CQ) failWith(status Status) {
	if cq.failure != StatusSuccess {
		return
	}
	cq.failure = status
	cq.adapter.miniport.counters.own.CQErrors.Add(1)
	if cq.armed {
		cq.notify(status)
	}
	cq.adapter.miniport.failQPs()
}

// usable reports whether the queue has not failed.
func (cq *CQ) usable() bool {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.failure == StatusSuccess
}

// fail has the SRQ fail, unless it has already. The consumer is always told.
func (srq *SRQ) fail(status Status) {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.failure != StatusSuccess {
		return
	}
	srq.failure = status
	srq.notify(func() { srq.call(status) })
	srq.pd.adapter.miniport.failQPs()
}

// usable reports whether the queue has not failed.
func (srq *SRQ) usable() bool {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	return srq.failure == StatusSuccess
}

// failQPs ends, a little later, the queue pairs of queues that have failed. One
// walk over them serves all the queues that fail until it begins.
func (m *Miniport) failQPs() {
	if m.failing.Swap(true) {
		return
	}
	m.clock.Go(func() {
		m.failing.Store(false)
		m.eachQP(func(qp *QP) {
			if !qp.usable() {
				qp.fail()
			}
		})
	})
}

// eachQP calls f for every queue pair of NDKPI's.
func (m *Miniport) eachQP(f func(*QP)) {
	m.transport.Each(func(p *transport.Pair) {
		if c, ok := p.Owner.(*transport.Channel); ok {
			if o, ok := c.Model().(owner); ok {
				f(o.qp)
			}
		}
	})
}

// usable reports whether none of the queue pair's queues has failed.
func (qp *QP) usable() bool {
	return qp.receiveCQ.usable() && qp.initiatorCQ.usable() && (qp.srq == nil || qp.srq.usable())
}

// fail ends the queue pair because a queue of its own has failed (NDK-CQ-24).
func (qp *QP) fail() {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	qp.channel.QP.Flush()
	qp.progress()
}

// An objectSet is the open objects of one kind.
type objectSet[T comparable] struct {
	mu      sync.Mutex   // guards what follows
	members map[T]uint64 // to how many were added before
	added   uint64
}

func (s *objectSet[T]) add(object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members == nil {
		s.members = map[T]uint64{}
	}
	s.members[object] = s.added
	s.added++
}

func (s *objectSet[T]) remove(object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, object)
}

// snapshot returns the members in the order they were added, so that a simulation
// repeats.
func (s *objectSet[T]) snapshot() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.members), func(a, b T) int {
		return cmp.Compare(s.members[a], s.members[b])
	})
}
