package linkem

import (
	"encoding/binary"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A packet is a wire packet in the fabric: a part of a frame.
type packet struct {
	held    *heldFrame // nil: there was no memory for it
	line    *line      // whose memory the frame is in
	segment int32      // of held
	layers  frame.Layers
	arrived time.Duration // when the kernel had received it, by the fabric's time
	marked  bool          // it bears Congestion Experienced, which held does not
	isPause bool          // it is a PFC frame
	pause   mmu.PFC       // its content

	// Of a part of a frame that routers have forwarded:
	hops     uint8 // how many have; 0: the frame's headers are the packet's
	to, from MAC   // the addresses that it has by now

	// Of one that has left its last wire:
	by      *line
	transit dataplane.Transit
	counted bool // its wire has counted it
	next    *packet
}

// packet returns a packet of a frame.
func (f *fabric) packet(held *heldFrame, of *line) *packet {
	p := f.unused
	if p == nil {
		p = new(packet)
	} else {
		f.unused, p.next = p.next, nil
	}
	p.held, p.line = held, of
	if held != nil {
		held.runs++
		f.egress.memory.left -= runCost
	}
	return p
}

// Free implements dataplane.Owner.
func (f *fabric) Free(p *packet) {
	if h := p.held; h != nil {
		f.egress.memory.left += runCost
		if h.runs--; h.runs == 0 {
			f.egress.memory.release(p.line, h)
		}
	}
	*p = packet{next: f.unused}
	f.unused = p
}

// pauseFrameLen is the length of a PFC frame from its Ethernet header on, bytes.
const pauseFrameLen = dataplane.EthernetLen + mmu.PFCFrameLen

// Size implements dataplane.Owner.
func (*fabric) Size(p *packet) int {
	if p.held == nil {
		return pauseFrameLen
	}
	return p.held.frame.Size(int(p.segment))
}

// TrafficClass implements dataplane.Owner.
func (*fabric) TrafficClass(p *packet) uint8 { return p.layers.Class }

// MayBeMarked implements dataplane.Owner.
func (*fabric) MayBeMarked(p *packet) bool { return p.layers.ECT }

// Mark implements dataplane.Owner.
func (*fabric) Mark(p *packet) {
	p.layers.Class |= roce.CE
	if p.held.frame.Segments() == 1 {
		frame.Mark(p.held.frame.Packet())
		return
	}
	p.marked = true
}

// Copy implements dataplane.Owner. The copy is a frame of its own, which may come to bear another mark.
func (f *fabric) Copy(p *packet) *packet {
	var held *heldFrame
	if p.held != nil {
		held = f.extract(p)
	}
	c := f.packet(held, p.line)
	c.layers, c.arrived, c.isPause, c.pause = p.layers, p.arrived, p.isPause, p.pause
	return c
}

// extract makes a packet a frame of its own; nil if there is no memory left.
func (f *fabric) extract(p *packet) *heldFrame {
	memory := f.egress.memory
	b, room := memory.room(p.line, frame.HeaderLen+p.held.frame.Size(int(p.segment)))
	if b == nil {
		return nil
	}
	one := p.held.frame.Extract(room, int(p.segment))
	p.change(one.Packet())
	return memory.hold(b, one, p.held.arrived)
}

// change has the bytes of the packet, or of its headers, be what it has become since its frame came.
func (p *packet) change(b []byte) {
	if p.marked {
		frame.Mark(b)
	}
	p.rewrite(b)
}

// replace has a packet be a frame of its own.
func (f *fabric) replace(p *packet, by *heldFrame) {
	old := p.held
	by.runs++
	p.held, p.segment, p.marked, p.hops = by, 0, false, 0
	if old.runs--; old.runs == 0 {
		f.egress.memory.release(p.line, old)
	}
}

// etherMACControl is the EtherType of PFC frames (roce.md 14.4).
const etherMACControl = 0x8808

// flowControl is the address of PFC frames.
var flowControl = MAC{0x01, 0x80, 0xc2, 0, 0, 0x01}

// NewPause implements dataplane.Owner.
func (f *fabric) NewPause(w *dataplane.Wire[*packet], pause *mmu.PFC) *packet {
	n := f.lines[w.Link][w.Direction]
	var held *heldFrame
	if b, room := f.egress.memory.room(n, frame.HeaderLen+pauseFrameLen); b != nil {
		clear(room[:frame.HeaderLen])
		ethernet := append(room[:frame.HeaderLen], flowControl[:]...)
		ethernet = append(ethernet, f.macs[w.Link][w.Direction][:]...)
		whole := pause.Append(binary.BigEndian.AppendUint16(ethernet, etherMACControl))
		if one, err := frame.Parse(whole); err == nil { // which is long enough
			held = f.egress.memory.hold(b, one, f.clock.Now())
		}
	}
	p := f.packet(held, n)
	p.layers = frame.Layers{Payload: dataplane.EthernetLen}
	p.isPause, p.pause = true, *pause
	return p
}

// pauseIn returns the content of a packet that is a PFC frame; false if it is none.
func pauseIn(b []byte) (pause mmu.PFC, ok bool) {
	if binary.BigEndian.Uint16(b[dataplane.EthernetLen-2:]) != etherMACControl {
		return pause, false
	}
	pause, err := mmu.DecodePFC(b[dataplane.EthernetLen:])
	return pause, err == nil
}

// Pause implements dataplane.Owner.
func (*fabric) Pause(p *packet) (mmu.PFC, bool) { return p.pause, p.isPause }
