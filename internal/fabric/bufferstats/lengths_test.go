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

// Each length keeps its time when the queue has many others in between, and when somebody asks in between.
func TestLengthsOfMany(t *testing.T) {
	const lengths, rounds = 100, 3
	var l Lengths
	now := time.Duration(0)
	for range rounds {
		for n := range int64(lengths) {
			l.Observe(now, n)
			now += time.Duration(1 + n) // in all, 1 + n in 5050 of the time
		}
		l.Percentile(0.5)
	}
	l.Observe(now, 0)
	passed := 0
	for n := range uint64(lengths) {
		passed += int(1 + n)
		if got := l.Percentile(float64(passed) / (lengths * (lengths + 1) / 2)); got != n {
			t.Errorf("at most %d bytes in %d of 5050 of the time, want %d", got, passed, n)
		}
	}
}
