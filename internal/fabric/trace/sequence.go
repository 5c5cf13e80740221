package trace

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Sequence has the requests of a queue pair among the last packets of a link, and the answers to them. Its PSNs go on beyond 2^24: the lower 24 bits are those on the wire.
type Sequence struct {
	From     Peer    `json:"from"` // the requester
	To       Peer    `json:"to"`
	Reversed bool    `json:"reversed,omitempty"` // the QP asked for sent no requests, and To is it
	Points   []Point `json:"points"`
}

// A Peer is a queue pair.
type Peer struct {
	Address string `json:"address"` // "" with QPN 0: not known
	QPN     uint32 `json:"qpn"`
}

// A Kind tells points apart.
type Kind string

// The kinds. From sends data and resends, To the others.
const (
	Data      Kind = "data"      // a request, or a packet of one, for the first time
	Resent    Kind = "resent"    // another time
	Ack       Kind = "ack"       // also of an atomic operation
	NAK       Kind = "nak"       // PSN is the one that is refused or missing
	RNR       Kind = "rnr"       // the receiver was not ready for PSN
	Selective Kind = "selective" // PSN is missing, and PSNs up to To have arrived, if not all of them
	Response  Kind = "response"  // data that READ asked for
	CNP       Kind = "cnp"       // PSN is the last that was sent
)

// A Point is a packet.
type Point struct {
	At    float64 `json:"at"` // seconds since an instant that the caller of Sequence chose
	Kind  Kind    `json:"kind"`
	PSN   int64   `json:"psn"`
	To    int64   `json:"to,omitempty"`    // the last PSN, of selective and of READ requests
	Acked *int64  `json:"acked,omitempty"` // all PSNs before it are acknowledged; of To's packets, from the first such on
	Size  int     `json:"size,omitempty"`  // payload, bytes
	Lost  string  `json:"lost,omitempty"`  // the cause, as Row.Cause; "": it was not lost on this link
	Text  string  `json:"text"`
}

// A QueuePair is one whose packets cross a link.
type QueuePair struct {
	Endpoint  string // the interface of its node
	QPN       uint32
	RemoteQPN uint32 // of its peer; 0: it is found by the PSNs of the answers
}

// Sequence returns that of a queue pair. Times are since an instant in ns since 1970.
func (r *Ring) Sequence(qp QueuePair, since int64) Sequence {
	d := newDecoder()
	out, in := r.flows(d, qp)
	s := sequencer{decoder: d, since: since, out: out, in: in, points: []Point{}}
	sent, received := false, false
	r.each(d, func(*Packet) {
		switch {
		case !carries(d.header.Opcode):
		case out.has(d):
			sent = true
		case in.has(d):
			received = true
		}
		if op := d.header.Opcode; (op.IsFirst() || op.IsMiddle()) && (out.has(d) || in.has(d)) {
			s.mtu = d.payload
		}
	})
	reversed := received && !sent
	if reversed {
		s.out, s.in = in, out
	}
	r.each(d, s.take)
	return Sequence{From: s.in.receiver(), To: s.out.receiver(), Reversed: reversed, Points: s.points}
}

// each calls f with each RoCEv2 packet, decoded.
func (r *Ring) each(d *decoder, f func(*Packet)) {
	r.all(0, func(p *Packet) {
		if d.decode(p); d.roce {
			f(p)
		}
	})
}

// A flow is packets to a queue pair. The zero flow has none.
type flow struct {
	source, destination netip.Addr
	qpn                 uint32
	sender              uint32 // datagrams alone say who sends them; 0: any
}

// has reports whether a packet is of the flow.
func (f *flow) has(d *decoder) bool {
	h := &d.header
	if f.sender != 0 && h.SourceQPN == f.sender && d.source == f.source {
		return true // to whatever queue pair
	}
	return f.qpn != 0 && h.DestQPN == f.qpn && d.source == f.source && d.destination == f.destination
}

func (f *flow) receiver() Peer {
	if f.qpn == 0 {
		return Peer{}
	}
	return Peer{Address: f.destination.String(), QPN: f.qpn}
}

// carries reports whether packets of an opcode are a requester's.
func carries(op roce.Opcode) bool {
	return op.IsRequest() || op.IsUC() || op == roce.UDSendOnly || op == roce.UDSendOnlyImm
}

