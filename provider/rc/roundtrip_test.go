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
	if got := r.timeout(); got < 12*ms || got > 12*ms+10*time.Microsecond {
		t.Errorf("timeout %v on a path of exactly 8 ms", got)
	}
	for range 100 {
		r.sample(ms / 10)
	}
	check(shortestTimeout)
	r.relax()
	check(shortestTimeout)

	// A path slower than the AckTimeout.
	r = newRoundTrip(&Connection{AckTimeout: ms, InitialRTT: 10 * ms})
	check(30 * ms)
	r.backOff()
	check(30 * ms)

	// A peer that may take its time, as Linux rxe announces.
	r = newRoundTrip(&Connection{AckTimeout: 537 * ms, AckDelay: 134 * ms})
	check(134 * ms)
	for range 100 {
		r.sample(ms / 10)
	}
	check(134 * ms)
	r.backOff()
	check(268 * ms)
	r.sample(200 * ms)
	if r.timeout() <= 200*ms {
		t.Errorf("timeout %v after 200 ms", r.timeout())
	}
	r = newRoundTrip(&Connection{AckTimeout: 67 * ms, AckDelay: 134 * ms})
	check(67 * ms)

	r = newRoundTrip(&Connection{})
	for range 100 {
		r.backOff()
	}
	check(longestTimeout)
}
