package workload

// A queue has the pipelines of a client that may post, each once, in the order in which
// they take turns.
type queue struct {
	ring         []*pipeline // with room for all
	first, count int
}

func newQueue(pipelines int) queue { return queue{ring: make([]*pipeline, pipelines)} }

// push adds a pipeline behind all others, unless it is there already.
func (q *queue) push(p *pipeline) {
	if p.queued {
		return
	}
	p.queued = true
	q.ring[(q.first+q.count)%len(q.ring)] = p
	q.count++
}

// head returns the pipeline whose turn it is; nil if there is none.
func (q *queue) head() *pipeline {
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
