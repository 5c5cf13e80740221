package linkem

import (
	"slices"
	"time"
)

// A run is a series of packets of one frame that leave together.
type run struct {
	departs      time.Duration // by the machine
	queued       time.Duration // of the fabric: sum over the packets of what they spent in the queue before the rate
	held         *heldFrame
	first, count int32
	order        uint32 // place in the order of arrival, which orders those that depart at the same time; it wraps
	mark         bool   // they bear Congestion Experienced
	routed       bool   // their headers are not the frame's
}

// before reports whether r leaves before s.
func (r *run) before(s *run) bool {
	return r.departs < s.departs || r.departs == s.departs && int32(r.order-s.order) < 0
}

// follows reports whether r can be sent in one message with p, before it: as
// further packets of the same frame.
func (r *run) follows(p *run) bool {
	return r.held == p.held && r.first == p.first+p.count && r.mark == p.mark
}

// A queue holds runs in the order in which they leave. Nearly all are pushed in that
// order. One that leaves before others does not move thousands of them: it is kept aside
// until its time is near.
type queue struct {
	runs   []run // from head on, in order
	head   int
	strays []run  // a heap of those that leave before some that were pushed earlier
	pushed uint32 // how many were pushed in all, modulo 2^32
}

// slack is the room, in runs, that merge makes before the head when there is none.
const slack = 64

// push adds a run, whose order it sets.
func (q *queue) push(r run) {
	r.order = q.pushed
	q.pushed++
	if last := len(q.runs) - 1; last >= q.head && r.departs < q.runs[last].departs {
		q.strays = append(q.strays, r)
		q.rise(len(q.strays) - 1)
		return
	}
	if len(q.runs) == cap(q.runs) && q.head > len(q.runs)/2 {
		q.runs = q.runs[:copy(q.runs, q.runs[q.head:])]
		q.head = 0
	}
	q.runs = append(q.runs, r)
}

// empty reports whether there are no runs.
func (q *queue) empty() bool { return q.head == len(q.runs) && len(q.strays) == 0 }

// merge puts strays that leave until an instant where they belong among the runs.
func (q *queue) merge(until time.Duration) {
	for len(q.strays) > 0 && q.strays[0].departs <= until {
		r := q.takeStray()
		if q.head == 0 {
			q.runs = slices.Insert(q.runs, 0, make([]run, slack)...)
			q.head = slack
		}
		q.head--
		at := q.head
		for ; at+1 < len(q.runs) && q.runs[at+1].before(&r); at++ {
			q.runs[at] = q.runs[at+1]
		}
		q.runs[at] = r
	}
}

// first returns the run that leaves first, and merges those that leave within near of it.
// There must be one.
func (q *queue) first(near time.Duration) *run {
	if len(q.strays) > 0 {
		departs := q.strays[0].departs
		if q.head < len(q.runs) {
			departs = min(departs, q.runs[q.head].departs)
		}
		q.merge(departs + near)
	}
	return &q.runs[q.head]
}

// upcoming returns the runs in the order they leave, without strays that are not merged
// yet.
func (q *queue) upcoming() []run { return q.runs[q.head:] }

// drop removes the first run and returns the frame that it was of.
func (q *queue) drop() *heldFrame {
	h := q.runs[q.head].held
	q.runs[q.head].held = nil
	q.head++
	if q.head == len(q.runs) {
		q.runs, q.head = q.runs[:0], 0
	}
	return h
}

// takeStray takes the first stray.
func (q *queue) takeStray() run {
	s := q.strays
	r, last := s[0], len(s)-1
	s[0], s[last] = s[last], run{}
	q.strays = s[:last]
	q.sink()
	return r
}

// rise moves stray i of the heap up to where it belongs.
func (q *queue) rise(i int) {
	for s := q.strays; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(&s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

// sink moves the top of the heap down to where it belongs.
func (q *queue) sink() {
	s, i := q.strays, 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			return
		}
		if child+1 < len(s) && s[child+1].before(&s[child]) {
			child++
		}
		if !s[child].before(&s[i]) {
			return
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
