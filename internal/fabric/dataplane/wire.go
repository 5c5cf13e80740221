package dataplane

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// PlainRate is the rate of a direction of a link that has none, in bits per second: about as much as the machine of a lab
// would carry. Without a bound time would stand still while consumers exchange one message
// after the other. A packet takes plainPacket at least.
const (
	PlainRate   = 10_000_000_000
	plainPacket = 2 * time.Microsecond
)

// A Wire is one direction of a link: the model that decides on its frames, and those
// that are on their way.
type Wire[F any] struct {
	Link, Direction int // in Topology.Links

	From, To *Buffer[F] // of the nodes at its ends; nil: there is none
	Out, In  int        // the wire's port there

	begin, end *shard[F] // of the nodes at its ends
	plain      bool      // it has no rate
	down       bool      // it carries nothing

	// Of the shard at the beginning:
	model *impair.Direction
	stats *linkstats.Collector // but for what Delivered counts
	entry time.Duration        // until when the beginning of a plain wire is busy, by what has entered

	// Of the shard at the end:
	transit transits[F]
	timer   clock.VirtualTimer // calls Expire
	free    time.Duration      // until when the end of a plain wire is busy
	expired clock.Turn         // that the timer took when frames last left, or would have, had there been more; if it crosses
}

// AddWire adds a direction of a link, which both stay the caller's. Set says what it does to frames.
func (p *Plane[F]) AddWire(link, direction int, model *impair.Direction, stats *linkstats.Collector) *Wire[F] {
	w := &Wire[F]{Link: link, Direction: direction, model: model, stats: stats}
	ends := &p.topology.Links[link].Endpoints
	w.begin, w.end = p.shardOf(ends[direction].Node), p.shardOf(ends[1-direction].Node)
	if w.crosses() {
		p.crossing = append(p.crossing, w)
	}
	w.timer.Init(w.end.clock, w)
	p.wires[link][direction] = w
	return w
}

// Enter puts a frame on the wire.
func (w *Wire[F]) Enter(f F) {
	owner := w.begin.owner
	now := w.begin.clock.Now()
	bytes := owner.Size(f)
	w.stats.Entered(bytes)
	if w.plain {
		w.entry = max(w.entry, now) + plainTime(uint64(impair.WireBytes(bytes)))
	}
	if w.down {
		w.stats.Counts.LostDown++
		owner.Free(f)
		return
	}
	p, v := &w.begin.packet, &w.begin.verdict
	*p = impair.Packet{Frame: bytes, ECT: owner.MayBeMarked(f)}
	owner.Identify(f, p, w.model.Identifies())
	*v = w.model.Packet(p, now)
	w.stats.Decided(w.model, v)
	owner.Decided(w, f, p, v)
	if v.Fate != impair.Passes {
		owner.Free(f)
		return
	}
	if v.Flip.Any() {
		if _, isPause := owner.Pause(f); isPause { // nobody believes one whose bits have flipped
			owner.Free(f)
			return
		}
	}
	if v.Mark {
		owner.Mark(f)
	}
	if v.Flip.Any() {
		owner.Flip(f, &v.Flip)
	}
	t := transit[F]{f, Transit{Departs: v.Departs, Queued: v.Queued, Delay: v.Departs - now - v.Queued}}
	w.push(t)
	if v.Twice {
		w.stats.Counts.Duplicated++
		t.frame = owner.Copy(f)
		w.push(t)
	}
}

// push has a frame leave at its time.
func (w *Wire[F]) push(t transit[F]) {
	if w.crosses() {
		if w.begin.plane.windowed {
			w.begin.keep(w, t)
			return
		}
		w.begin.plane.handed(w.begin.owner, w.end.owner, t.frame)
	}
	if w.inserted(t) {
		w.arm(t.Departs)
	}
}

