package bufferstats

import (
	"testing"
	"time"
)

// Percentiles of a queue's length are weighted by the time that it had it. Time in which it is empty counts if a
// packet follows.
func TestLengths(t *testing.T) {
	var l Lengths
	if got := l.Percentile(0.5); got != 0 {
		t.Errorf("of a queue in which nothing was: %d", got)
	}
	us := time.Microsecond
	for _, step := range []struct {
		at    time.Duration
		bytes int64
	}{
		{5 * us, 0}, // before the first packet
		{10 * us, 20}, {60 * us, 10}, {90 * us, 0}, {100 * us, 30}, {109 * us, 30}, {110 * us, 0}, {200 * us, 0},
	} {
		l.Observe(step.at, step.bytes)
	}
	// Of the 100 us from 10 to 110: 10 at 0 bytes, 30 at 10, 50 at 20, 10 at 30. Time after 110 counts only if a packet follows.
	for share, want := range map[float64]uint64{0.05: 0, 0.1: 0, 0.101: 10, 0.4: 10, 0.401: 20, 0.9: 20, 0.901: 30, 1: 30} {
		if got := l.Percentile(share); got != want {
			t.Errorf("percentile %v: %d bytes, want %d", 100*share, got, want)
		}
	}
	l.Observe(300*us, 10)
	if got := l.Percentile(0.5); got != 0 {
		t.Errorf("after 190 us in which it was empty: %d", got)
	}
}
