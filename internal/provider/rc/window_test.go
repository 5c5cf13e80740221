package rc

import (
	"testing"
	"time"
)

// TestEveryMark: each packet that is timed gives a sample when it is acknowledged,
// whatever was timed before.
func TestEveryMark(t *testing.T) {
	w := newWindow(&Connection{MTU: 1024, Credit: 1 << 20})
	sequence := int64(0)
	for round := range 100 {
		for i := range int64(3) {
			w.mark(time.Duration(i), sequence+i, 0)
		}
		for i := range int64(3) {
			took, ok := w.acknowledged(10, sequence+i+1, true)
			if want := 10 - time.Duration(i); !ok || took != want {
				t.Fatalf("round %d, packet %d: %v, %v; want %v", round, i, took, ok, want)
			}
		}
		sequence += 3
		if _, ok := w.acknowledged(10, sequence, true); ok {
			t.Fatalf("round %d: a sample of nothing", round)
		}
	}
}

// TestRateOfRounds: the best rate is remembered for round trips, not for
// acknowledgements, of which one round trip may have many.
func TestRateOfRounds(t *testing.T) {
	w := newWindow(&Connection{MTU: 1024, Credit: 1 << 20})
	best := func() float64 { return max(w.rate, w.lastRate) }
	w.delivered = 1000
	w.sampleRate(1e9, 0)
	for i := range int64(100) {
		w.delivered++
		w.sampleRate(1, i) // of packets sent before the round began
	}
	if got := best(); got != 1e9 {
		t.Fatalf("within a round trip the rate has fallen to %v", got)
	}
	for rounds := 1; best() == 1e9; rounds++ {
		if rounds > 2*ratePeriod {
			t.Fatal("the rate never falls")
		}
		from := w.delivered
		w.delivered += 1000
		w.sampleRate(1, from)
	}
}
