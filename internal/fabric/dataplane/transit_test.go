package dataplane

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Frames leave in the order of their times, those of one time as they came.
func TestTransits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q transits[int]
		var want []transit[int]
		for step := range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(want) > 0 && rapid.Bool().Draw(t, "pop") {
				if got := q.pop(); got != want[0] {
					t.Fatalf("%v left, want %v", got.Departs, want[0].Departs)
				}
				want = want[1:]
				continue
			}
			next := transit[int]{step, Transit{Departs: time.Duration(rapid.IntRange(0, 20).Draw(t, "departs"))}}
			q.push(next)
			want = append(want, next)
			slices.SortStableFunc(want, func(a, b transit[int]) int { return int(a.Departs - b.Departs) })
		}
		if q.used != len(want) {
			t.Fatalf("%d are left, want %d", q.used, len(want))
		}
	})
}
