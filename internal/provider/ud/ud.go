// Package ud is the unreliable datagram: the state machine of one queue pair that sends to, and
// receives from, any others (IBTA Vol. 1, 9.8; roce.md 3.2).
//
// It is pure, as package rc is, whose receives and memory it shares: requests, packets and posted
// receives go in, packets and completions come out. It needs no clock, since it waits for nothing.
// A message is a packet, which arrives whole or not at all. A request is complete when its packet has
// been made.
//
// Start reading at QP.
package ud

import (
	"errors"
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/ring"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// ErrTooLong refuses a message that is longer than a packet's payload may be.
var ErrTooLong = errors.New("longer than the path MTU")

// A Request is one message to be sent.
type Request struct {
	Context      any
	SGL          []rc.SGE
	Inline       []byte // the payload itself instead of SGL; copied by the post
	Flow         roce.Flow
	Class        uint8  // traffic class of the packet
	QPN          uint32 // the receiver's
	QKey         uint32 // the receiver's; with the highest bit set, the sender's own stands in for it
	Immediate    uint32
	HasImmediate bool
	Silent       bool // success makes no completion
	Solicited    bool
}

// A Completion is the end of a request or a receive.
type Completion struct {
	rc.Completion        // of a receive: Bytes counts the GRH, too
	SourceQPN     uint32 // of a receive
	IPv4          bool   // the packet of a receive came by IPv4
}

// Counters count packets since the QP was made.
type Counters struct {
	Sent, Received uint64
	// Dropped had another Q_Key, or found no receive, or one that is too short.
	Dropped uint64
}

// A QP sends and receives datagrams. Calls must not overlap.
//
// After Post there may be packets to send: call Next until it reports false. After any call the State
// may be Error and completions may wait.
type QP struct {
	config      rc.Config
	mtu         int
	number      uint32
	qkey        uint32
	psn         uint32 // of the next packet
	state       rc.State
	sends       bool // ConnectToSend has been called
	failed      bool // a request has, since it was or SendAgain
	counters    Counters
	completions []Completion

	queue   ring.Ring[request]
	receive rc.Receive // the oldest, if it is taken
	taken   bool
	ranges  [][]byte // scratch
}

// A request is one slot of the send queue: a copy of what was posted.
type request struct {
	Request
	length  int
	inlined bool
}

// NewQP makes a QP in state Init, with the number that its packets are to name, for messages of up to
// mtu bytes. Of the configuration, Early means nothing here.
func NewQP(config rc.Config, number uint32, mtu int) *QP {
	return &QP{config: config, number: number, mtu: mtu}
}

// SetQKey sets the key with which others may send to the QP.
func (q *QP) SetQKey(key uint32) { q.qkey = key }

// Connect takes the QP from Init to Ready, in which it receives.
func (q *QP) Connect() error {
	if q.state != rc.Init {
		return rc.ErrState
	}
	q.state = rc.Ready
	return nil
}

// ConnectToSend has a QP that is Ready take requests, the first packet of which has the given PSN.
func (q *QP) ConnectToSend(psn uint32) error {
	if q.state != rc.Ready || q.sends {
		return rc.ErrState
	}
	q.sends, q.psn = true, psn&roce.PSNMask
	return nil
}

// SendFailed reports whether a request has failed (SQE; IBTA Vol. 1, 10.3.1.6). All others were flushed. Post refuses
// requests until SendAgain.
func (q *QP) SendFailed() bool { return q.failed }

// SendAgain lets Post take requests after SendFailed.
func (q *QP) SendAgain() { q.failed = false }

// Post queues a request. Nothing of r is kept. The error is ErrTooLong or one of package rc's, and then
// there will be no completion.
func (q *QP) Post(r *Request) error {
	length := len(r.Inline)
	if r.Inline == nil {
		if n := rc.LengthOf(r.SGL); n <= int64(q.mtu) {
			length = int(n)
		} else {
			return ErrTooLong
		}
	}
	switch {
	case q.state != rc.Ready || !q.sends || q.failed:
		return rc.ErrState
	case len(r.Inline) > q.config.MaxInline:
		return rc.ErrInline
	case length > q.mtu:
		return ErrTooLong
	case r.Inline == nil && len(r.SGL) > q.config.MaxSGE:
		return rc.ErrSGL
	case q.queue.Len() == q.config.SendDepth:
		return rc.ErrFull
	}
	w := q.queue.Add(q.config.SendDepth)
	sgl, inline := append(w.SGL[:0], r.SGL...), append(w.Inline[:0], r.Inline...)
	w.Request = *r
	w.SGL, w.Inline, w.inlined, w.length = sgl, inline, r.Inline != nil, length
	return nil
}

// Destination returns where the next packet goes; false if there is none.
func (q *QP) Destination() (remote netip.Addr, qpn uint32, ok bool) {
	if q.state != rc.Ready || q.queue.Len() == 0 {
		return remote, 0, false
	}
	w := q.queue.Oldest()
	return w.Flow.Remote, w.QPN, true
}

// Next makes the next packet to send in p, reusing the space that p.Payload has, and says by which flow;
// false if there is none. The pieces of the payload are the consumer's own memory, as rc.Memory resolves
// it, or the QP's, until the next Post.
func (q *QP) Next(p *roce.Packet) (flow roce.Flow, ok bool) {
	p.Payload = p.Payload[:0]
	if q.state != rc.Ready || q.queue.Len() == 0 {
		return flow, false
	}
	w := q.queue.Oldest()
	if w.inlined {
		if w.length > 0 {
			p.Payload = append(p.Payload, w.Inline)
		}
	} else {
		var from rc.Position
		if p.Payload, ok = from.Resolve(p.Payload, q.config.Memory, w.SGL, 0, w.length, rc.LocalRead); !ok {
			q.finish(rc.LocalProtection)
			q.flush()
			q.failed = true
			return flow, false
		}
	}
	p.Header = roce.Header{
		Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: w.QPN, PSN: q.psn,
		SourceQPN: q.number, QKey: w.QKey, Solicited: w.Solicited,
	}
	if w.QKey&ownQKey != 0 {
		p.Header.QKey = q.qkey
	}
	if w.HasImmediate {
		p.Header.Opcode, p.Header.Immediate = roce.UDSendOnlyImm, w.Immediate
	}
	p.Class = w.Class
	q.psn = roce.PSNAdd(q.psn, 1)
	q.counters.Sent++
	flow = w.Flow
	q.finish(rc.Success)
	return flow, true
}

// ownQKey is the bit of a request's Q_Key that has the QP's own sent (IBTA Vol. 1, 10.2.5).
const ownQKey = 1 << 31

// finish completes the oldest request.
func (q *QP) finish(status rc.Status) {
	w := q.queue.Oldest()
	if status != rc.Success || !w.Silent {
		op := rc.OpSend
		if w.HasImmediate {
			op = rc.OpSendImmediate
		}
		q.complete(op, status, w.Context)
	}
	w.Context = nil
	q.queue.Drop()
}

// Handle takes a packet that arrived for this QP with a traffic class, decoded, its ICRC checked: a UD SEND. No
// argument is kept. A packet that cannot be received is dropped, as rxe does it: the sender cannot be told, and must
// not end a QP that others use.
func (q *QP) Handle(flow *roce.Flow, class uint8, h *roce.Header, payload []byte) {
	if q.state != rc.Ready {
		return
	}
	q.counters.Received++
	if h.QKey != q.qkey || !q.receives(flow, class, h, payload) {
		q.counters.Dropped++
	}
}

// receives places a packet in the oldest receive; false if there is none, or no room in it.
func (q *QP) receives(flow *roce.Flow, class uint8, h *roce.Header, payload []byte) bool {
	if !q.taken {
		q.taken = q.config.Receives.Take(&q.receive)
	}
	// A receive that is too short waits for a packet that fits.
	if !q.taken || int64(roce.GRHLen+len(payload)) > rc.LengthOf(q.receive.SGL) {
		return false
	}
	var to rc.Position
	grh := roce.GRH(flow, class, h.Opcode, len(payload))
	if !q.place(&to, grh[:]) || !q.place(&to, payload) {
		q.finishReceive(rc.LocalProtection)
		q.enterError()
		return true
	}
	c := q.finishReceive(rc.Success)
	c.Bytes, c.Solicited, c.SourceQPN, c.IPv4 = uint32(roce.GRHLen+len(payload)), h.Solicited, h.SourceQPN, flow.Local.Is4()
	if h.Opcode.HasImmediate() {
		c.Op, c.Immediate = rc.OpReceiveImmediate, h.Immediate
	}
	return true
}

// place puts data where the receive has its next bytes; false if its memory refuses.
func (q *QP) place(to *rc.Position, data []byte) (ok bool) {
	q.ranges, ok = to.Resolve(q.ranges[:0], q.config.Memory, q.receive.SGL, to.Offset(), len(data), rc.LocalWrite)
	return ok && q.config.Scatter(q.ranges, data, true)
}

// finishReceive completes the receive that is taken.
func (q *QP) finishReceive(status rc.Status) *Completion {
	context := q.receive.Context
	q.receive.Context = nil
	q.taken = false
	return q.complete(rc.OpReceive, status, context)
}

func (q *QP) complete(op rc.Op, status rc.Status, context any) *Completion {
	q.completions = append(q.completions, Completion{Completion: rc.Completion{
		Op: op, Status: status, Context: context, Solicited: status != rc.Success,
	}})
	return &q.completions[len(q.completions)-1]
}

// Completions appends the completions that wait, oldest first, to dst, and forgets them.
func (q *QP) Completions(dst []Completion) []Completion {
	dst = append(dst, q.completions...)
	clear(q.completions) // of the consumer's contexts
	q.completions = q.completions[:0]
	return dst
}

// Flush takes the QP to Error: every request and receive completes Flushed. In Error it flushes the
// receives that were posted since.
func (q *QP) Flush() { q.enterError() }

// flush ends every request.
func (q *QP) flush() {
	for q.queue.Len() > 0 {
		q.finish(rc.Flushed)
	}
}

func (q *QP) enterError() {
	q.state = rc.Error
	q.flush()
	if q.taken {
		q.finishReceive(rc.Flushed)
	}
	for !q.config.SharedReceives && q.config.Receives.Take(&q.receive) {
		q.finishReceive(rc.Flushed)
	}
}

// State returns the QP's present state.
func (q *QP) State() rc.State { return q.state }

// Counters returns how much the QP has done.
func (q *QP) Counters() Counters { return q.counters }
