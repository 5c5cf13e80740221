package transport

import (
	"net/netip"
	"sync"
)

// A Line is a Carrier of which packets with data wait for their turn in the queue pairs, not in a queue of the
// carrier's own: so an adapter takes packets of its queue pairs in turn, at the rate of the line.
type Line interface {
	Carrier
	// Room reports whether the line at a local address is free for a packet.
	Room(local netip.Addr) bool
	// WhenRoom has f called once, later, when Room may report true.
	WhenRoom(local netip.Addr, f func())
}

// A lineQueue has the channels that wait for the line at a local address. Each sends one packet in its turn.
type lineQueue struct {
	local netip.Addr
	line  Line

	mu      sync.Mutex // guards what follows; locked after a channel's
	waiting []*Channel
	asked   bool // WhenRoom was called, and resume was not since
}

// lineAt returns the queue for the line at a local address; nil if the carrier is no Line, or congestion control is that of the
// window alone.
func (d *Device) lineAt(local netip.Addr) *lineQueue {
	if d.line == nil {
		return nil
	}
	d.linesMu.Lock()
	defer d.linesMu.Unlock()
	q := d.lines[local]
	if q == nil {
		q = &lineQueue{local: local, line: d.line}
		d.lines[local] = q
	}
	return q
}

// admits reports whether a channel may send a packet now: the line is free, and nobody waits for it.
func (q *lineQueue) admits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0 && q.line.Room(q.local)
}

// wait has a channel, whose lock is held, be resumed when the line is free and its turn has come.
func (q *lineQueue) wait(c *Channel) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.lineQueued {
		c.lineQueued = true
		q.waiting = append(q.waiting, c)
	}
	q.ask()
}

// ask has resume be called when the line is free. The lock is held.
func (q *lineQueue) ask() {
	if !q.asked && len(q.waiting) > 0 {
		q.asked = true
		q.line.WhenRoom(q.local, q.resume)
	}
}

// resume has those who wait send a packet each, in their order, as long as the line is free.
func (q *lineQueue) resume() {
	q.mu.Lock()
	q.asked = false
	for len(q.waiting) > 0 && q.line.Room(q.local) {
		c := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		c.sendInTurn()
		q.mu.Lock()
	}
	q.ask()
	q.mu.Unlock()
}

// sendInTurn sends a packet, and waits again if there are more.
func (c *Channel) sendInTurn() {
	c.Lock()
	defer c.Unlock()
	c.lineQueued, c.hasTurn = false, true
	c.Progress(c.device.Clock.Now())
	c.hasTurn = false
}
