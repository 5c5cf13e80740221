package soak

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A stream is the request packets from one end of a connection to the other, as
// they are seen on the wire. Sequence numbers are kept extended: the low 24 bits
// are the PSN.
type stream struct {
	begun bool
	next  int64            // behind the newest sent
	said  map[int64]uint64 // hashes of what was sent, of data packets
	// arrived are those behind frontier that have; everything before frontier
	// has.
	frontier int64
	arrived  map[int64]bool
}

var hashSeed = maphash.MakeSeed()

func newStream() *stream {
	return &stream{said: map[int64]uint64{}, arrived: map[int64]bool{}}
}

// extend returns the sequence number with a PSN that is nearest to near.
func extend(psn uint32, near int64) int64 { return near + int64(roce.PSNDiff(psn, uint32(near))) }

// length returns how many sequence numbers a request packet has on a connection.
func (e *end) length(h *roce.Header) int64 {
	if h.Opcode != roce.ReadRequest {
		return 1
	}
	return max(1, (int64(h.DMALength)+e.mtu-1)/e.mtu)
}

// checkSent listens to what a device sends: it must be what its end of the connection
// may say.
func (l *instance) checkSent(flow *roce.Flow, p *roce.Packet) {
	h := &p.Header
	at := l.run.hostAt(flow.Remote).instance
	if at == nil {
		return
	}
	to := at.endNumbered(h.DestQPN)
	if to == nil || !to.paired() || to.peer.instance != l || flow.Local != to.remote {
		return // not a connection that both ends know of, or no more
	}
	switch from := to.peer; {
	case h.Opcode.IsRequest():
		from.requests(to, h, p.Payload)
	case h.Opcode == roce.Acknowledge && h.Syndrome.IsACK():
		if s := to.out; s.begun && extend(h.PSN, s.frontier) >= s.frontier {
			l.run.Fail("nothing is acknowledged that has not arrived", "%v acknowledges %#x of %v, of which all before %#x has arrived",
				from, h.PSN, to, s.frontier&roce.PSNMask)
		}
	}
}

// requests notes a request packet of the end's.
func (e *end) requests(to *end, h *roce.Header, payload [][]byte) {
	r, s := e.instance.run, e.out
	mayProbe := h.Opcode == roce.WriteOnly && h.DMALength == 0 && h.RKey == 0 // package rc
	if !s.begun {
		s.begun, s.next = true, int64(h.PSN)
		if mayProbe { // of an end that has sent nothing: it has the number before the first
			s.next++
		}
		s.frontier = s.next
	}
	if mayProbe && h.PSN != uint32(s.next)&roce.PSNMask {
		return // it has the number of another packet
	}
	at := extend(h.PSN, s.next)
	if at > s.next {
		r.Fail("sequence numbers without gaps", "%v sends %#x after %#x", e, h.PSN, (s.next-1)&roce.PSNMask)
	}
	if at < s.next {
		r.Coverage.Count("packets retransmitted")
	}
	if h.Opcode != roce.ReadRequest {
		var hash maphash.Hash
		hash.SetSeed(hashSeed)
		hash.WriteByte(byte(h.Opcode))
		for _, piece := range payload {
			hash.Write(piece)
		}
		sum := hash.Sum64()
		if before, ok := s.said[at]; ok && before != sum {
			r.Fail("what is sent again is as before", "%v sends %#x otherwise than it did", e, h.PSN)
		}
		s.said[at] = sum
	}
	s.next = max(s.next, at+e.length(h))
}

// checkReceived listens to what comes to a device.
func (l *instance) checkReceived(p *roce.Received) {
	e := l.endNumbered(p.Header.DestQPN)
	if e == nil || !e.paired() || p.Flow.Remote != e.remote || !p.Header.Opcode.IsRequest() {
		return
	}
	s := e.peer.out
	if !s.begun {
		return
	}
	at := extend(p.Header.PSN, s.frontier)
	for i := range e.length(&p.Header) {
		if at+i >= s.frontier {
			s.arrived[at+i] = true
		}
	}
	for s.arrived[s.frontier] {
		delete(s.arrived, s.frontier)
		s.frontier++
	}
}

// journalText returns what else the journal tells of a packet.
func journalText(h *roce.Header, payload ...[]byte) string {
	switch {
	case h.DestQPN == mad.QPN && len(payload) > 0:
		if m, err := mad.DecodeHeader(payload[0]); err == nil {
			return fmt.Sprintf(", attribute %#x, transaction %#x, from %#x to %#x", uint16(m.Attribute), m.TransactionID,
				binary.BigEndian.Uint32(payload[0][24:]), binary.BigEndian.Uint32(payload[0][28:]))
		}
	case h.Opcode.HasAETH():
		return fmt.Sprintf(", syndrome %#x, MSN %#x", uint8(h.Syndrome), h.MSN)
	case h.Opcode.HasRETH():
		return fmt.Sprintf(", %d bytes at %#x under %#x", h.DMALength, h.VA, h.RKey)
	case h.Opcode.HasInvalidate():
		return fmt.Sprintf(", invalidate %#x", h.InvalidateKey)
	}
	return ""
}
