package dataplane

import "time"

// A Transit is a frame's way over a wire.
type Transit struct {
	Departs time.Duration // when it leaves the wire
	Queued  time.Duration // before the wire's rate
	Delay   time.Duration // on the wire behind that
}

type transit[F any] struct {
	frame F
	Transit
}

// transits are frames in the order in which they leave, a ring.
type transits[F any] struct {
	ring       []transit[F] // of a power of two
	head, used int
}

func (q *transits[F]) at(i int) *transit[F] { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *transits[F]) first() *transit[F] { return q.at(0) }

// push puts a frame behind all that leave before it or with it. Few ever leave before
// others that came earlier.
func (q *transits[F]) push(t transit[F]) {
	if q.used == len(q.ring) {
		ring := make([]transit[F], max(16, 2*len(q.ring)))
		for i := range q.used {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	i := q.used
	q.used++
	for ; i > 0 && q.at(i-1).Departs > t.Departs; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(i) = t
}

// pop takes the first off.
func (q *transits[F]) pop() transit[F] {
	t := *q.first()
	var none F
	q.first().frame = none
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.used--
	return t
}
