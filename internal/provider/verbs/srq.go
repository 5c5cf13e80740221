package verbs

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// An SRQ is a shared receive queue: receives that several queue pairs take from.
type SRQ struct {
	pd    *PD
	holds atomic.Int64 // queue pairs that take from it

	mu       sync.Mutex // guards what follows; taken inside a queue pair's lock
	receives *rc.ReceiveQueue
	depth    int
	maxSGE   int
	limit    int // fewer receives than this raise an event, once; 0: none
	tags     tags
}

// CreateSRQ makes a queue for depth receives of up to maxSGE pieces each.
func (pd *PD) CreateSRQ(depth, maxSGE, limit int) (*SRQ, error) {
	c := pd.context
	if depth < 1 || uint32(depth) > c.limits.WorkRequests || maxSGE < 0 || uint32(maxSGE) > c.limits.SGEs || limit < 0 || limit > depth {
		return nil, syscall.EINVAL
	}
	if err := c.take(&c.inUse.srqs, c.limits.SRQs); err != nil {
		return nil, err
	}
	pd.holds.Add(1)
	maxSGE = max(1, maxSGE)
	return &SRQ{pd: pd, receives: rc.NewReceiveQueue(depth, maxSGE), depth: depth, maxSGE: maxSGE, limit: limit}, nil
}

// Destroy ends the queue, and drops the receives that are queued: EBUSY while a queue pair uses it.
func (s *SRQ) Destroy() error {
	if s.holds.Load() > 0 {
		return syscall.EBUSY
	}
	s.pd.holds.Add(-1)
	s.pd.context.give(&s.pd.context.inUse.srqs)
	return nil
}

// Query returns the queue's depth, pieces per receive and limit, which is 0 when its event has been raised.
func (s *SRQ) Query() (depth, maxSGE, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.depth, s.maxSGE, s.limit
}

// Resize changes the depth: EINVAL if more receives are queued.
func (s *SRQ) Resize(depth int) error {
	if depth < 1 || uint32(depth) > s.pd.context.limits.WorkRequests {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resized := rc.NewReceiveQueue(depth, s.maxSGE)
	if err := s.receives.CopyTo(resized); err != nil || s.limit > depth {
		return syscall.EINVAL
	}
	s.receives, s.depth = resized, depth
	return nil
}

// SetLimit has an event be raised, once, when fewer than limit receives are queued; 0 for none.
func (s *SRQ) SetLimit(limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit < 0 || limit > s.depth {
		return syscall.EINVAL
	}
	s.limit = limit
	return nil
}

// Receive posts a receive.
func (s *SRQ) Receive(r ReceiveRequest) error {
	if len(r.SGL) > s.maxSGE {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tags.take(r.ID)
	if s.receives.Post(&rc.Receive{Context: t, SGL: r.SGL}) != nil {
		s.tags.give(t)
		return syscall.ENOMEM
	}
	return nil
}

// give ends the use of a tag, and returns its ID.
func (s *SRQ) give(t *tag) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags.give(t)
}

// Take implements rc.Receives. The lock of the queue pair that asks is held.
func (s *SRQ) Take(r *rc.Receive) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.receives.Take(r) {
		return false
	}
	if s.receives.Len() < s.limit {
		s.limit = 0
		s.pd.context.events(Event{Type: EventSRQLimitReached, SRQ: s})
	}
	return true
}
