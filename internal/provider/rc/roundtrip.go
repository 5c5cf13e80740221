package rc

import "time"

// A roundTrip estimates how long an acknowledgement may take, which decides
// when to ask for it (probe.go): Jacobson's smoothed mean and deviation, with Karn's rule
// applied by the caller. It is apart from the AckTimeout that was agreed, which
// is made for NICs, starts at tens of milliseconds, and says when to give up.
type roundTrip struct {
	mean, deviation time.Duration // both 0 before the first sample
	backedOff       uint          // times that the timeout has doubled
	first           time.Duration // timeout before the first sample
	slowest         time.Duration // of all samples
	bound           time.Duration // longest that the last may have taken that is no sample
	ackDelay        time.Duration // that the peer announced
	longest         time.Duration
}

const (
	// firstTimeout is the timeout as long as nothing is known of the path. What it
	// may be set to instead has bounds (see expect): the peer's process may be
	// slower to answer to data than it was then, and its consumer was asked, too.
	firstTimeout  = 20 * time.Millisecond
	shortestFirst = 5 * time.Millisecond
	longestFirst  = 200 * time.Millisecond
	// shortestTimeout is a balance: to ask too early costs a short packet for nothing
	// each time that the peer's process is not scheduled at once.
	shortestTimeout = time.Millisecond
	// A peer that announces an AckDelay is given that, until it has shown that it
	// is quicker: then so many times the longest that it has taken. Linux announces
	// 134 ms, and needs them under an emulator only.
	patience = 8
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

// expect takes how long the peer took to answer when the connection was made,
// which is a round trip and what its consumer took to decide. So the first
// timeout need not be much longer. It is no sample: it would linger in the mean.
func (r *roundTrip) expect(atMost time.Duration) {
	r.first = min(max(2*atMost, shortestFirst), longestFirst)
	r.bound = atMost
}

// sample takes the time that one packet's acknowledgement took.
func (r *roundTrip) sample(took time.Duration) {
	if r.mean == 0 {
		r.mean, r.deviation = took, took/2
	} else {
		r.deviation += (max(took-r.mean, r.mean-took) - r.deviation) / 4
		r.mean += (took - r.mean) / 8
	}
	r.slowest = max(r.slowest, took)
	r.backedOff, r.bound = 0, 0
}

// boundBy takes how long an acknowledgement took at most that may be for a packet or
// for the probe after it. It is no sample, but all that is heard behind a queue that
// grows faster than the timeout: there a probe is always out.
func (r *roundTrip) boundBy(took time.Duration) { r.bound = took }

// shortest is the least that the timeout may be.
func (r *roundTrip) shortest() time.Duration {
	delay := r.ackDelay
	if r.slowest > 0 {
		delay = min(delay, patience*r.slowest)
	}
	return max(shortestTimeout, delay)
}

// usual is the longest that acknowledgements usually take, 0 before the first sample.
func (r *roundTrip) usual() time.Duration { return r.mean + max(4*r.deviation, r.mean/4) }

// slow is the longest that acknowledgements may take lately, as far as is known.
func (r *roundTrip) slow() time.Duration { return max(r.usual(), r.bound) }

// timeout returns the time to wait for an acknowledgement before asking. Doubling
// ends at the AckTimeout.
func (r *roundTrip) timeout() time.Duration {
	once := min(max(r.first, r.shortest()), r.longest)
	if r.mean > 0 {
		once = max(r.shortest(), r.usual())
	}
	return min(once<<r.backedOff, max(once, r.longest))
}

// backOff doubles the timeout, until there is a sample.
func (r *roundTrip) backOff() {
	if r.timeout() < r.longest {
		r.backedOff++
	}
}

// relax halves the timeout: the path answers, but only to what was sent again.
func (r *roundTrip) relax() {
	if r.backedOff > 0 {
		r.backedOff--
	}
}
