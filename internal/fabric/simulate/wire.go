package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// The rate of a direction of a link that has none: about as much as the machine of a lab
// would carry. Without a bound time would stand still while consumers exchange one message
// after the other.
const (
	plainRate   = 10_000_000_000       // bits per second
	plainPacket = 2 * time.Microsecond // per packet at least
)

// A link is two wires.
type link struct {
	index int // in Topology.Links
	spec  *topology.Link
	nodes [2]*node
	wires [2]*wire // [0] from nodes[0], [1] back
	on    bool     // it carries packets
}

// name is the link's, as in a lab: its draws depend on that.
func (l *link) name() string { return l.spec.Endpoints[0].String() }

// A wire is one direction of a link: the model that decides on its packets, and those
// that are on their way.
type wire struct {
	network *network
	link    *link
	model   *impair.Direction
	gauge   linkstats.Collector
	transit transits
	timer   clock.Timer   // runs release; nil before the first packet
	plain   bool          // it has no rate
	free    time.Duration // until when the end of a plain wire is busy
	entry   time.Duration // until when its beginning is, by what has entered

	from, to *buffer // of the nodes at its ends; nil: there is none
	out, in  int     // the wire's port there
}

func newWire(n *network, l *link, index int) *wire {
	w := &wire{network: n, link: l, model: impair.New(n.topo.Seed, l.name(), index)}
	w.set(l.spec.Directions[index])
	return w
}

// enter puts a frame on the wire.
func (w *wire) enter(f *frame) {
	now := w.network.clock.Now()
	bytes := ethernetLen + f.size()
	w.gauge.Entered(bytes)
	if w.plain {
		w.entry = max(w.entry, now) + plainTime(uint64(impair.WireBytes(bytes)))
	}
	if !w.link.on {
		w.gauge.Counts.LostDown++
		w.network.frames.put(f)
		return
	}
	p := impair.Packet{Frame: bytes, Payload: ethernetLen, ECT: f.mayBeMarked()}
	if !f.isPause {
		p.Payload += f.ip()
	}
	if w.model.Identifies() && !f.isPause {
		w.network.identity = f.identity()
		p.RoCE = &w.network.identity
	}
	v := w.model.Packet(&p, now)
	w.gauge.Decided(w.model, &v)
	if v.Fate != impair.Passes || f.isPause && v.Flip.Any() { // nobody believes a PFC frame whose bits have flipped
		w.network.frames.put(f)
		return
	}
	if v.Mark {
		f.mark()
	}
	if v.Flip.Any() {
		f.flip(&w.network.sealer, &v.Flip)
	}
	t := transit{frame: f, departs: v.Departs, queued: v.Queued, delay: v.Departs - now - v.Queued}
	w.push(t)
	if v.Twice {
		w.gauge.Counts.Duplicated++
		t.frame = w.network.frames.copy(f)
		w.push(t)
	}
}

// push has a frame leave at its time.
func (w *wire) push(t transit) {
	before := time.Duration(-1)
	if w.transit.used > 0 {
		before = w.transit.first().departs
	}
	w.transit.push(t)
	if first := w.transit.first().departs; first != before {
		w.arm(first)
	}
}

// arm has release called when the first frame is to leave.
func (w *wire) arm(departs time.Duration) {
	left := max(departs, w.free) - w.network.clock.Now()
	if w.timer == nil {
		w.timer = w.network.clock.AfterFunc(left, w.release)
	} else {
		w.timer.Reset(left)
	}
}

// release has those frames leave whose time it is.
func (w *wire) release() {
	now := w.network.clock.Now()
	for w.transit.used > 0 {
		if departs := w.transit.first().departs; departs > now || w.free > now {
			w.arm(departs)
			return
		}
		t := w.transit.pop()
		size := ethernetLen + t.frame.size()
		wire := uint64(impair.WireBytes(size))
		if w.plain {
			w.free = now + plainTime(wire)
		}
		w.gauge.Delivered(now, 1, wire, t.delay, t.queued, 0)
		w.network.arrive(t.frame, w)
	}
}

// plainTime returns how long a packet of so many bytes takes a wire that has no rate.
func plainTime(wire uint64) time.Duration {
	return max(plainPacket, time.Duration(wire*8*uint64(time.Second)/plainRate))
}

// freeAt returns from when a packet that enters would not wait.
func (w *wire) freeAt() time.Duration {
	if w.plain {
		return w.entry
	}
	return w.model.FreeAt()
}

// set changes what the wire does to packets to come.
func (w *wire) set(to topology.Impairment) {
	w.model.Set(to, w.network.clock.Now())
	w.plain = to.Rate == 0
	if w.from != nil {
		w.from.change(w.out, &to)
	}
}

// cut loses what is on the wire.
func (w *wire) cut() {
	for w.transit.used > 0 {
		w.network.frames.put(w.transit.pop().frame)
		w.gauge.Counts.LostDown++
	}
	if w.timer != nil {
		w.timer.Stop()
	}
}
