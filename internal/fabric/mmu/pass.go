package mmu

import "time"

// Pass is Arrive of a packet and Next of the port by which it leaves, in one step: for a packet that nothing holds up, as most are in
// a network that is not congested. It returns false, and has done nothing, where they may have to do more than count it: then
// the packet is to Arrive. It is never marked, as it leaves behind, and has found, an empty queue.
func (s *Switch[P]) Pass(now time.Duration, in, out, class, bytes int) bool {
	if uint(in) >= uint(len(s.ports)) || uint(out) >= uint(len(s.ports)) || uint(class) >= Classes || now >= s.deadline {
		return false
	}
	to := &s.ports[out]
	bit := uint8(1) << class
	// A port that is idle has no PFC frame to send either, and what waits there is paused.
	if !to.idle || (to.paused|to.storming)&bit != 0 || bytes <= 0 || bytes > to.config.MaxFrame {
		return false
	}
	i, n := &s.ports[in].ingress[class], int64(bytes)
	if !i.passes(to.ingress[class].class, n, s.free()) {
		return false
	}
	i.peak = max(i.peak, i.held+n)
	s.peak = max(s.peak, s.queued+n)
	q := &to.queues[class]
	q.entered++
	q.left++
	q.counters.QueuePeak = max(q.counters.QueuePeak, n)
	q.counters.Packets++
	q.counters.Bytes += uint64(n)
	if to.strict&bit == 0 {
		to.turn, to.served = class, true // one quantum is enough for the longest packet
	}
	return true
}

// passes reports whether there is room for a packet that is not beyond XOFF with it.
func (i *ingress) passes(egress *Class, bytes, free int64) bool {
	c, held := i.class, i.held+bytes
	share := min(bytes, max(0, held-c.Reserve))
	switch {
	case share > free:
		return false
	case c.Lossless:
		return !i.xoff && !c.above(held, free-share) // XOFF might have to be asked for, or to be ended
	}
	return !egress.full(bytes, free)
}