// inserted puts a frame among those that are on the wire, and reports whether the timer is to be set for it.
func (w *Wire[F]) inserted(t transit[F]) bool {
	before := time.Duration(-1)
	if w.transit.used > 0 {
		before = w.transit.first().Departs
	}
	w.transit.push(t)
	return w.transit.first().Departs != before
}

// arm has Expire called when the first frame is to leave.
func (w *Wire[F]) arm(departs time.Duration) {
	w.timer.Reset(max(departs, w.free) - w.end.clock.Now())
}

// Expire has those frames leave whose time it is. The wire's timer calls it.
func (w *Wire[F]) Expire() {
	now := w.end.clock.Now()
	for w.transit.used > 0 {
		if w.transit.first().Departs > now || w.free > now {
			break
		}
		t := w.transit.pop()
		if w.plain {
			w.free = now + plainTime(uint64(impair.WireBytes(w.end.owner.Size(t.frame))))
		}
		w.arrive(t, now)
	}
	if w.crosses() {
		w.expired.Take(w.end.clock, 0)
	}
	if w.transit.used > 0 {
		w.arm(w.transit.first().Departs)
	}
}

// arrive hands a frame to what is at the end of the wire.
func (w *Wire[F]) arrive(t transit[F], now time.Duration) {
	owner := w.end.owner
	if pause, ok := owner.Pause(t.frame); ok {
		w.Delivered(now, owner.Size(t.frame), t.Transit, 0)
		if w.To != nil {
			w.To.obey(w.In, pause)
		}
		owner.Obeyed(t.frame, w)
		return
	}
	owner.Arrive(t.frame, w, t.Transit)
}

// Delivered counts a frame of so many bytes that has left the wire, late by so much.
func (w *Wire[F]) Delivered(now time.Duration, size int, t Transit, late time.Duration) {
	w.stats.Delivered(now, 1, uint64(impair.WireBytes(size)), t.Delay+late, t.Queued, late)
}

// plainTime returns how long a packet of so many bytes takes a wire that has no rate.
func plainTime(wire uint64) time.Duration {
	return max(plainPacket, time.Duration(wire*8*uint64(time.Second)/PlainRate))
}

// FreeAt returns from when a frame that enters would not wait.
func (w *Wire[F]) FreeAt() time.Duration {
	if w.plain {
		return w.entry
	}
	return w.model.FreeAt()
}

// Set changes what the wire does to frames to come.
func (w *Wire[F]) Set(to topology.Impairment) {
	w.model.Set(to, w.begin.clock.Now())
	w.plain = to.Rate == 0
	if w.From != nil {
		w.From.change(w.Out, &to)
	}
}

// Settings returns what the wire was set to.
func (w *Wire[F]) Settings() topology.Impairment { return w.model.Settings() }

// Losses returns how many packets the wire has dropped by asked-for loss, and lost for other reasons.
func (w *Wire[F]) Losses() (dropped, lost uint64) { return w.stats.Losses() }

// Paused returns how long the node at the wire's end has paused each class since figures began, if a buffer of a switch or router is at
// its beginning, and the sum of them.
func (w *Wire[F]) Paused() (by [mmu.Classes]time.Duration, sum time.Duration) {
	if w.From == nil || !w.From.OfSwitch() {
		return by, 0
	}
	now := w.begin.clock.Now()
	for class := range by {
		by[class] = w.From.model.Counters(now, w.Out, class).RxPauseTime
		sum += by[class]
	}
	return by, sum
}

// Statistics returns the figures of the wire.
func (w *Wire[F]) Statistics() linkstats.Statistics { return w.stats.Statistics(w.model) }

// Carries reports whether the wire carries frames.
func (w *Wire[F]) Carries() bool { return !w.down }

// Carry has the wire carry frames, or lose what is on it and what comes.
func (w *Wire[F]) Carry(frames bool) {
	w.down = !frames
	if frames {
		return
	}
	for w.transit.used > 0 {
		w.end.owner.Free(w.transit.pop().frame)
		w.stats.Counts.LostDown++
	}
	w.timer.Stop()
}
