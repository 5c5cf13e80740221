package dataplane

import (
	"cmp"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A Buffer is that of a node. Frames wait there until the wire is free that they leave by, so that none wait before the rate of
// the wire itself. Its ports are the node's interfaces. In a host, what its adapter sends waits in it, and what it
// receives, if the adapter takes that at a rate of its own; behind the interfaces there is then one port more, the
// adapter's.
type Buffer[F any] struct {
	plane   *Plane[F]
	shard   *shard[F]
	node    *topology.Node
	model   *mmu.Switch[F]
	index   int   // in plane.switches; -1: of a host
	size    int64 // bytes; 0: of a host
	classes mmu.DSCPTable
	ports   []port[F]
	receive uint64              // rate at which a host's adapter takes what arrives, bits per second; 0: at once
	timer   *clock.VirtualTimer // runs advance; nil before the first
	due     time.Duration
	earlier map[string]uint64 // counters of pauses before Begin
}

// Frames leave a buffer by a port.
type port[F any] struct {
	wire    *Wire[F]           // nil: the adapter's
	free    time.Duration      // of the adapter's port: until when it is busy
	asks    []mmu.PFC          // frames to send, beside those that the model asks for
	timer   clock.VirtualTimer // calls Expire when the wire is free
	waits   bool               // for that
	rests   bool               // likewise, without the timer: there is nothing to send as yet
	turn    clock.Turn         // that the timer would have
	buffer  *Buffer[F]         // whose port it is
	out     int                // its number there
	lengths [mmu.Classes]bufferstats.Lengths
	resumed []func() // are called once when the pause of a class ends
	ofClass int
}

// Node returns the node whose buffer it is.
func (b *Buffer[F]) Node() *topology.Node { return b.node }

// OfSwitch reports whether it is the buffer of a switch or a router, and not a host's.
func (b *Buffer[F]) OfSwitch() bool { return b.index >= 0 }

// ReceivesSlowly reports whether a host's adapter takes what arrives at a rate of its own.
func (b *Buffer[F]) ReceivesSlowly() bool { return b.receive > 0 }

// change has a port mark by, and pauses last by, what the wire there is set to now.
func (b *Buffer[F]) change(out int, to *topology.Impairment) {
	var marks [mmu.Classes]mmu.WRED // an adapter marks nothing
	if b.OfSwitch() {
		marks = mmu.Marks(b.plane.topology, b.node, out, to.ECN)
	}
	b.model.Change(out, cmp.Or(to.Rate, PlainRate), marks)
}

// Take queues a frame that came in by one port and leaves by another. A frame of a host came in by Adapter.
func (b *Buffer[F]) Take(f F, in, out int) {
	owner := b.shard.owner
	now := b.shard.clock.Now()
	class := b.classes.Class(owner.TrafficClass(f))
	bytes := impair.WireBytes(owner.Size(f))
	if p := &b.ports[out]; b.isFree(p) && b.model.Pass(now, in, out, class, bytes) {
		p.lengths[class].Passed(now)
		p.wire.Enter(f)
		b.send(now, out)
		return
	}
	if b.model.Arrive(now, in, out, class, bytes, owner.MayBeMarked(f), f) != mmu.Admitted {
		if !b.OfSwitch() && out == b.Adapter() {
			owner.Overflowed(b)
		}
		owner.Free(f)
	} else {
		b.observe(now, out, class)
	}
	b.progress(now)
}

// isFree reports whether the port's wire takes a frame at once.
func (b *Buffer[F]) isFree(p *port[F]) bool {
	return p.wire != nil && (!p.waits || p.rests && b.shard.clock.Came(p.turn))
}

// Adapter returns the port of a host's adapter.
func (b *Buffer[F]) Adapter() int { return len(b.ports) - 1 }

// Queued returns how many bytes wait.
func (b *Buffer[F]) Queued() (n int64) {
	for out := range b.ports {
		for class := range mmu.Classes {
			n += b.model.Queued(out, class)
		}
	}
	return n
}

func (b *Buffer[F]) observe(now time.Duration, out, class int) {
	b.ports[out].lengths[class].Observe(now, b.model.Queued(out, class))
}

// obey obeys a PFC frame that came in by a port.
func (b *Buffer[F]) obey(in int, f mmu.PFC) {
	now := b.shard.clock.Now()
	b.model.Paused(now, in, f)
	b.progress(now)
	for _, quanta := range f.Quanta {
		if quanta > 0 {
			b.shard.findDeadlock(now)
			break
		}
	}
}

// advance has the model do what is due.
func (b *Buffer[F]) advance() {
	now := b.shard.clock.Now()
	b.model.Advance(now)
	b.progress(now)
}

// progress has ports send that have something to send again, and others go on that wait for the end of a
// pause.
func (b *Buffer[F]) progress(now time.Duration) {
	for {
		out, ok := b.model.Wake()
		if !ok {
			break
		}
		b.send(now, out)
	}
	for {
		d, ok := b.model.Discarded()
		if !ok {
			break
		}
		b.shard.owner.Free(d.Packet)
		for out := range b.ports {
			b.observe(now, out, d.Class)
		}
	}
	due, ok := b.model.Deadline()
	switch {
	case !ok || due == b.due:
	default:
		b.due = due
		if b.timer == nil {
			b.timer = b.shard.clock.NewTimer(b.advance)
		}
		b.timer.Reset(due - now)
		for out := range b.ports {
			if p := &b.ports[out]; p.rests && p.turn.At() == due {
				b.await(out) // which of the two is first may decide on what else happens first
			}
		}
	}
	if b.OfSwitch() {
		return // only adapters wait for the end of a pause
	}
	for out := range b.ports {
		if p := &b.ports[out]; len(p.resumed) > 0 && !b.model.Pauses(out, p.ofClass) {
			resumed := p.resumed
			p.resumed = nil
			for _, f := range resumed {
				f()
			}
		}
	}
}

// send has frames leave by a port as long as its wire is free.
func (b *Buffer[F]) send(now time.Duration, out int) {
	p := &b.ports[out]
	if p.rests {
		if !b.shard.clock.Came(p.turn) {
			b.await(out)
			return
		}
		p.rests, p.waits = false, false
	}
	for !p.waits {
		if free := p.freeAt(); free > now {
			p.waits = true
			p.turn.Take(b.shard.clock, free-now)
			// At the instant at which the model is to be advanced, the timer may be the one that does it.
			if p.rests = free != b.due && len(p.asks) == 0 && b.model.Rest(out); !p.rests {
				b.await(out)
			}
			return
		}
		if b.sendPause(now, out) {
			continue
		}
		d, ok := b.model.Next(now, out)
		if !ok {
			return
		}
		b.observe(now, out, d.Class)
		if d.Marked {
			b.shard.owner.Mark(d.Packet)
		}
		if p.wire != nil {
			p.wire.Enter(d.Packet)
			continue
		}
		p.free = now + time.Duration(float64(d.Bytes)*8/float64(b.receive)*float64(time.Second))
		b.shard.owner.Deliver(d.Packet, b)
	}
}

// await has a port's timer run in the port's turn.
func (b *Buffer[F]) await(out int) {
	p := &b.ports[out]
	p.rests = false
	if p.buffer == nil {
		p.buffer, p.out = b, out
		p.timer.Init(b.shard.clock, p)
	}
	p.timer.ResetTo(p.turn)
}

// freeAt returns from when the next frame may leave.
func (p *port[F]) freeAt() time.Duration {
	if p.wire == nil {
		return p.free
	}
	return p.wire.FreeAt()
}

// Expire has a port send that has waited for its wire. The port's timer calls it.
func (p *port[F]) Expire() {
	now := p.buffer.shard.clock.Now()
	p.waits = false
	p.buffer.send(now, p.out)
	p.buffer.progress(now)
}
