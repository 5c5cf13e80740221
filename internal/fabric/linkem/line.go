package linkem

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/gauge"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"golang.org/x/sys/unix"
)

// retryAfter is the time that a line waits when its interface takes no more frames.
const retryAfter = 50 * time.Microsecond

// A line is one direction of a link: the frames on their way, in the order they
// leave. It belongs to the loop's thread.
type line struct {
	link      *link
	direction int
	model     *impair.Direction
	to        *port // where frames leave; nil while the link is detached

	queue   queue
	release time.Duration // when the first of the queue is due, with its followers
	place   int           // in the loop's departures; -1 if the queue is empty
	shared  *buffer       // the one that short frames go into at present, if any

	gauge gauge.Gauge
}

// held is a frame in a line.
type held struct {
	frame   frame.Frame
	buffer  *buffer
	arrived time.Duration
	runs    int // in the queue
}

func newLine(k *link, direction int, model *impair.Direction) *line {
	return &line{link: k, direction: direction, model: model, place: -1}
}

// send sends what is due, or a good part of it.
func (l *loop) send(n *line) {
	messages := l.sender.fill(n, l.now())
	sent, errno := l.sender.send(n.to.fd, messages)
	now := l.now()
	done := 0
	due := n.queue.upcoming()
	for i := range sent {
		for ; done < l.sender.ends[i]; done++ {
			n.deliver(&due[done], now)
		}
	}
	if sent < messages {
		switch errno {
		case unix.EAGAIN: // the interface takes no more at present
			l.finish(n, done)
			if !n.queue.empty() {
				n.release = now + retryAfter
				l.departures.fix(n)
			}
			return
		default: // this one frame is gone
			for ; done < l.sender.ends[sent]; done++ {
				n.lose(&due[done], errno)
			}
		}
	}
	l.finish(n, done)
}

// deliver accounts for packets that were sent.
func (n *line) deliver(r *run, now time.Duration) {
	f := &r.held.frame
	wire := 0
	for i := r.first; i < r.first+r.count; i++ {
		wire += impair.WireBytes(f.Size(int(i)))
	}
	queued := r.queued / time.Duration(r.count)
	n.gauge.Delivered(now, uint64(r.count), uint64(wire), now-r.held.arrived-queued, queued, now-r.departs)
}

// lose accounts for packets that could not be sent.
func (n *line) lose(r *run, errno unix.Errno) {
	if errno == unix.ENETDOWN || errno == unix.ENXIO || !n.to.running() {
		n.gauge.Counts.LostDown += uint64(r.count)
	} else {
		n.gauge.Counts.LostOverrun += uint64(r.count)
	}
}

// finish takes the first runs off the queue.
func (l *loop) finish(n *line, runs int) {
	l.pool.left += runs * runCost
	for range runs {
		h := n.queue.drop()
		if h.runs--; h.runs == 0 {
			l.drop(n, h)
		}
	}
	if n.queue.empty() {
		l.departures.remove(n)
		n.link.emptied()
		return
	}
	n.schedule()
	l.departures.fix(n)
}

// measure returns the figures of the line so far.
func (n *line) measure() gauge.Measured { return n.gauge.Measured(n.model) }

// measureSince returns the figures of the line since its gauge began its term.
func (n *line) measureSince() gauge.Measured { return n.gauge.MeasuredSince(n.model) }
