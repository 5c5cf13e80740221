package cm

import (
	"container/heap"
	"time"
)

// timers are the connections that wait for something, soonest first.
type timers struct{ heap timerHeap }

func (t *timers) set(c *connection, deadline time.Duration) {
	c.deadline = deadline
	if c.timer < 0 {
		heap.Push(&t.heap, c)
	} else {
		heap.Fix(&t.heap, int(c.timer))
	}
}

// stop is for a connection that waits.
func (t *timers) stop(c *connection) { heap.Remove(&t.heap, int(c.timer)) }

func (t *timers) first() (time.Duration, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].deadline, true
}

// due returns the first connection whose deadline has come; it stays where it is.
func (t *timers) due(now time.Duration) *connection {
	if len(t.heap) == 0 || t.heap[0].deadline > now {
		return nil
	}
	return t.heap[0]
}

type timerHeap []*connection

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = int32(i), int32(j)
}

func (h *timerHeap) Push(x any) {
	c := x.(*connection)
	c.timer = int32(len(*h))
	*h = append(*h, c)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	c.timer = -1
	return c
}
