package mmu

import "time"

// Counters are those of a port and class, since the beginning. Rx and Tx are the port's: Rx is about
// frames that came in and the pauses of what leaves here, Tx about frames sent and the pauses of what
// comes in here.
type Counters struct {
	Packets, Bytes uint64 // that left by the port
	Marked         uint64 // of those
	QueuePeak      int64  // bytes that waited to leave by the port

	// Drops has those of packets that came in by the port, for NoHeadroom and NoBuffer, and of
	// packets that were to leave by it, for QueueFull and Storm.
	Drops [verdicts]uint64

	RxPause, TxPause             uint64        // PFC frames, those that end a pause included
	RxPauseTime, TxPauseTime     time.Duration // from the frame that begins a pause to its end
	RxTransitions, TxTransitions uint64        // pauses that ended
	Storms                       uint64

	IngressPeak  int64 // bytes that had come in by it, headroom included
	HeadroomPeak int64 // of those, in the headroom
}

// Counters returns the counters of a port and class; pauses that last count as far as they have.
func (s *Switch[P]) Counters(now time.Duration, port, class int) Counters {
	s.advance(now)
	p := &s.ports[port]
	c := p.queues[class].counters
	c.IngressPeak = p.ingress[class].peak
	if p.paused>>class&1 != 0 {
		c.RxPauseTime += now - p.queues[class].pausedAt
	}
	if p.told>>class&1 != 0 {
		c.TxPauseTime += now - p.ingress[class].toldAt
	}
	return c
}

// Begin has all counters begin anew. A pause that lasts counts from now on.
func (s *Switch[P]) Begin(now time.Duration) {
	s.advance(now)
	s.peak = s.queued
	for i := range s.ports {
		p := &s.ports[i]
		for class := range Classes {
			q, in := &p.queues[class], &p.ingress[class]
			q.counters, in.peak = Counters{QueuePeak: q.bytes, HeadroomPeak: in.headroom}, in.held+in.headroom
			q.pausedAt, in.toldAt = max(q.pausedAt, now), max(in.toldAt, now)
		}
	}
}
