package rc

import "time"

// A suspicion is that the timer was wrong when it ran out: the packets may not be
// lost, but the peer slow to acknowledge them. To send them all again would be a
// window of duplicates each time that the peer is.
//
// What comes back first decides. If it comes sooner after the packet that went
// to ask than any round trip takes, it cannot be the answer to that packet. So it
// was under way already, as the others may be: the cursor resumes where it
// was (the idea of the Eifel algorithm, RFC 3522, without its timestamps). If it
// comes later it may be either. Then a few packets go again, and what comes back
// next is judged by the same rule, once.
//
// In a repair no cursor has gone back. There it is the packet that went to ask
// which, if it has arrived, has overtaken all others: that is to be forgotten.
//
// The rule can be wrong: a path may have become quicker than it ever was. Then
// the packets are lost, and the timer runs out again before all that was resumed
// is acknowledged. The second time there is no suspicion.
type suspicion struct {
	open    bool
	judged  bool          // once already
	askedAt time.Duration // when the oldest packet was sent last
	resumed int64         // end of what was in flight when a timer was last found wrong

	// What was when the timer ran out.
	next, cursor, inFlight int64
	reads, answered        int
	delivered              int64
}

// suspect is the suspicion that there is when the timer runs out now. One that is
// open stays: what was sent since is a few packets.
func (r *requester) suspect() suspicion {
	if r.suspicion.open || r.una < r.suspicion.resumed {
		return r.suspicion
	}
	return suspicion{
		open: true, next: r.next, cursor: r.cursor, inFlight: r.inFlight,
		reads: r.reads, answered: r.answered, delivered: r.window.delivered,
	}
}

// judge decides upon the first progress after the timer ran out.
func (r *requester) judge(now time.Duration) {
	s := &r.suspicion
	switch {
	case !s.open:
	case r.una >= s.next, r.repair == nil && r.next >= s.next:
		s.open = false // there is nothing left to resume
	case now-s.askedAt < r.window.delay:
		s.open, s.resumed = false, s.next
		r.resume()
	case s.judged:
		s.open = false
	default:
		s.judged = true
	}
}

// resume takes it back that what was in flight when the timer ran out is lost.
func (r *requester) resume() {
	if r.repair != nil {
		r.repair.latest = -1 // none of what is in flight was overtaken
		return
	}
	s := &r.suspicion
	r.next, r.cursor = s.next, s.cursor
	r.inFlight = s.inFlight - (r.window.delivered - s.delivered)
	r.reads = s.reads - (r.answered - s.answered)
	r.stragglers = 0
}
