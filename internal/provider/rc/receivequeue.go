package rc

// A ReceiveQueue is a bounded queue of receives, for one QP or, with a lock
// around it, for several. Take does not allocate, and Post only when there are more
// receives than ever before.
type ReceiveQueue struct {
	ring   []Receive // with room for as many as there have been at once, up to depth
	depth  int
	maxSGE int
	oldest int
	queued int
}

// NewReceiveQueue makes a queue for depth receives of up to maxSGE pieces.
func NewReceiveQueue(depth, maxSGE int) *ReceiveQueue {
	return &ReceiveQueue{depth: depth, maxSGE: maxSGE}
}

// leastReceives is the number of receives in the first ring, unless the depth is less.
const leastReceives = 8

// grow doubles the ring, which is full.
func (q *ReceiveQueue) grow() {
	ring := make([]Receive, min(q.depth, max(leastReceives, 2*len(q.ring))))
	n := copy(ring, q.ring[q.oldest:])
	n += copy(ring[n:], q.ring[:q.oldest])
	pieces := make([]SGE, (len(ring)-n)*q.maxSGE)
	for i := range ring[n:] {
		ring[n+i].SGL = pieces[i*q.maxSGE : i*q.maxSGE : (i+1)*q.maxSGE]
	}
	q.ring, q.oldest = ring, 0
}

// Post queues a receive. Nothing of r is kept. The error is ErrFull or ErrSGL.
func (q *ReceiveQueue) Post(r *Receive) error {
	if len(r.SGL) > q.maxSGE {
		return ErrSGL
	}
	if q.queued == q.depth {
		return ErrFull
	}
	if q.queued == len(q.ring) {
		q.grow()
	}
	slot := &q.ring[q.place(q.queued)]
	slot.Context = r.Context
	slot.SGL = append(slot.SGL[:0], r.SGL...)
	q.queued++
	return nil
}

// Take implements Receives.
func (q *ReceiveQueue) Take(r *Receive) bool {
	if q.queued == 0 {
		return false
	}
	slot := &q.ring[q.oldest]
	r.Context = slot.Context
	r.SGL = append(r.SGL[:0], slot.SGL...)
	slot.Context = nil
	q.oldest = q.place(1)
	q.queued--
	return true
}

// place returns the index in the ring of the n-th receive after the oldest, without
// a division.
func (q *ReceiveQueue) place(n int) int {
	if n += q.oldest; n >= len(q.ring) {
		n -= len(q.ring)
	}
	return n
}

// Len counts the receives that are queued.
func (q *ReceiveQueue) Len() int { return q.queued }

// CopyTo queues all that is queued here in another queue, which is empty and
// takes as many pieces. The error is ErrFull if there is no room for all, and
// then the other queue is of no use.
func (q *ReceiveQueue) CopyTo(other *ReceiveQueue) error {
	for i := range q.queued {
		if err := other.Post(&q.ring[q.place(i)]); err != nil {
			return err
		}
	}
	return nil
}
