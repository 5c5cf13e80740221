package simulate

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/topology"
)

// This file is the network as the owner of the frames of its plane: dataplane.Owner says what the methods do.

func (*network) Size(f *frame) int           { return ethernetLen + f.size() }
func (*network) TrafficClass(f *frame) uint8 { return f.trafficClass() }
func (*network) MayBeMarked(f *frame) bool   { return f.mayBeMarked() }
func (*network) Mark(f *frame)               { f.mark() }
func (n *network) Copy(f *frame) *frame      { return n.frames.copy(f) }
func (n *network) Free(f *frame)             { n.frames.put(f) }

func (n *network) Flip(f *frame, bits *impair.Flip) { f.flip(&n.sealer, bits) }

func (n *network) Identify(f *frame, p *impair.Packet, roce bool) {
	p.Payload = ethernetLen
	if f.isPause {
		return
	}
	p.Payload += f.ip()
	if roce {
		n.identity = f.identity()
		p.RoCE = &n.identity
	}
}

func (n *network) NewPause(_ *dataplane.Wire[*frame], pause *mmu.PFC) *frame {
	return n.frames.pause(pause)
}

func (*network) Pause(f *frame) (pause mmu.PFC, ok bool) {
	if !f.isPause {
		return pause, false
	}
	pause, err := mmu.DecodePFC(f.payload) // which PFC.Append has made
	return pause, err == nil
}

func (n *network) Obeyed(f *frame, _ *dataplane.Wire[*frame]) { n.frames.put(f) }

func (*network) Decided(*dataplane.Wire[*frame], *frame, *impair.Packet, *impair.Verdict) {}

func (n *network) Arrive(f *frame, by *dataplane.Wire[*frame], t dataplane.Transit) {
	by.Delivered(n.clock.Now(), ethernetLen+f.size(), t, 0)
	n.forward(f, by)
}

// forward puts a frame on the next wire of its way, or hands it to who it is for. It came by a wire; nil: from
// its sender.
func (n *network) forward(f *frame, by *dataplane.Wire[*frame]) {
	if int(f.hop) < len(f.way.wires) {
		w := f.way.wires[f.hop]
		f.hop++
		switch {
		case w.From == nil:
			w.Enter(f)
		case by == nil:
			w.From.Take(f, w.From.Adapter(), w.Out)
		default:
			w.From.Take(f, by.In, w.Out)
		}
		return
	}
	if by != nil && by.To != nil && by.To.ReceivesSlowly() {
		by.To.Take(f, by.In, by.To.Adapter())
		return
	}
	n.deliver(f)
}

func (n *network) Deliver(f *frame, _ *dataplane.Buffer[*frame]) { n.deliver(f) }

// deliver hands a frame to the adapter that it is for.
func (n *network) deliver(f *frame) {
	if life := f.way.to.life; life != nil {
		life.port.take(f)
		return
	}
	n.frames.put(f)
}

// Overflowed counts what reports have no port for: it is behind the interfaces.
func (n *network) Overflowed(b *dataplane.Buffer[*frame]) {
	if life := n.byName[b.Node().Name].life; life != nil {
		life.port.overflowed++
	}
}

func (n *network) Deadlocked(d bufferstats.Deadlock) {
	n.tell(event.Event{Kind: event.Deadlock, Text: d.String()})
}

// storm begins a storm of a host's adapter.
func (n *network) storm(name string, s *topology.Storm) error {
	b := n.plane.Buffer(name)
	if b == nil {
		return fmt.Errorf(dataplane.NoStorm, name)
	}
	b.Storm(int(s.Priority), n.clock.Now()+s.For)
	return nil
}
