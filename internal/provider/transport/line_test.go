package transport

import "testing"

// TestLineQueueOrder has channels take their turns in order, however many wait, without memory for each.
func TestLineQueueOrder(t *testing.T) {
	var q lineQueue
	channels := make([]Channel, 100)
	next, expected := 0, 0
	round := func(come, leave int) {
		for range come {
			q.push(&channels[next%len(channels)])
			next++
		}
		for range leave {
			if got := q.pop(); got != &channels[expected%len(channels)] {
				t.Fatalf("turn %d is another's", expected)
			}
			expected++
		}
	}
	round(50, 20)
	round(60, 10) // beyond what there was room for
	round(0, 79)
	if n := testing.AllocsPerRun(100, func() { round(7, 7) }); n > 0 {
		t.Errorf("%v allocations for seven turns while one waits", n)
	}
	round(0, 1)
	if q.head != len(q.waiting) {
		t.Errorf("%d are left", len(q.waiting)-q.head)
	}
}
