package transport

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Line is a Carrier of which packets with data wait for their turn in the queue pairs, not in a queue of the
// carrier's own: so an adapter takes packets of its queue pairs in turn, at the rate of the line.
type Line interface {
	Carrier
	// Turns returns those on the line at a local address.
	Turns(local netip.Addr) Turns
}

// Turns are given to packets one after the other.
type Turns interface {
	// Room reports whether the line is free for a packet.
	Room() bool
	// WhenRoom has f called once, later, when Room may report true.
	WhenRoom(f func())
}

// A Pause is that of packets of a traffic class from a local address, which a switch may ask for.
type Pause interface {
	// Active reports whether they have to wait now.
	Active() bool
	// WhenOver has f called once, later, when Active may report false.
	WhenOver(f func())
}

// A pausedLine has room while there is no Pause.
type pausedLine struct{ Pause }

// Room implements Turns.
func (p pausedLine) Room() bool { return !p.Active() }

// WhenRoom implements Turns.
func (p pausedLine) WhenRoom(f func()) { p.WhenOver(f) }

// A lineQueue has the channels that wait for the line at a local address, or for the end of a pause there. Each sends in its
// turn: one packet on a Line, and after a pause a batch.
type lineQueue struct {
	turns  Turns
	paused bool // it is about a pause

	queued atomic.Int32 // len(waiting), to be read without the lock

	mu      sync.Mutex // guards what follows; locked after a channel's
	waiting []*Channel // from head on
	head    int
	asked   bool   // whenFree was called, and resume was not since
	resumes func() // is resume
}

// A lineKey says whose turn it is together: who sends from a local address and, where there are pauses, with a DSCP.
type lineKey struct {
	local netip.Addr
	dscp  uint8
}

// lineAt returns the queue for the line at a local address, of packets of a traffic class; nil if nothing ever waits there: the
// carrier is no Line, or congestion control is that of the window alone, and there are no pauses.
func (d *Device) lineAt(local netip.Addr, class uint8) *lineQueue {
	key := lineKey{local: local}
	var turns Turns // found before the lock is taken, as a Line may have one of its own
	if d.line != nil {
		turns = d.line.Turns(local)
	} else {
		if d.Pause == nil {
			return nil
		}
		key.dscp = class >> 2
		pause := d.Pause(local, key.dscp)
		if pause == nil {
			return nil
		}
		turns = pausedLine{pause}
	}
	d.linesMu.Lock()
	defer d.linesMu.Unlock()
	q := d.lines[key]
	if q == nil {
		q = &lineQueue{turns: turns, paused: d.line == nil}
		q.resumes = q.resume
		d.lines[key] = q
	}
	return q
}

// admits reports whether a channel may send now: the line is free, and nobody waits for it.
func (q *lineQueue) admits() bool { return q.queued.Load() == 0 && q.turns.Room() }

// wait has a channel, whose lock is held, be resumed when the line is free and its turn has come.
func (q *lineQueue) wait(c *Channel) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.lineQueued {
		c.lineQueued = true
		q.push(c)
		q.queued.Add(1)
	}
	q.ask()
}

// ask has resume be called when the line is free. The lock is held.
func (q *lineQueue) ask() {
	if !q.asked && q.head < len(q.waiting) {
		q.asked = true
		q.turns.WhenRoom(q.resumes)
	}
}

// push and pop have a channel wait, and the first wait no longer. They use the memory again of those that wait no longer.
// The lock is held.
func (q *lineQueue) push(c *Channel) {
	if len(q.waiting) == cap(q.waiting) && 2*q.head >= len(q.waiting) {
		left := copy(q.waiting, q.waiting[q.head:])
		clear(q.waiting[left:])
		q.waiting, q.head = q.waiting[:left], 0
	}
	q.waiting = append(q.waiting, c)
}

func (q *lineQueue) pop() *Channel {
	c := q.waiting[q.head]
	q.waiting[q.head] = nil
	if q.head++; q.head == len(q.waiting) {
		q.waiting, q.head = q.waiting[:0], 0
	}
	return c
}

// resume has those who wait send, in their order, as long as the line is free.
func (q *lineQueue) resume() {
	q.mu.Lock()
	q.asked = false
	for q.head < len(q.waiting) && q.turns.Room() {
		c := q.pop()
		q.queued.Add(-1)
		q.mu.Unlock()
		c.sendInTurn()
		q.mu.Lock()
	}
	q.ask()
	q.mu.Unlock()
}

// sendInTurn sends what it may at once, and waits again if there is more.
func (c *Channel) sendInTurn() {
	c.Lock()
	defer c.Unlock()
	c.lineQueued, c.hasTurn = false, true
	c.Progress(c.device.Clock.Now())
	c.hasTurn = false
}
