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

	r = newRoundTrip(&Connection{})
	for range 100 {
		r.backOff()
	}
	check(longestTimeout)
}
