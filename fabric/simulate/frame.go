package simulate

import (
	"time"

	"github.com/ndklab/ndklab/fabric/impair"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// Lengths of headers, bytes.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
	icrcLen     = 4
)

// A frame is a packet on its way. As long as no bit of it has flipped it is handed
// over as what its sender gave to its carrier: nobody has to compute a checksum of what
// cannot be wrong. Its payload is its own, since the sender's memory may change while
// it is on its way.
type frame struct {
	flow    roce.Flow // as the sender sees it
	header  roce.Header
	payload []byte // part of room, or of whole
	whole   []byte // the packet from its Ethernet header on, once bits of it have flipped; else nil
	way     *way
	hop     int // index in way.wires, of the next
	room    []byte
}

// ip is the length of the IP and UDP headers.
func (f *frame) ip() int {
	if f.flow.Local.Is4() {
		return ipv4Len + udpLen
	}
	return ipv6Len + udpLen
}

// size is the packet's length in bytes from the IP header on.
func (f *frame) size() int {
	return f.ip() + f.header.Opcode.HeaderLen() + (len(f.payload)+3)&^3 + icrcLen
}

// identity is what impair.Identify would find in the packet.
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

// flip flips bits of the packet, which from now on is bytes.
func (f *frame) flip(sealer *roce.Sealer, bits *impair.Flip) {
	if f.whole == nil {
		packet := roce.Packet{Header: f.header, Payload: [][]byte{f.payload}}
		f.whole = sealer.AppendIP(make([]byte, ethernetLen, ethernetLen+f.size()), &f.flow, 0, &packet)
	}
	bits.Apply(f.whole)
}

// intact reports whether no bit of the Ethernet header has flipped: they are all 0 in a
// simulation, where no address of Ethernet says anything.
func (f *frame) intact() bool {
	return [ethernetLen]byte(f.whole) == [ethernetLen]byte{}
}

// The room for payloads: that of most packets that carry none or a datagram of
// connection management, and that of all.
const (
	littleRoom = 256
	mostRoom   = 4096
)

// frames are those that have arrived, for reuse, by their room.
type frames struct{ little, large []*frame }

// get is a frame with room for so many bytes of payload.
func (s *frames) get(n int) *frame {
	list, room := &s.little, littleRoom
	if n > littleRoom {
		list, room = &s.large, max(n, mostRoom)
	}
	if last := len(*list) - 1; last >= 0 && cap((*list)[last].room) >= n {
		f := (*list)[last]
		*list = (*list)[:last]
		return f
	}
	return &frame{room: make([]byte, room)}
}

// put takes a frame back.
func (s *frames) put(f *frame) {
	f.whole, f.way, f.payload = nil, nil, nil
	if len(f.room) > littleRoom {
		s.large = append(s.large, f)
	} else {
		s.little = append(s.little, f)
	}
}

// copy is a second frame of the same packet.
func (s *frames) copy(f *frame) *frame {
	c := s.get(len(f.payload))
	room := c.room
	*c = *f
	c.room = room
	c.payload = room[:copy(room, f.payload)]
	if f.whole != nil {
		c.whole = append([]byte(nil), f.whole...)
	}
	return c
}

// A transit is a frame on a wire.
type transit struct {
	frame   *frame
	departs time.Duration // when it leaves the wire
	queued  time.Duration // before the wire's rate
	delay   time.Duration // on the wire behind that
}

// transits are frames in the order in which they leave, a ring.
type transits struct {
	ring       []transit // of a power of two
	head, used int
}

func (q *transits) at(i int) *transit { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *transits) first() *transit { return q.at(0) }

// push puts a frame behind all that leave before it or with it. Few ever leave before
// others that came earlier.
func (q *transits) push(t transit) {
	if q.used == len(q.ring) {
		ring := make([]transit, max(16, 2*len(q.ring)))
		for i := range q.used {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	i := q.used
	q.used++
	for ; i > 0 && q.at(i-1).departs > t.departs; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(i) = t
}

// pop takes the first off.
func (q *transits) pop() transit {
	t := *q.first()
	q.first().frame = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.used--
	return t
}
