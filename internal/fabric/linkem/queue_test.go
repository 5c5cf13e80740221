package linkem

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Runs leave in the order of their departures, and those of the same instant in
// the order they were pushed, whatever is pushed and taken in between.
func TestQueueIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue{pushed: rapid.SampledFrom([]uint32{0, 1<<32 - 20}).Draw(t, "pushed before")}
		var want []run // in the order they should leave; first tells them apart
		now, pushed := time.Duration(0), int32(0)
		take := func(until time.Duration) {
			for !q.empty() && q.first(gather).departs <= until {
				got := *q.first(gather)
				if got.departs != want[0].departs || got.first != want[0].first {
					t.Fatalf("run %d of %v left, want %d of %v", got.first, got.departs, want[0].first, want[0].departs)
				}
				if got.held != q.drop() {
					t.Fatal("another frame was taken")
				}
				want = want[1:]
			}
			if len(want) > 0 && want[0].departs <= until {
				t.Fatalf("run %d of %v did not leave", want[0].first, want[0].departs)
			}
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			for range rapid.IntRange(0, 5).Draw(t, "runs") {
				// Mostly in order, some early, some far off.
				departs := now + rapid.SampledFrom([]time.Duration{50, 50, 50, 40, 0, 5 * gather, gather}).Draw(t, "delay")
				r := run{departs: departs, first: pushed, held: new(heldFrame)}
				pushed++
				q.push(r)
				want = append(want, r)
				slices.SortStableFunc(want, func(a, b run) int { return cmp.Compare(a.departs, b.departs) })
			}
			now += rapid.SampledFrom([]time.Duration{0, 1, 20, gather}).Draw(t, "time passes")
			take(now)
		}
		take(1 << 62)
		if !q.empty() || len(want) > 0 {
			t.Fatal("some are left")
		}
	})
}

// A queue that is never empty does not grow for ever.
func TestQueueReusesItsRoom(t *testing.T) {
	var q queue
	for i := range 100_000 {
		q.push(run{departs: time.Duration(i)})
		if i >= 10 {
			q.drop()
		}
	}
	if cap(q.runs) > 100 {
		t.Errorf("room for %d runs with 10 in the queue", cap(q.runs))
	}
}

// BenchmarkQueue has a line of 10,000 runs and one go in and out.
func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct {
		name  string
		delay func(i int) time.Duration
	}{
		{"in order", func(int) time.Duration { return 10_000 }},
		{"one in ten is early", func(i int) time.Duration { return 10_000 - time.Duration(i%10/9*3) }},
		{"all but one are before it", func(i int) time.Duration { return 10_000 + time.Duration(i%100_000/99_999*1_000_000) }},
		{"any order", func(i int) time.Duration { return 5000 + time.Duration(i*7919%10_000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var q queue
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				now := time.Duration(i)
				q.push(run{departs: now + c.delay(i)})
				for !q.empty() && q.first(0).departs <= now {
					q.drop()
				}
			}
		})
	}
}
