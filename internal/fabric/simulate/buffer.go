package simulate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// This file drives the packet buffers of nodes (package mmu): of switches and routers that have one, and
// of hosts beside those. Packets wait there until the wire is free that they leave by, so that none
// wait before the rate of the wire itself.

// A buffer is that of a node. Its ports are the node's interfaces. In a host, what its adapter sends waits in
// it, and what it receives, if the adapter takes that at a rate of its own; behind the interfaces there is
// then one port more, the adapter's.
type buffer struct {
	network *network
	node    *node
	model   *mmu.Switch[*frame]
	index   int   // in network.switches; -1: of a host
	size    int64 // bytes; 0: of a host
	classes mmu.DSCPTable
	ports   []bufferPort
	receive uint64      // rate at which a host's adapter takes what arrives, bits per second; 0: at once
	timer   clock.Timer // runs advance; nil before the first
	due     time.Duration
}

// Frames leave a buffer by a bufferPort.
type bufferPort struct {
	wire    *wire         // nil: the adapter's
	free    time.Duration // of the adapter's port: until when it is busy
	asks    []mmu.PFC     // frames to send, beside those that the model asks for
	timer   clock.Timer   // runs the port when the wire is free; nil before the first
	waits   bool          // for that
	lengths [mmu.Classes]lengths
	resumed []func() // are called once when the pause of a class ends
	ofClass int
}

// addBuffers gives nodes their buffers, and wires their ports. The error names the node whose settings make
// no sense.
func (n *network) addBuffers() error {
	for _, at := range n.nodes {
		if at.spec.Buffer == nil {
			continue
		}
		settings, err := mmu.Settings(n.topo, at.spec)
		if err == nil {
			err = n.addBuffer(at, settings, mmu.ClassesOf(at.spec))
		}
		if err != nil {
			return fmt.Errorf("node %s: buffer: %w", at.spec.Name, err)
		}
		at.buffer.index = len(n.switches)
		n.switches = append(n.switches, at.buffer)
		n.members = append(n.members, at.buffer.model)
		at.buffer.size = settings.Size
	}
	for _, at := range n.nodes {
		beside := n.bufferBeside(at)
		set := &at.spec.Adapter
		if at.spec.Kind != topology.Host || len(at.spec.Interfaces) == 0 || beside == nil && set.PFC == nil && set.ReceiveRate == nil {
			continue
		}
		settings, err := mmu.AdapterSettings(n.topo, at.spec, int64(adapter.Config(&at.spec.Adapter).ReceiveBuffer), plainRate)
		if err == nil {
			err = n.addBuffer(at, settings, mmu.ClassesOf(beside))
		}
		if err != nil {
			return fmt.Errorf("node %s: adapter: %w", at.spec.Name, err)
		}
		at.buffer.ports = append(at.buffer.ports, bufferPort{})
		if rate := at.spec.Adapter.ReceiveRate; rate != nil {
			at.buffer.receive = *rate
		}
	}
	return nil
}

// bufferBeside returns the node with a buffer that a host has a link to; nil if there is none.
func (n *network) bufferBeside(at *node) *topology.Node {
	for i := range at.spec.Interfaces {
		face := &at.spec.Interfaces[i]
		if other := n.links[face.Link].nodes[1-face.End]; other != nil && other.spec.Buffer != nil {
			return other.spec
		}
	}
	return nil
}

func (n *network) addBuffer(at *node, settings mmu.Config, classes mmu.DSCPTable) error {
	model, err := mmu.New[*frame](settings)
	if err != nil {
		return err
	}
	b := &buffer{network: n, node: at, model: model, index: -1, classes: classes, ports: make([]bufferPort, len(at.spec.Interfaces))}
	for i := range at.spec.Interfaces {
		face := &at.spec.Interfaces[i]
		l := n.links[face.Link]
		b.ports[i].wire = l.wires[face.End]
		l.wires[face.End].from, l.wires[face.End].out = b, i
		l.wires[1-face.End].to, l.wires[1-face.End].in = b, i
	}
	at.buffer = b
	return nil
}

// change has a port mark by, and pauses last by, what the wire there is set to now.
func (b *buffer) change(out int, to *topology.Impairment) {
	var marks [mmu.Classes]mmu.WRED // an adapter marks nothing
	if b.index >= 0 {
		marks = mmu.Marks(b.network.topo, b.node.spec, out, to.ECN)
	}
	b.model.Change(out, cmp.Or(to.Rate, plainRate), marks)
}

// take queues a frame that came in by one port and leaves by another. That of a host came in behind all
// of its interfaces.
func (b *buffer) take(f *frame, in, out int) {
	now := b.network.clock.Now()
	class := b.classes.Class(f.trafficClass())
	bytes := impair.WireBytes(ethernetLen + f.size())
	if b.model.Arrive(now, in, out, class, bytes, f.mayBeMarked(), f) != mmu.Admitted {
		if life := b.node.life; b.index < 0 && out == b.adapter() && life != nil {
			life.port.overflowed++ // reports have no port behind the interfaces
		}
		b.network.frames.put(f)
	} else {
		b.observe(now, out, class)
	}
	b.progress(now)
}