// flows returns what a queue pair sends and what it is sent. A packet of a connection names its receiver alone. So what the queue
// pair sends is what its interface sends to the address from which it is sent something, to the queue pair whose requests have the
// PSNs that are answered, or whose answers have the PSNs of its requests.
func (r *Ring) flows(d *decoder, qp QueuePair) (out, in flow) {
	answers, asked := map[uint32]bool{}, map[uint32]bool{} // PSNs
	r.each(d, func(p *Packet) {
		h := &d.header
		switch {
		case p.From == qp.Endpoint && h.SourceQPN == qp.QPN && !h.Opcode.IsRC():
			out.source, out.sender = d.source, qp.QPN
		case p.From == qp.Endpoint || h.DestQPN != qp.QPN:
		default:
			in = flow{source: d.source, destination: d.destination, qpn: qp.QPN}
			if h.Opcode.IsResponse() {
				answers[h.PSN] = true
			} else if h.Opcode.IsRequest() {
				asked[h.PSN] = true
			}
		}
	})
	votes := map[flow]int{}
	var elected flow
	r.each(d, func(p *Packet) {
		h := &d.header
		if p.From != qp.Endpoint || in.qpn != 0 && (d.source != in.destination || d.destination != in.source) {
			return
		}
		match := h.Opcode.IsRequest() && answers[h.PSN] || h.Opcode.IsResponse() && asked[h.PSN]
		if qp.RemoteQPN != 0 {
			match = h.DestQPN == qp.RemoteQPN
		}
		if match {
			f := flow{source: d.source, destination: d.destination, qpn: h.DestQPN}
			if votes[f]++; votes[f] > votes[elected] {
				elected = f
			}
		}
	})
	elected.sender = out.sender
	if elected.qpn == 0 {
		elected.source = out.source
	}
	if in.qpn == 0 && elected.source.IsValid() { // it is sent nothing
		in = flow{source: elected.destination, destination: elected.source, qpn: qp.QPN}
	}
	return elected, in
}

// A sequencer makes the points, packet by packet.
type sequencer struct {
	*decoder
	since   int64
	out, in flow // of the requester
	mtu     int  // bytes; 0: not known
	points  []Point

	begun    bool
	next     int64 // the PSN after the last that was sent
	answered int64 // the PSN of the last READ response
	acked    *int64
}

// take takes the packet that was decoded.
func (s *sequencer) take(p *Packet) {
	h := &s.header
	out, in := s.out.has(s.decoder), s.in.has(s.decoder)
	switch op := h.Opcode; {
	case op == roce.CNP && (out || in):
		s.add(p, CNP, s.ahead(out)).Size = 0
	case out && carries(op):
		s.request(p)
	case in && op.IsResponse():
		s.answer(p)
	}
}

// ahead returns the last PSN of what a CNP is about: of requests, or, if the requester sends it, of READ responses.
func (s *sequencer) ahead(sent bool) int64 {
	if sent {
		return s.answered
	}
	return s.next - 1
}

// extend returns the PSN of 24 bits that is nearest to the next one, as one that goes on beyond.
func (s *sequencer) extend(psn uint32) int64 {
	if !s.begun {
		s.begun, s.next = true, int64(psn)
	}
	return s.next + int64(roce.PSNDiff(psn, uint32(s.next)&roce.PSNMask))
}

// add adds a point, which is valid until the next one.
func (s *sequencer) add(p *Packet, kind Kind, psn int64) *Point {
	fate, cause, _, _ := parseComment(p)
	if fate == Dropped && cause == "" {
		cause = string(Dropped)
	}
	s.points = append(s.points, Point{
		At: seconds(p.Stamp, s.since), Kind: kind, PSN: psn, Size: s.payload, Lost: cause,
		Text: s.header.Opcode.String() + ": " + s.describe(),
	})
	return &s.points[len(s.points)-1]
}

func (s *sequencer) request(p *Packet) {
	psn := s.extend(s.header.PSN)
	last := psn
	if s.header.Opcode == roce.ReadRequest && s.mtu > 0 { // it takes a PSN for each response (IBTA, 9.7.2)
		last += max(0, (int64(s.header.DMALength)-1)/int64(s.mtu))
	}
	kind := Data
	if psn < s.next {
		kind = Resent
	}
	point := s.add(p, kind, psn)
	if last > psn {
		point.To = last
	}
	s.next = max(s.next, last+1)
}

func (s *sequencer) answer(p *Packet) {
	h := &s.header
	psn := s.extend(h.PSN)
	kind, acked := Ack, psn+1
	switch {
	case h.Opcode.IsReadResponse():
		kind, s.answered = Response, psn
		s.next = max(s.next, psn+1)
	case h.Opcode == roce.SelectiveAcknowledge:
		kind, acked = Selective, psn
	case h.Syndrome.IsRNR():
		kind, acked = RNR, psn
	case !h.Syndrome.IsACK():
		kind, acked = NAK, psn
	}
	point := s.add(p, kind, psn)
	if point.Lost == "" && (s.acked == nil || acked > *s.acked) { // the requester gets to know
		s.acked = &acked
	}
	point.Acked = s.acked
	if kind == Selective {
		point.To = s.extend(h.MSN)
	}
}
