package linkem

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/priority"
	"golang.org/x/sys/unix"
)

// retryAfter is the time that a line waits when its interface takes no more frames.
const retryAfter = 50 * time.Microsecond

// sendsAtOnce bounds the lines that send between two waits, so that a backlog does not keep
// frames from being received.
const sendsAtOnce = 4

// An egress is the send side: it sends the frames of lines when their time has come. It
// belongs to the loop's thread.
type egress struct {
	*epoch
	memory     *pool
	sender     *sender
	departures departures
}

// sendDue sends what is due on some lines.
func (e *egress) sendDue() {
	for range sendsAtOnce {
		if e.departures.Len() == 0 || e.departures.First().release > e.now() {
			return
		}
		e.send(e.departures.First())
	}
}

// enqueue puts runs into a line. Those without a frame of their own are of whole, and
// lost if that is nil because there was no memory for it.
func (e *egress) enqueue(n *line, runs []run, whole *heldFrame) {
	first, release := n.queue.empty(), n.release
	for _, r := range runs {
		if r.held == nil {
			if whole == nil {
				n.stats.Counts.LostOverrun += uint64(r.count)
				continue
			}
			r.held = whole
		}
		if r.mark && r.held.frame.Segments() == 1 {
			frame.Mark(r.held.frame.Packet())
			r.mark = false
		}
		r.held.runs++
		e.memory.left -= runCost
		n.queue.push(r)
		release = min(release, r.departs)
	}
	if n.queue.empty() {
		return
	}
	if first || release < n.release {
		n.schedule()
		e.departures.Put(n)
	}
}

// send sends what is due, or a good part of it.
func (e *egress) send(n *line) {
	messages := e.sender.fill(n, e.now())
	sent, errno := e.sender.send(n.to.fd, messages)
	now := e.now()
	done := 0
	due := n.queue.upcoming()
	for i := range sent {
		for ; done < e.sender.ends[i]; done++ {
			n.deliver(&due[done], now, e.dilation)
		}
	}
	if sent < messages {
		switch errno {
		case unix.EAGAIN: // the interface takes no more at present
			e.dequeue(n, done)
			if !n.queue.empty() {
				n.release = now + retryAfter
				e.departures.Put(n)
			}
			return
		default: // this one frame is gone
			for ; done < e.sender.ends[sent]; done++ {
				n.lose(&due[done], errno)
			}
		}
	}
	e.dequeue(n, done)
}

// dequeue takes the first runs off the queue.
func (e *egress) dequeue(n *line, runs int) {
	e.memory.left += runs * runCost
	for range runs {
		h := n.queue.drop()
		if h.runs--; h.runs == 0 {
			e.memory.release(n, h)
		}
	}
	if n.queue.empty() {
		e.departures.Remove(n)
		n.link.closeIfIdle()
		return
	}
	n.schedule()
	e.departures.Put(n)
}

// flush ends the line: it sends what is due if asked to, and drops the rest.
func (e *egress) flush(n *line, send bool) {
	for left := -1; send && !n.queue.empty() && left != len(n.queue.upcoming()); {
		left = len(n.queue.upcoming())
		e.send(n)
	}
	n.queue.merge(math.MaxInt64)
	rest := n.queue.upcoming()
	for _, r := range rest {
		n.stats.Counts.LostDown += uint64(r.count)
	}
	e.dequeue(n, len(rest))
}

// departures are the lines that have packets on their way, the one whose first
// is due next in front.
type departures = priority.Queue[*line]

// Before implements priority.Item.
func (n *line) Before(other *line) bool { return n.release < other.release }

// Place implements priority.Item.
func (n *line) Place() *priority.Place { return &n.place }
