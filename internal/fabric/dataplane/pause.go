package dataplane

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
)

// This file is the PFC frames that ports send, and the pauses that those who send by a host's adapter see.

// sendPause sends a PFC frame, if the port has one to send.
func (b *Buffer[F]) sendPause(now time.Duration, out int) bool {
	p := &b.ports[out]
	pause, ok := b.model.Pause(now, out)
	if !ok && len(p.asks) > 0 {
		pause, ok = p.asks[0], true
		p.asks = p.asks[1:]
	}
	if !ok || p.wire == nil {
		return false
	}
	b.shard.pause = pause
	p.wire.Enter(b.shard.owner.NewPause(p.wire, &b.shard.pause))
	return true
}

// ask has a PFC frame sent by all interfaces.
func (b *Buffer[F]) ask(f mmu.PFC) {
	now := b.shard.clock.Now()
	for out := range b.ports {
		if p := &b.ports[out]; p.wire != nil {
			p.asks = append(p.asks, f)
			b.send(now, out)
		}
	}
	b.progress(now)
}

// NoStorm is the text of an error, of a node that can have no storm.
const NoStorm = "node %s: a storm has no effect where the adapter has no pfc and no switch beside it a buffer"

// Storm has a host's adapter ask its neighbours to pause a class until an instant, whatever it receives, as broken
// ones were found to do (SIGCOMM'16, "RDMA over Commodity Ethernet at Scale").
func (b *Buffer[F]) Storm(class int, until time.Duration) {
	f := mmu.PFC{Enabled: 1 << class}
	if left := until - b.shard.clock.Now(); left > 0 {
		f.Quanta[class] = mmu.MostQuanta
		b.shard.clock.AfterFunc(min(left, b.renewal()), func() { b.Storm(class, until) })
	}
	b.ask(f)
}

// renewal returns how often a pause is to be asked for that has no end: twice in the time that it lasts on the
// fastest link.
func (b *Buffer[F]) renewal() time.Duration {
	fastest := uint64(1)
	for i := range b.node.Interfaces {
		face := &b.node.Interfaces[i]
		fastest = max(fastest, b.plane.topology.Links[face.Link].Directions[1-face.End].Rate)
	}
	return mmu.QuantaTime(mmu.MostQuanta, fastest) / 2
}

// Pauses reports whether the neighbour at a port has paused packets of a traffic class.
func (b *Buffer[F]) Pauses(out int, trafficClass uint8) bool {
	return b.model.Pauses(out, b.classes.Class(trafficClass))
}

// WhenResumed calls f once when the pause of a traffic class at a port is over. All who wait at a port are of one
// class: that of what the host's adapter sends.
func (b *Buffer[F]) WhenResumed(out int, trafficClass uint8, f func()) {
	p := &b.ports[out]
	p.resumed, p.ofClass = append(p.resumed, f), b.classes.Class(trafficClass)
}
