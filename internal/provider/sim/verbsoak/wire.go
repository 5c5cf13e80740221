package verbsoak

import (
	"hash/maphash"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A stream is the request packets of a reliable connection from one end, as they are seen on the wire. Sequence
// numbers are extended: the low 24 bits are the PSN.
type stream struct {
	next     int64 // behind the newest sent
	said     map[int64]uint64
	frontier int64 // everything before has arrived, and of what is behind, this:
	arrived  map[int64]bool
}

var hashSeed = maphash.MakeSeed()

func newStream(first int64) *stream {
	return &stream{next: first, frontier: first, said: map[int64]uint64{}, arrived: map[int64]bool{}}
}

// extend returns the sequence number with a PSN that is nearest to near.
func extend(psn uint32, near int64) int64 { return near + int64(roce.PSNDiff(psn, uint32(near))) }

// leaves listens to what the host sends: it must be what its ends may say.
func (h *host) leaves(flow *roce.Flow, p *roce.Packet) {
	r := h.run
	op := p.Header.Opcode
	if op == roce.UDSendOnly || op == roce.UDSendOnlyImm {
		if from := h.numbered(p.Header.SourceQPN); from != nil {
			from.begins(uint32(p.Header.PSN))
		}
		return
	}
	to := r.hosts[r.fabric.HostAt(flow.Remote)].numbered(p.Header.DestQPN)
	if to == nil || to.peer == nil || to.peer.host != h {
		return
	}
	e := to.peer
	switch {
	case op.IsUC():
		e.begins(uint32(p.Header.PSN))
	case op.IsRequest():
		e.requests(&p.Header, p.Payload)
	case op == roce.Acknowledge && p.Header.Syndrome.IsACK() && to.out != nil && !e.gone && !e.cause && !to.cause:
		if extend(p.Header.PSN, to.out.frontier) >= to.out.frontier {
			r.Fail("nothing is acknowledged that has not arrived", "%v acknowledges %#x, where all before %#x has arrived", e, p.Header.PSN, to.out.frontier&roce.PSNMask)
		}
	}
}

// begins notes that a packet of a request is sent; in SQD nothing is that had not begun (IBTA Vol. 1, 10.3.1.5).
func (e *end) begins(psn uint32) *request {
	f, ok := e.run.flight[packetKey{e, psn}]
	if !ok {
		return nil
	}
	q := f.request
	if e.state == verbs.SendQueueDrain && !q.before && !q.over {
		e.run.Fail("a queue that drains begins nothing", "%v sends PSN %#x of %v", e, psn, q)
	}
	if e.state == verbs.Reset || e.state == verbs.Init || e.state == verbs.ReadyToReceive {
		e.run.Fail("requests are sent in RTS", "%v sends PSN %#x of %v in state %d", e, psn, q, e.state)
	}
	q.begun = true
	return q
}

// requests notes a request packet of a reliable connection.
func (e *end) requests(h *roce.Header, payload [][]byte) {
	r, s := e.run, e.out
	if e.gone {
		r.Fail("what is destroyed is silent", "%v sends PSN %#x", e, h.PSN)
	}
	if h.Opcode == roce.WriteOnly && h.DMALength == 0 && h.RKey == 0 {
		return // asks how far the peer is, with the number of another packet
	}
	at := extend(h.PSN, s.next)
	if at > s.next {
		r.Fail("sequence numbers without gaps", "%v sends %#x after %#x", e, h.PSN, (s.next-1)&roce.PSNMask)
	}
	q := e.begins(h.PSN)
	if q == nil {
		r.Fail("what is sent was posted", "%v sends PSN %#x", e, h.PSN)
	}
	n := int64(1)
	if h.Opcode == roce.ReadRequest {
		n = max(1, (int64(h.DMALength)+int64(e.mtu)-1)/int64(e.mtu))
	}
	if at < s.next {
		r.Coverage.Count("packets retransmitted")
		if r.plan.faultless() {
			r.Fail("without faults nothing is sent again", "%v sends %#x again", e, h.PSN)
		}
	}
	if h.Opcode != roce.ReadRequest {
		sum := digest(h, payload)
		if before, ok := s.said[at]; ok && before != sum {
			r.Fail("what is sent again is as before", "%v sends %#x otherwise than it did", e, h.PSN)
		}
		s.said[at] = sum
	}
	s.next = max(s.next, at+n)
}

func digest(h *roce.Header, payload [][]byte) uint64 {
	var hash maphash.Hash
	hash.SetSeed(hashSeed)
	hash.WriteByte(byte(h.Opcode))
	maphash.WriteComparable(&hash, [...]uint64{h.VA, uint64(h.RKey), uint64(h.DMALength), uint64(h.Immediate), uint64(h.InvalidateKey), h.SwapAdd, h.Compare})
	for _, piece := range payload {
		hash.Write(piece)
	}
	return hash.Sum64()
}

// heardRequest notes a request packet that arrives at the end.
func (e *end) heardRequest(p *roce.Received) {
	s := e.peer.out
	if !p.Header.Opcode.IsRequest() || s == nil {
		return
	}
	n := int64(1)
	if p.Header.Opcode == roce.ReadRequest {
		n = max(1, (int64(p.Header.DMALength)+int64(e.mtu)-1)/int64(e.mtu))
	}
	at := extend(p.Header.PSN, s.frontier)
	for i := range n {
		if at+i >= s.frontier {
			s.arrived[at+i] = true
		}
	}
	for s.arrived[s.frontier] {
		delete(s.arrived, s.frontier)
		s.frontier++
	}
}
