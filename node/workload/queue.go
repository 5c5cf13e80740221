package workload

// A queue has the lanes of a client that may post, each once, in the order in which they
// take turns.
type queue struct {
	ring         []*lane // with room for all
	first, count int
}

func newQueue(lanes int) queue { return queue{ring: make([]*lane, lanes)} }

// push adds a lane behind all others, unless it is there already.
func (q *queue) push(l *lane) {
	if l.queued {
		return
	}
	l.queued = true
	q.ring[(q.first+q.count)%len(q.ring)] = l
	q.count++
}

// head is the lane whose turn it is; nil if there is none.
func (q *queue) head() *lane {
	if q.count == 0 {
		return nil
	}
	return q.ring[q.first]
}

// pop removes the head.
func (q *queue) pop() {
	q.ring[q.first].queued = false
	q.first = (q.first + 1) % len(q.ring)
	q.count--
}
