package simulate

import (
	"math/bits"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Lengths of headers, bytes.
const (
	ethernetLen = dataplane.EthernetLen
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
	icrcLen     = 4
)

// A frame is a packet on its way. As long as no bit of it has flipped it is handed
// over as what its sender gave to its carrier: nobody has to compute a checksum of what
// cannot be wrong. Its payload is a copy, since the sender's memory may change while
// it is on its way, unless it is known not to: of hundreds of thousands of packets in
// queues the copies would take most of the memory.
type frame struct {
	// In the processor's caches, what each wire and buffer looks at is together.
	way     *way
	next    *frame // in a list of frames
	hop     uint16 // index in way.wires, of the next
	length  uint16 // see size
	class   uint8  // the traffic class, as long as whole is nil
	isPause bool   // it is a PFC frame, behind its Ethernet header: it has neither header nor way
	copied  bool   // the payload is a copy
	whole   []byte // the packet from its Ethernet header on, once bits of it have flipped; else nil
	payload []byte
	header  roce.Header
}

// ip is the length of the IP and UDP headers.
func (f *frame) ip() int {
	if f.way.flow.Local.Is4() {
		return ipv4Len + udpLen
	}
	return ipv6Len + udpLen
}

// size is the packet's length in bytes from the IP header on.
func (f *frame) size() int { return int(f.length) }

// measure finds the size of a packet that is complete.
func (f *frame) measure() {
	f.length = uint16(f.ip() + f.header.Opcode.HeaderLen() + (len(f.payload)+3)&^3 + icrcLen)
}

// identity returns what impair.Identify would find in the packet.
func (f *frame) identity() impair.Identity {
	id := impair.Identity{Opcode: f.header.Opcode, QP: f.header.DestQPN & roce.PSNMask, PSN: f.header.PSN & roce.PSNMask}
	if id.Opcode.HasAETH() {
		id.Syndrome = f.header.Syndrome
	}
	if id.QP == mad.QPN && id.Opcode == roce.UDSendOnly && len(f.payload) >= mad.Size {
		if h, err := mad.DecodeHeader(f.payload[:mad.Size]); err == nil {
			id.CM = h.Attribute
		}
	}
	return id
}

// trafficClass returns the traffic class, which switches read.
func (f *frame) trafficClass() uint8 {
	if f.whole != nil {
		return roce.ClassOf(f.whole[ethernetLen:])
	}
	return f.class
}

// mayBeMarked reports whether the packet says that it may be marked.
func (f *frame) mayBeMarked() bool { return !f.isPause && roce.IsECT(f.trafficClass()) }

// mark has the packet bear Congestion Experienced.
func (f *frame) mark() {
	if f.whole != nil {
		roce.Mark(f.whole[ethernetLen:])
		return
	}
	f.class |= roce.CE
}

// flip flips bits of the packet, which from now on is bytes.
func (f *frame) flip(sealer *roce.Sealer, bits *impair.Flip) {
	if f.whole == nil {
		packet := roce.Packet{Header: f.header, Payload: [][]byte{f.payload}, Class: f.class}
		f.whole = sealer.AppendIP(make([]byte, ethernetLen, ethernetLen+f.size()), &f.way.flow, 0, &packet)
	}
	bits.Apply(f.whole)
}

// intact reports whether no bit of the Ethernet header has flipped: they are all 0 in a
// simulation, where no address of Ethernet says anything.
func (f *frame) intact() bool {
	return [ethernetLen]byte(f.whole) == [ethernetLen]byte{}
}

// frames makes frames, and uses those again that have arrived, and the memory of their
// payloads.
type frames struct {
	idle  *frame     // a list
	rooms [][][]byte // for payloads of 2^index bytes at most
}

// get is a frame with a payload, the rest of which the caller fills in. The payload is
// copied, unless it is constant, and then in one piece.
func (s *frames) get(payload [][]byte, constant bool) *frame {
	f := s.idle
	if f == nil {
		f = new(frame)
	} else {
		s.idle, f.next = f.next, nil
	}
	switch n := length(payload); {
	case n == 0:
	case constant:
		f.payload = payload[0]
	default:
		f.payload, f.copied = s.room(n)[:0], true
		for _, piece := range payload {
			f.payload = append(f.payload, piece...)
		}
	}
	return f
}

// pause returns a PFC frame.
func (s *frames) pause(pause *mmu.PFC) *frame {
	f := s.get(nil, false)
	f.payload, f.copied = pause.Append(s.room(mmu.PFCFrameLen)[:0]), true
	f.isPause, f.length = true, mmu.PFCFrameLen
	return f
}

func length(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// room is memory for a payload of n bytes, of which there are some.
func (s *frames) room(n int) []byte {
	class := classOf(n)
	if room := s.idleRoom(class); room != nil {
		return room
	}
	return make([]byte, 1<<class)
}

// classOf returns the class of rooms for n bytes.
func classOf(n int) int { return bits.Len(uint(n - 1)) }

// idleRoom takes a room of a class; nil if there is none.
func (s *frames) idleRoom(class int) []byte {
	if class >= len(s.rooms) || len(s.rooms[class]) == 0 {
		return nil
	}
	idle := &s.rooms[class]
	last := len(*idle) - 1
	room := (*idle)[last]
	*idle = (*idle)[:last]
	return room
}

// putRoom takes a room back.
func (s *frames) putRoom(room []byte) {
	class := classOf(cap(room))
	for len(s.rooms) <= class {
		s.rooms = append(s.rooms, nil)
	}
	s.rooms[class] = append(s.rooms[class], room)
}

// put takes a frame back.
func (s *frames) put(f *frame) {
	if f.copied {
		s.putRoom(f.payload)
	}
	*f = frame{next: s.idle}
	s.idle = f
}

// replace takes what is idle at others for a frame that they are given, and for its payload.
func (s *frames) replace(given *frame, others *frames) {
	if f := others.idle; f != nil {
		others.idle, f.next = f.next, s.idle
		s.idle = f
	}
	if !given.copied {
		return
	}
	if room := others.idleRoom(classOf(cap(given.payload))); room != nil {
		s.putRoom(room)
	}
}

// copy is a second frame of the same packet.
func (s *frames) copy(f *frame) *frame {
	c := s.get([][]byte{f.payload}, !f.copied)
	c.header, c.way, c.hop, c.length, c.class, c.isPause = f.header, f.way, f.hop, f.length, f.class, f.isPause
	c.whole = slices.Clone(f.whole)
	return c
}

// A line is a list of frames, in the order in which they came.
type line struct{ first, last *frame }

// push puts a frame behind all others.
func (l *line) push(f *frame) {
	if l.first == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}
