// Package series takes down how queues, queue pairs and the losses of links go over time, in bounded memory.
//
// A Recorder knows the instant of its next point, and nothing else of time: whoever runs the clock
// gives it the state of everything at that instant. When it is full it drops each second point,
// which leaves exactly what a Recorder of twice the period would have. It does no I/O, and is not
// for use by several goroutines at once.
//
// Start reading at Recorder.
package series

import (
	"math"
	"time"
)

// Bounds of a Recorder.
const (
	mostPoints  = 4096
	mostNumbers = 1 << 18 // of all points together; some 5 MB of JSON
	leastPoints = 64      // which it has before it halves them, however many queues and queue pairs there are
)

// A Recorder has the points of a run so far. At each instant that Due returns its user tells the state
// of queues, queue pairs and directions by their Set, in any order, and then calls Next. Those that
// are not told have nothing at that point.
type Recorder struct {
	period     time.Duration // by now
	points     int           // that are complete
	queues     []*Queue
	pairs      []*Pair
	directions []*Direction
}

// New returns a Recorder that begins with a period, which is positive.
func New(period time.Duration) *Recorder { return &Recorder{period: period} }

// Due returns the instant of the next point, since the run began.
func (r *Recorder) Due() time.Duration { return time.Duration(r.points+1) * r.period }

// Next completes the point that was due.
func (r *Recorder) Next() {
	r.points++
	columns := 0
	for _, q := range r.queues {
		columns += q.bytes.kept() + q.paused.kept()
	}
	for _, p := range r.pairs {
		columns += p.rate.kept() + p.target.kept() + p.window.kept() + p.cnps.kept() + p.resent.kept()
	}
	for _, d := range r.directions {
		columns += d.dropped.kept() + d.lost.kept()
	}
	if r.points%2 != 0 {
		return // halve wants an even number
	}
	if r.points >= mostPoints || r.points >= leastPoints && (r.points+2)*columns > mostNumbers {
		r.halve()
	}
}

// halve doubles the period. It is for an even number of points, so that the last one stays.
func (r *Recorder) halve() {
	r.period *= 2
	r.points /= 2
	for _, q := range r.queues {
		q.bytes.halve(last)
		q.paused.halve(sum)
	}
	for _, p := range r.pairs {
		p.rate.halve(last)
		p.target.halve(last)
		p.window.halve(last)
		p.cnps.halve(sum)
		p.resent.halve(sum)
	}
	for _, d := range r.directions {
		d.dropped.halve(sum)
		d.lost.halve(sum)
	}
}

func last(_, b uint64) uint64 { return b }
func sum(a, b uint64) uint64  { return a + b }

// A Queue is a class at an endpoint.
type Queue struct {
	of       *Recorder
	endpoint string
	class    int
	bytes    column
	paused   column        // nanoseconds of each period
	before   time.Duration // it was paused until the last point
}

// Queue returns a new queue, of which there is one for an endpoint and a class.
func (r *Recorder) Queue(endpoint string, class int) *Queue {
	q := &Queue{of: r, endpoint: endpoint, class: class}
	r.queues = append(r.queues, q)
	return q
}

// Set tells what a queue holds at the point that is due, in bytes, and how long it was paused until then,
// in all since the run began. It does so once for a point.
func (q *Queue) Set(bytes uint64, paused time.Duration) {
	q.bytes.set(q.of.points, bytes)
	q.paused.set(q.of.points, uint64(max(paused-q.before, 0)))
	q.before = paused
}

// A Pair is a queue pair of a reliable connection.
type Pair struct {
	of                   *Recorder
	node, peer           string
	number               uint32
	rate, target, window column
	cnps, resent         counter
}

// Pair returns a new queue pair, of a node and with its peer.
func (r *Recorder) Pair(node, peer string, number uint32) *Pair {
	p := &Pair{of: r, node: node, peer: peer, number: number}
	r.pairs = append(r.pairs, p)
	return p
}

// A Sending says how a queue pair sends.
type Sending struct {
	Rate, Target  uint64 // that it may send now and that this recovers to, in bits per second; 0: there is none
	Window        uint64 // bytes that may be in flight; 0: any number
	CNPs          uint64 // that it was sent so far
	Retransmitted uint64 // packets so far
}

// Begin tells what a queue pair has counted before the run.
func (p *Pair) Begin(s Sending) { p.cnps.before, p.resent.before = s.CNPs, s.Retransmitted }

