// Package dataplane carries frames over the wires of links (package impair) and through the packet buffers of nodes (package
// mmu), with the pauses that those ask for, in the time of a virtual clock.
//
// The simulation and the link engine are its owners. The simulation's clock runs as fast as it can. The engine's follows real
// time: each event is carried out for the instant at which it was due, however late the engine is, so that no queue is
// longer or shorter for that.
//
// Frames enter by Wire.Enter or, where a buffer is at the beginning of the wire, by Buffer.Take. An Owner has the frames: it
// says how long they are, and where one goes that has left a wire. The package does no I/O and has no locks; all of a
// Plane belongs to the goroutine that runs its clock, but for its shards in a window (shard.go).
//
// Start reading at Plane; wire.go has wires, buffer.go buffers.
package dataplane

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// EthernetLen is the length of an Ethernet header, bytes.
const EthernetLen = 14

// An Owner has the frames of a Plane. F is its handle of one, which a Plane has once, until it gives it back by
// Arrive, Deliver, Obeyed or Free.
type Owner[F any] interface {
	// Size returns the length of a frame from its Ethernet header on, without check sequence, bytes.
	Size(f F) int
	// TrafficClass returns the traffic class of an IP packet; 0 of another.
	TrafficClass(f F) uint8
	// MayBeMarked reports whether a packet is ECN-capable.
	MayBeMarked(f F) bool
	// Mark has a packet bear Congestion Experienced.
	Mark(f F)
	// Flip flips bits of a frame.
	Flip(f F, bits *impair.Flip)
	// Identify sets Payload and, if asked for, RoCE of what a wire decides on, which is valid until the next call.
	Identify(f F, p *impair.Packet, roce bool)
	// Copy returns a second frame with the same content.
	Copy(f F) F
	// Free takes a frame back that was lost.
	Free(f F)

	// NewPause returns a PFC frame that is to enter a wire.
	NewPause(w *Wire[F], pause *mmu.PFC) F
	// Pause returns the content of a PFC frame; false if it is none.
	Pause(f F) (mmu.PFC, bool)
	// Obeyed takes a PFC frame that has left a wire, after the buffer there, if there is one, has obeyed it.
	Obeyed(f F, by *Wire[F])

	// Decided is told what a wire has decided on a frame that entered it.
	Decided(w *Wire[F], f F, p *impair.Packet, v *impair.Verdict)
	// Arrive takes a frame that has left a wire, at the instant v.departs of its transit.
	Arrive(f F, by *Wire[F], t Transit)
	// Deliver takes a frame that a host's adapter has taken out of its buffer.
	Deliver(f F, b *Buffer[F])
	// Overflowed is told that a host's adapter had no room for a frame.
	Overflowed(b *Buffer[F])
	// Deadlocked is told of a deadlock, once.
	Deadlocked(d bufferstats.Deadlock)
}

// A Plane is the wires and buffers of a topology.
type Plane[F any] struct {
	shards    []*shard[F]
	of        map[string]int // by node: its shard
	crossing  []*Wire[F]     // from one shard to another
	windowed  bool           // a window of clock.Shards lasts
	handed    func(from, to Owner[F], f F)
	topology  *topology.Topology
	buffers   map[string]*Buffer[F] // by node
	switches  []*Buffer[F]          // those of switches and routers, in the order of the nodes
	members   []mmu.Member          // likewise
	wires     [][2]*Wire[F]         // by link; [0] from its first endpoint
	deadlocks []bufferstats.Deadlock
	began     time.Duration // when figures did
}

// New returns the wires of a topology, which its owner adds by AddWire, and then AddBuffers.
func New[F any](c *clock.Virtual, owner Owner[F], t *topology.Topology) *Plane[F] {
	return NewSharded([]Shard[F]{{c, owner}}, nil, t, nil)
}

// Buffer returns that of a node; nil if it has none.
func (p *Plane[F]) Buffer(node string) *Buffer[F] { return p.buffers[node] }

// AddBuffers gives nodes their buffers, of which the topology says that they have one: switches and routers with the key buffer, and
// hosts beside those, with an adapter that asks for pauses, or that receives at a rate of its own. receiveBuffer returns the
// size of an adapter's, in bytes. All of topology.Topology.BufferedLinks have wires. The error names the node whose
// settings make no sense.
func (p *Plane[F]) AddBuffers(receiveBuffer func(*topology.Node) int64) error {
	for i := range p.topology.Nodes {
		n := &p.topology.Nodes[i]
		if n.Buffer == nil {
			continue
		}
		settings, err := mmu.Settings(p.topology, n)
		if err == nil {
			err = p.addBuffer(n, settings, mmu.ClassesOf(n))
		}
		if err != nil {
			return fmt.Errorf("node %s: buffer: %w", n.Name, err)
		}
		b := p.buffers[n.Name]
		b.index, b.size = len(p.switches), settings.Size
		p.switches, p.members = append(p.switches, b), append(p.members, b.model)
	}
	for i := range p.topology.Nodes {
		n := &p.topology.Nodes[i]
		beside := mmu.Beside(p.topology, n)
		set := &n.Adapter
		if n.Kind != topology.Host || len(n.Interfaces) == 0 || beside == nil && set.PFC == nil && set.ReceiveRate == nil {
			continue
		}
		settings, err := mmu.AdapterSettings(p.topology, n, receiveBuffer(n), PlainRate)
		if err == nil {
			err = p.addBuffer(n, settings, mmu.ClassesOf(beside))
		}
		if err != nil {
			return fmt.Errorf("node %s: adapter: %w", n.Name, err)
		}
		b := p.buffers[n.Name]
		b.ports = append(b.ports, port[F]{})
		if set.ReceiveRate != nil {
			b.receive = *set.ReceiveRate
		}
	}
	return nil
}

func (p *Plane[F]) addBuffer(n *topology.Node, settings mmu.Config, classes mmu.DSCPTable) error {
	model, err := mmu.New[F](settings)
	if err != nil {
		return err
	}
	b := &Buffer[F]{plane: p, shard: p.shardOf(n.Name), node: n, model: model, index: -1, classes: classes, ports: make([]port[F], len(n.Interfaces))}
	for i := range n.Interfaces {
		face := &n.Interfaces[i]
		leaves, comes := p.wires[face.Link][face.End], p.wires[face.Link][1-face.End]
		b.ports[i].wire = leaves
		leaves.From, leaves.Out = b, i
		comes.To, comes.In = b, i
	}
	p.buffers[n.Name] = b
	return nil
}
