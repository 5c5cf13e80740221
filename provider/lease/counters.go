package lease

import (
	"context"
	"sync"
	"time"
)

// The NDIS counters of all processes are in the ledger. Those of the transport
// below are each process's own: the owner asks for them, and a process that ends
// in order leaves its last.

// answering bounds the time that the owner waits for a process which it has asked for its counters
// (Server.answering).
const answering = 200 * time.Millisecond

// TransportCounters reads what the transports of all processes have counted, by
// name, those that are gone included. Of a process that does not answer at once,
// because it is stopped, and of one that was killed, it is what they said last.
func (s *Server) TransportCounters(ctx context.Context) map[string]uint64 {
	ctx, cancel := context.WithTimeout(ctx, s.answering)
	defer cancel()
	var asking sync.WaitGroup
	for h := range s.current() {
		asking.Go(func() { h.askCounters(ctx) })
	}
	asking.Wait()
	sum := s.device.TransportCounters()
	s.mu.Lock()
	defer s.mu.Unlock()
	add(sum, s.past)
	for h := range s.current() {
		add(sum, h.counted)
	}
	return sum
}

// askCounters has the process say what it has counted.
func (h *holder) askCounters(ctx context.Context) {
	// If it does not answer, what it said before counts.
	if counted, err := methodCounters.Call(ctx, h.conn, nil); err == nil {
		h.noteCounters(counted)
	}
}

// noteCounters takes what the process says that it has counted, of what a transport
// counts. Answers may overtake each other; counters do not decrease.
func (h *holder) noteCounters(counted map[string]uint64) {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.counted == nil {
		h.counted = map[string]uint64{}
	}
	for name, n := range counted {
		if _, known := s.countable[name]; known {
			h.counted[name] = max(h.counted[name], n)
		}
	}
}

// leaveCounters keeps what a process has counted that is gone, and whose share
// nobody holds any more from now on.
func (h *holder) leaveCounters() {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[h.share].Store(nil)
	add(s.past, h.counted)
}

func add(sum, more map[string]uint64) {
	for name, n := range more {
		sum[name] += n
	}
}