// Set tells how a queue pair sends at the point that is due.
func (p *Pair) Set(s Sending) {
	at := p.of.points
	p.rate.set(at, s.Rate)
	p.target.set(at, s.Target)
	p.window.set(at, s.Window)
	p.cnps.count(at, s.CNPs)
	p.resent.count(at, s.Retransmitted)
}

// A Direction counts losses of the packets that one endpoint of a link sends.
type Direction struct {
	of            *Recorder
	from          string
	dropped, lost counter
}

// Direction returns a new direction, from an endpoint.
func (r *Recorder) Direction(from string) *Direction {
	d := &Direction{of: r, from: from}
	r.directions = append(r.directions, d)
	return d
}

// Begin tells what a direction has counted before the run.
func (d *Direction) Begin(dropped, lost uint64) { d.dropped.before, d.lost.before = dropped, lost }

// Set tells how many packets so far a direction has dropped by asked-for loss, and lost for other reasons, at the point that is due.
func (d *Direction) Set(dropped, lost uint64) {
	d.dropped.count(d.of.points, dropped)
	d.lost.count(d.of.points, lost)
}

// Report returns the points that are complete.
func (r *Recorder) Report() *Series {
	s := &Series{PeriodUS: float64(r.period) / 1e3, Points: r.points}
	for _, q := range r.queues {
		is := QueueSeries{Endpoint: q.endpoint, Class: q.class, Bytes: q.bytes.upTo(r.points)}
		for _, ns := range q.paused.upTo(r.points) {
			share := float64(ns) / float64(r.period)
			is.Paused = append(is.Paused, math.Round(min(share, 1)*1e4)/1e4)
		}
		if is.Bytes != nil || is.Paused != nil {
			s.Queues = append(s.Queues, is)
		}
	}
	for _, p := range r.pairs {
		is := PairSeries{
			Node: p.node, Peer: p.peer, QP: p.number, BPS: p.rate.upTo(r.points), Target: p.target.upTo(r.points), Window: p.window.upTo(r.points),
			CNPs: p.cnps.upTo(r.points), Retransmitted: p.resent.upTo(r.points),
		}
		if is.BPS != nil || is.Window != nil || is.CNPs != nil || is.Retransmitted != nil {
			s.Pairs = append(s.Pairs, is)
		}
	}
	for _, d := range r.directions {
		is := DirectionSeries{From: d.from, Dropped: d.dropped.upTo(r.points), Lost: d.lost.upTo(r.points)}
		if is.Dropped != nil || is.Lost != nil {
			s.Links = append(s.Links, is)
		}
	}
	return s
}

// A counter is a column of what was counted in each period.
type counter struct {
	column
	before uint64 // so far, when it was told last
}

// count sets the number of a point, of which n is counted so far. One that has gone back began anew, as that of a node that was started again.
func (c *counter) count(point int, n uint64) {
	if n < c.before {
		c.before = 0
	}
	c.set(point, n-c.before)
	c.before = n
}

// A column is numbers over time. It keeps none before the first that is not 0, and none behind the last.
type column struct {
	from    int // the point of the first
	numbers []uint64
}

// kept returns 1 if it has a number that is not 0, else 0.
func (c *column) kept() int { return min(len(c.numbers), 1) }

// set sets the number of a point, behind all others.
func (c *column) set(point int, n uint64) {
	switch {
	case n == 0:
		return
	case c.numbers == nil:
		c.from = point
	}
	for c.from+len(c.numbers) < point {
		c.numbers = append(c.numbers, 0)
	}
	c.numbers = append(c.numbers, n)
}

// halve merges each two numbers.
func (c *column) halve(merge func(a, b uint64) uint64) {
	if c.numbers == nil {
		return
	}
	at := func(point int) uint64 {
		if i := point - c.from; i >= 0 && i < len(c.numbers) {
			return c.numbers[i]
		}
		return 0
	}
	merged := column{}
	for point := c.from / 2; 2*point < c.from+len(c.numbers); point++ {
		merged.set(point, merge(at(2*point), at(2*point+1)))
	}
	*c = merged
}

// upTo returns the numbers of so many points; nil if all are 0.
func (c *column) upTo(points int) []uint64 {
	if c.numbers == nil || c.from >= points {
		return nil
	}
	all := make([]uint64, points)
	copy(all[c.from:], c.numbers)
	return all
}
