package rc

import "time"

// A roundTrip estimates how long an acknowledgement may take, which decides
// when to ask for it (probe.go): Jacobson's smoothed mean and deviation, with Karn's rule
// applied by the caller. It is apart from the AckTimeout that was agreed, which
// is made for NICs, starts at tens of milliseconds, and says when to give up.
type roundTrip struct {
	srtt, rttvar time.Duration // both 0 before the first sample
	backedOff    uint          // times that the timeout has doubled
	first        time.Duration // timeout before the first sample
	slowest      time.Duration // of all samples
	bound        time.Duration // longest that the last may have taken that is no sample
	ackDelay     time.Duration // that the peer announced
	longest      time.Duration
}

const (
	// firstTimeout is the timeout as long as nothing is known of the path. A value
	// that replaces it has bounds (see setFirstTimeout): the peer's process may be
	// slower to answer to data than it was when the connection was made, and its
	// consumer was asked then, too.
	firstTimeout  = 20 * time.Millisecond
	shortestFirst = 5 * time.Millisecond
	longestFirst  = 200 * time.Millisecond
	// shortestTimeout is a balance: to ask too early costs a short packet for nothing
	// each time that the peer's process is not scheduled at once.
	shortestTimeout = time.Millisecond
	// A peer that announces an AckDelay is given that, until it has shown that it
	// is quicker: then so many times the longest that it has taken. Linux announces
	// 134 ms, and needs them under an emulator only.
	ackDelayFactor = 8
	// longestTimeout bounds the timeout where no AckTimeout does.
	longestTimeout = time.Second
)

func newRoundTrip(c *Connection) roundTrip {
	r := roundTrip{first: firstTimeout, ackDelay: c.AckDelay, longest: longestTimeout}
	if c.AckTimeout > 0 {
		r.longest = c.AckTimeout
	}
	return r
}

// setFirstTimeout takes how long the peer took to answer when the connection was made,
// which is a round trip and what its consumer took to decide. So the first
// timeout need not be much longer. It is no sample: it would linger in the mean.
func (r *roundTrip) setFirstTimeout(atMost time.Duration) {
	r.first = min(max(2*atMost, shortestFirst), longestFirst)
	r.bound = atMost
}

// sample takes the time that one packet's acknowledgement took.
func (r *roundTrip) sample(took time.Duration) {
	if r.srtt == 0 {
		r.srtt, r.rttvar = took, took/2
	} else {
		r.rttvar += (max(took-r.srtt, r.srtt-took) - r.rttvar) / 4
		r.srtt += (took - r.srtt) / 8
	}
	r.slowest = max(r.slowest, took)
	r.backedOff, r.bound = 0, 0
}

// setBound takes how long an acknowledgement took at most that may be for a packet or
// for the probe after it. It is no sample, but all that is heard behind a queue that
// grows faster than the timeout: there a probe is always out.
func (r *roundTrip) setBound(took time.Duration) { r.bound = took }

// minTimeout returns the shortest timeout.
func (r *roundTrip) minTimeout() time.Duration {
	delay := r.ackDelay
	if r.slowest > 0 {
		delay = min(delay, ackDelayFactor*r.slowest)
	}
	return max(shortestTimeout, delay)
}

// rto returns the longest that acknowledgements usually take, 0 before the first sample.
func (r *roundTrip) rto() time.Duration { return r.srtt + max(4*r.rttvar, r.srtt/4) }

// upperBound returns the longest that acknowledgements may take lately, as far as is known.
func (r *roundTrip) upperBound() time.Duration { return max(r.rto(), r.bound) }

// timeout returns the time to wait for an acknowledgement before asking. Doubling
// ends at the AckTimeout.
func (r *roundTrip) timeout() time.Duration {
	once := min(max(r.first, r.minTimeout()), r.longest)
	if r.srtt > 0 {
		once = max(r.minTimeout(), r.rto())
	}
	return min(once<<r.backedOff, max(once, r.longest))
}

// backOff doubles the timeout, until there is a sample.
func (r *roundTrip) backOff() {
	if r.timeout() < r.longest {
		r.backedOff++
	}
}

// reduceBackOff halves the timeout: the path answers, but only to what was sent again.
func (r *roundTrip) reduceBackOff() {
	if r.backedOff > 0 {
		r.backedOff--
	}
}
