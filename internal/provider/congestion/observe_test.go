package congestion

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A look at a rate finds the one that would be sent at, and changes nothing, to the last bit.
func TestObserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parameters := rapid.SampledFrom([]DCQCN{simple(), ConnectX(), Paper()}).Draw(t, "parameters")
		looked, alone := newReactionPoint(&parameters, 25e9), newReactionPoint(&parameters, 25e9)
		p := NewPacer(looked, 25e9, 0, 0)
		now := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "CNPs") {
			looked.Notified(now)
			alone.Notified(now)
			for range rapid.IntRange(0, 5).Draw(t, "looks") {
				now += time.Duration(rapid.Int64Range(0, int64(5*time.Millisecond)).Draw(t, "wait"))
				then := *alone
				rate, target := p.Observe(now)
				if want := then.Rate(now); rate != want || target != then.target {
					t.Fatalf("at %v: rate %v and target %v, want %v and %v", now, rate, target, want, then.target)
				}
			}
			if got, want := looked.Rate(now), alone.Rate(now); got != want || looked.target != alone.target {
				t.Fatalf("at %v: rate %v of one that was looked at, want %v", now, got, want)
			}
		}
	})
	if rate, target := NewPacer(unlimited{}, 25e9, 0, 0).Observe(time.Second); rate != 0 || target != 0 {
		t.Errorf("without an algorithm: rate %v, target %v", rate, target)
	}
}
