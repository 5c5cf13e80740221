package rc

import (
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	const ms = time.Millisecond
	r := newRoundTrip(&Connection{AckTimeout: 100 * ms})
	check := func(want time.Duration) {
		t.Helper()
		if got := r.timeout(); got != want {
			t.Errorf("timeout %v, want %v", got, want)
		}
	}
	check(firstTimeout)
	r.sample(8 * ms) // deviation 4 ms
	check(24 * ms)
	r.backOff()
	check(48 * ms)
	r.backOff()
	check(96 * ms)
	r.backOff()
	r.backOff()
	check(100 * ms) // the AckTimeout
	r.relax()
	r.relax()
	check(48 * ms)
	for range 100 { // and a sample forgets it all
		r.sample(8 * ms)
	}
	if got := r.timeout(); got < 10*ms || got > 10*ms+10*time.Microsecond {
		t.Errorf("timeout %v on a path of exactly 8 ms", got)
	}
	for range 100 {
		r.sample(ms / 10)
	}
	check(shortestTimeout)
	r.relax()
	check(shortestTimeout)

	// A path slower than the AckTimeout.
	r = newRoundTrip(&Connection{AckTimeout: ms})
	r.sample(10 * ms)
	check(30 * ms)
	r.backOff()
	check(30 * ms)

	// A peer that may take its time, as Linux rxe announces.
	r = newRoundTrip(&Connection{AckTimeout: 537 * ms, AckDelay: 134 * ms})
	check(134 * ms)
	r.backOff()
	check(268 * ms)
	for range 100 {
		r.sample(ms) // it is quicker
	}
	check(8 * ms)
	r.sample(5 * ms) // for once it is not
	for range 100 {
		r.sample(ms)
	}
	check(40 * ms)
	r.sample(100 * ms)
	for range 100 {
		r.sample(ms)
	}
	check(134 * ms)
	r.sample(200 * ms)
	if r.timeout() <= 200*ms {
		t.Errorf("timeout %v after 200 ms", r.timeout())
	}
	r = newRoundTrip(&Connection{AckTimeout: 67 * ms, AckDelay: 134 * ms})
	check(67 * ms)

	// The first timeout follows from how long the handshake took, within limits.
	for took, want := range map[time.Duration]time.Duration{
		ms / 10: shortestFirst, 5 * ms: 10 * ms, 50 * ms: 100 * ms, time.Minute: longestFirst,
	} {
		r = newRoundTrip(&Connection{AckTimeout: 537 * ms})
		r.expect(took)
		check(want)
		r.sample(ms)
		check(3 * ms)
		r = newRoundTrip(&Connection{AckTimeout: 537 * ms, AckDelay: 134 * ms})
		r.expect(took)
		check(max(want, 134*ms))
		r = newRoundTrip(&Connection{AckTimeout: 67 * ms})
		r.expect(took)
		check(min(want, 67*ms))
	}

	r = newRoundTrip(&Connection{})
	for range 100 {
		r.backOff()
	}
	check(longestTimeout)
}
