// Package uc is the unreliable connection: the state machine of one queue pair that sends and
// writes to one peer without acknowledgements (IBTA Vol. 1, 9.8; roce.md 3.2).
//
// It is pure, as package rc is, whose requests, receives, completions and memory it shares: requests,
// packets and posted receives go in, packets and completions come out. It needs no clock, since it waits
// for nothing.
//
// A message arrives whole or not at all. A packet that is missing ends the message that it was part
// of; the next message that begins is received again. WRITEs may have changed memory by then. A
// request is complete when its last packet has been made.
//
// Start reading at QP; requester.go and responder.go are its two halves.
package uc

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Connection has what the two ends agree on by means of their own.
type Connection struct {
	RemoteQPN  uint32
	MTU        int       // payload bytes per packet: 256, 512, 1024, 2048 or 4096
	ReceivePSN uint32    // of the peer's first packet; one that is missing would cost a message
	Rights     rc.Rights // of the peer: to write
}

// Counters count packets since the QP was made.
type Counters struct {
	Sent, Received uint64
	// OutOfSequence did not follow the one before, so that some were lost. Dropped were part of
	// no message that is being received, or of one that cannot be: for want of a receive, or
	// since it names memory that it may not.
	OutOfSequence, Dropped uint64
}

// A QP is one end of an unreliable connection. Calls must not overlap.
//
// After Post and ConnectToSend there may be packets to send: call Next until it reports false. After
// any call the State may be Error and completions may wait.
type QP struct {
	config      rc.Config
	connection  Connection
	counters    Counters
	state       rc.State
	sends       bool // ConnectToSend has been called
	failed      bool // a request has, since it was or SendAgain
	requester   requester
	responder   responder
	completions []rc.Completion
}

// NewQP makes a QP in state Init. Of the configuration, Early means nothing here.
func NewQP(config rc.Config) *QP {
	q := &QP{config: config}
	q.requester.q, q.responder.q = q, q
	return q
}

// Connect takes the QP from Init to Ready, in which it receives. The error is rc.ErrState or
// rc.ErrMTU.
func (q *QP) Connect(c Connection) error {
	if q.state != rc.Init {
		return rc.ErrState
	}
	if roce.MTUCode(c.MTU) == 0 {
		return fmt.Errorf("%d: %w", c.MTU, rc.ErrMTU)
	}
	q.connection, q.state = c, rc.Ready
	q.responder.expected = c.ReceivePSN & roce.PSNMask
	return nil
}

// ConnectToSend has a QP that is Ready take requests, the first packet of which has the given PSN.
func (q *QP) ConnectToSend(psn uint32) error {
	if q.state != rc.Ready || q.sends {
		return rc.ErrState
	}
	q.sends = true
	q.requester.psn = psn & roce.PSNMask
	return nil
}

// SendFailed reports whether a request has failed (SQE; IBTA Vol. 1, 10.3.1.6). All others were flushed. Post refuses
// requests until SendAgain.
func (q *QP) SendFailed() bool { return q.failed }

// SendAgain lets Post take requests after SendFailed.
func (q *QP) SendAgain() { q.failed = false }

// Post queues a request: to send or write, with immediate data or not, or a local operation.
// Nothing of r is kept. The error is one of package rc's, and then there will be no completion.
func (q *QP) Post(r *rc.Request) error {
	if q.state != rc.Ready || !q.sends || q.failed {
		return rc.ErrState
	}
	return q.requester.post(r)
}

// Handle takes a packet that arrived for this QP, decoded, its ICRC and its addresses checked. Neither
// argument is kept.
func (q *QP) Handle(h *roce.Header, payload []byte) {
	if q.state != rc.Ready || !h.Opcode.IsUC() {
		return
	}
	q.counters.Received++
	q.responder.handle(h, payload)
}

// Next makes the next packet to send in p, reusing the space that p.Payload has; false if there is
// none. The pieces of the payload are the consumer's own memory, as rc.Memory resolves it, or the
// QP's, until the next Post.
func (q *QP) Next(p *roce.Packet) bool {
	p.Payload = p.Payload[:0]
	if q.state != rc.Ready || !q.requester.nextPacket(p) {
		return false
	}
	q.counters.Sent++
	p.Header.PKey = roce.DefaultPKey
	p.Header.DestQPN = q.connection.RemoteQPN
	return true
}

// Pending reports whether a request is not complete.
func (q *QP) Pending() bool { return q.requester.queue.Len() > 0 }

// Begun reports whether packets have been made of a request and more are to come.
func (q *QP) Begun() bool { return q.requester.queue.Len() > 0 && !q.requester.starts }

// Completions appends the completions that wait, oldest first, to dst, and forgets them.
func (q *QP) Completions(dst []rc.Completion) []rc.Completion {
	dst = append(dst, q.completions...)
	clear(q.completions) // of the consumer's contexts
	q.completions = q.completions[:0]
	return dst
}

// SetRights changes what the peer may do, for the messages that begin from now on.
func (q *QP) SetRights(r rc.Rights) { q.connection.Rights = r }

// Flush takes the QP to Error: every request and receive completes Flushed. In Error it flushes the
// receives that were posted since.
func (q *QP) Flush() { q.enterError() }

// State returns the QP's present state.
func (q *QP) State() rc.State { return q.state }

// Counters returns how much the QP has done.
func (q *QP) Counters() Counters { return q.counters }

func (q *QP) enterError() {
	q.state = rc.Error
	q.requester.flush()
	q.responder.flush()
}

func (q *QP) complete(op rc.Op, status rc.Status, context any) *rc.Completion {
	q.completions = append(q.completions, rc.Completion{
		Op: op, Status: status, Context: context, Solicited: status != rc.Success,
	})
	return &q.completions[len(q.completions)-1]
}
