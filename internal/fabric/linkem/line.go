package linkem

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/priority"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A line is one direction of a link: the frames on their way, in the order they
// leave. It belongs to the loop's thread.
type line struct {
	link      *link
	direction int
	model     *impair.Direction
	to        *port // where frames leave; nil while the link is detached
	far       bool  // frames leave at another host, that of the link's peer

	queue   queue
	release time.Duration  // when the first of the queue is due, with its followers
	place   priority.Place // in the loop's departures, unless the queue is empty
	shared  *buffer        // the one that short frames go into at present, if any

	stats linkstats.Collector

	// Of a link at a switch with a packet buffer, whose frames are not in queue:
	fabric   *fabric                  // nil: the link is at no such switch
	wire     *dataplane.Wire[*packet] // of the fabric's plane
	inbox    inbox                    // what came from the node at the line's beginning
	departed []*packet                // that are to be sent to the node at its end
	paused   time.Duration            // all classes together, by changedPause
	pausedAt uint64                   // the look that found it so
}

func newLine(k *link, direction int, model *impair.Direction) *line {
	return &line{link: k, direction: direction, model: model}
}

// set changes what the line does to packets to come.
func (n *line) set(to topology.Impairment, now time.Duration) {
	if n.wire != nil {
		n.fabric.advance(now)
		n.wire.Set(to)
		return
	}
	n.model.Set(to, now)
}

// changedPause returns the last look at which pauses would have returned something else than at the look before, of which look is
// the number of the present one.
func (n *line) changedPause(look uint64) uint64 {
	if n.wire == nil {
		return 0
	}
	if _, sum := n.wire.Paused(); sum != n.paused {
		n.paused, n.pausedAt = sum, look
	}
	return n.pausedAt
}

// pauses returns how long the node at the line's end has paused the classes that it has paused ever, since figures began.
func (n *line) pauses() (all []bufferstats.ClassPause) {
	if n.wire == nil {
		return nil
	}
	by, _ := n.wire.Paused()
	for class, paused := range by {
		if paused > 0 {
			all = append(all, bufferstats.ClassPause{Class: class, US: uint64(paused / time.Microsecond)})
		}
	}
	return all
}

// deliver accounts for packets that were sent.
func (n *line) deliver(r *run, now time.Duration, by dilation) {
	f := &r.held.frame
	wire := 0
	for i := r.first; i < r.first+r.count; i++ {
		wire += impair.WireBytes(f.Size(int(i)))
	}
	queued := r.queued / time.Duration(r.count)
	n.stats.Delivered(by.fabric(now), uint64(r.count), uint64(wire), by.fabric(now-r.held.arrived)-queued, queued, by.fabric(now-r.departs))
}

// lose accounts for packets that could not be sent.
func (n *line) lose(r *run, errno unix.Errno) {
	if errno == unix.ENETDOWN || errno == unix.ENXIO || !n.to.running() {
		n.stats.Counts.LostDown += uint64(r.count)
	} else {
		n.stats.Counts.LostOverrun += uint64(r.count)
	}
}

// measure returns the figures of the line: so far, or since the last Begin.
func (n *line) measure(since bool) linkstats.Statistics {
	if since {
		return n.stats.StatisticsSince(n.model)
	}
	return n.stats.Statistics(n.model)
}

// Bounds on the time that a packet may wait for those behind it, to be sent with
// them: no longer than gather, and only while each leaves within near of the one
// before. This wait keeps the rate at 10 Gb/s, where packets of 4 KiB leave 3.4 us
// apart and sending one takes as long: those of a super-packet of 15 are sent as
// one again. It makes the median packet of such a stream half of gather late.
const (
	near   = 25 * time.Microsecond
	gather = 60 * time.Microsecond
)

// maxGathered bounds the runs that are looked at: packets of one super-packet
// are many if a rate sets them apart.
const maxGathered = 4 * batchMessages

// schedule sets when the first of the queue is due: together with what leaves
// soon after. Where that ends amid a frame, the rest of which comes later, it
// goes no further than the frame before, so that frames stay whole.
func (n *line) schedule() {
	first := n.queue.first(gather).departs
	soon := n.queue.upcoming()
	n.release = first
	whole := first // when the last frame leaves that is gathered to its end
	for i := 1; i < min(len(soon), maxGathered); i++ {
		last, next := &soon[i-1], &soon[i]
		if next.held != last.held {
			whole = last.departs
		}
		if next.departs > last.departs+near {
			return
		}
		if next.departs > first+gather {
			if next.held != soon[0].held {
				n.release = whole
			}
			return
		}
		n.release = next.departs
	}
}
