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

// This file is a shard as the owner of the frames of its plane: dataplane.Owner says what the methods do.

func (*shard) Size(f *frame) int           { return ethernetLen + f.size() }
func (*shard) TrafficClass(f *frame) uint8 { return f.trafficClass() }
func (*shard) MayBeMarked(f *frame) bool   { return f.mayBeMarked() }
func (*shard) Mark(f *frame)               { f.mark() }
func (s *shard) Copy(f *frame) *frame      { return s.frames.copy(f) }
func (s *shard) Free(f *frame)             { s.frames.put(f) }

func (s *shard) Flip(f *frame, bits *impair.Flip) { f.flip(&s.sealer, bits) }

func (s *shard) Identify(f *frame, p *impair.Packet, roce bool) {
	p.Payload = ethernetLen
	if f.isPause {
		return
	}
	p.Payload += f.ip()
	if roce {
		s.identity = f.identity()
		p.RoCE = &s.identity
	}
}

func (s *shard) NewPause(_ *dataplane.Wire[*frame], pause *mmu.PFC) *frame {
	return s.frames.pause(pause)
}

func (*shard) Pause(f *frame) (pause mmu.PFC, ok bool) {
	if !f.isPause {
		return pause, false
	}
	pause, err := mmu.DecodePFC(f.payload) // which PFC.Append has made
	return pause, err == nil
}

func (s *shard) Obeyed(f *frame, _ *dataplane.Wire[*frame]) { s.frames.put(f) }

func (*shard) Decided(*dataplane.Wire[*frame], *frame, *impair.Packet, *impair.Verdict) {}

func (s *shard) Arrive(f *frame, by *dataplane.Wire[*frame], t dataplane.Transit) {
	by.Delivered(s.clock.Now(), ethernetLen+f.size(), t, 0)
	s.forward(f, by)
}

// forward puts a frame on the next wire of its way, or hands it to who it is for. It came by a wire; nil: from
// its sender.
func (s *shard) forward(f *frame, by *dataplane.Wire[*frame]) {
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
	s.deliver(f)
}

func (s *shard) Deliver(f *frame, _ *dataplane.Buffer[*frame]) { s.deliver(f) }

// deliver hands a frame to the adapter that it is for.
func (s *shard) deliver(f *frame) {
	if life := f.way.to.life; life != nil {
		life.port.take(f)
		return
	}
	s.frames.put(f)
}

// Overflowed counts what reports have no port for: it is behind the interfaces.
func (s *shard) Overflowed(b *dataplane.Buffer[*frame]) {
	if life := s.network.byName[b.Node().Name].life; life != nil {
		life.port.overflowed++
	}
}

func (s *shard) Deadlocked(d bufferstats.Deadlock) {
	s.network.tell(event.Event{Kind: event.Deadlock, Text: d.String()})
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