// adapter returns the port of a host's adapter.
func (b *buffer) adapter() int { return len(b.ports) - 1 }

func (b *buffer) observe(now time.Duration, out, class int) {
	b.ports[out].lengths[class].observe(now, b.model.Queued(out, class))
}

// pauseArrived obeys a PFC frame that came in by a port.
func (b *buffer) pauseArrived(in int, f mmu.PFC) {
	now := b.network.clock.Now()
	b.model.Paused(now, in, f)
	b.progress(now)
	for _, quanta := range f.Quanta {
		if quanta > 0 {
			b.network.findDeadlock(now)
			break
		}
	}
}

// advance has the model do what is due.
func (b *buffer) advance() {
	now := b.network.clock.Now()
	b.model.Advance(now)
	b.progress(now)
}

// progress has ports send that have something to send again, and others go on that wait for the end of a
// pause.
func (b *buffer) progress(now time.Duration) {
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
		b.network.frames.put(d.Packet)
		for out := range b.ports {
			b.observe(now, out, d.Class)
		}
	}
	due, ok := b.model.Deadline()
	switch {
	case !ok || due == b.due:
	case b.timer == nil:
		b.due = due
		b.timer = b.network.clock.AfterFunc(due-now, b.advance)
	default:
		b.due = due
		b.timer.Reset(due - now)
	}
	if b.index >= 0 {
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
func (b *buffer) send(now time.Duration, out int) {
	p := &b.ports[out]
	for !p.waits {
		if free := p.freeAt(); free > now {
			p.waits = true
			if p.timer == nil {
				p.timer = b.network.clock.AfterFunc(free-now, func() { b.wireFree(out) })
			} else {
				p.timer.Reset(free - now)
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
			d.Packet.mark()
		}
		if p.wire != nil {
			p.wire.enter(d.Packet)
			continue
		}
		p.free = now + time.Duration(float64(d.Bytes)*8/float64(b.receive)*float64(time.Second))
		b.network.deliver(d.Packet)
	}
}

// freeAt returns from when the next frame may leave.
func (p *bufferPort) freeAt() time.Duration {
	if p.wire == nil {
		return p.free
	}
	return p.wire.freeAt()
}

// sendPause sends a PFC frame, if the port has one to send.
func (b *buffer) sendPause(now time.Duration, out int) bool {
	p := &b.ports[out]
	pause, ok := b.model.Pause(now, out)
	if !ok && len(p.asks) > 0 {
		pause, ok = p.asks[0], true
		p.asks = p.asks[1:]
	}
	if !ok || p.wire == nil {
		return false
	}
	p.wire.enter(b.network.frames.pause(&pause))
	return true
}

// ask has a PFC frame sent by all interfaces.
func (b *buffer) ask(f mmu.PFC) {
	now := b.network.clock.Now()
	for out := range b.ports {
		if p := &b.ports[out]; p.wire != nil {
			p.asks = append(p.asks, f)
			b.send(now, out)
		}
	}
	b.progress(now)
}

// storm has a host's adapter ask its neighbours to pause a class until an instant, whatever it receives, as broken
// ones were found to do (SIGCOMM'16, "RDMA over Commodity Ethernet at Scale").
func (b *buffer) storm(class int, until time.Duration) {
	f := mmu.PFC{Enabled: 1 << class}
	if left := until - b.network.clock.Now(); left > 0 {
		f.Quanta[class] = mmu.MostQuanta
		b.network.clock.AfterFunc(min(left, b.renewal()), func() { b.storm(class, until) })
	}
	b.ask(f)
}

// renewal returns how often a pause is to be asked for that has no end: twice in the time that it lasts on the
// fastest link.
func (b *buffer) renewal() time.Duration {
	fastest := uint64(1)
	for i := range b.node.spec.Interfaces {
		face := &b.node.spec.Interfaces[i]
		fastest = max(fastest, b.network.links[face.Link].spec.Directions[1-face.End].Rate)
	}
	return mmu.QuantaTime(mmu.MostQuanta, fastest) / 2
}

// wireFree has a port send that has waited for its wire.
func (b *buffer) wireFree(out int) {
	now := b.network.clock.Now()
	b.ports[out].waits = false
	b.send(now, out)
	b.progress(now)
}

// pauses reports whether the neighbour at a port has paused packets of a traffic class.
func (b *buffer) pauses(out int, trafficClass uint8) bool {
	return b.model.Pauses(out, b.classes.Class(trafficClass))
}

// whenResumed calls f once when the pause of a traffic class at a port is over. All who wait at a port are of one
// class: that of what the host's adapter sends.
func (b *buffer) whenResumed(out int, trafficClass uint8, f func()) {
	p := &b.ports[out]
	p.resumed, p.ofClass = append(p.resumed, f), b.classes.Class(trafficClass)
}
