package rc

import (
	"errors"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Connect and Post refuse with these errors. The QP is as before.
var (
	ErrState     = errors.New("not possible in this state")
	ErrFull      = errors.New("as many requests outstanding as the queue is deep")
	ErrSGL       = errors.New("more pieces than agreed")
	ErrInline    = errors.New("more inline data than agreed, or inline where it has no meaning")
	ErrTooLong   = errors.New("longer than a message can be")
	ErrNoReads   = errors.New("the connection allows no reads and no atomics")
	ErrAtomic    = errors.New("an atomic is for an address that is a multiple of 8, and needs 8 bytes for what is there")
	ErrOperation = errors.New("not an operation to request")
	ErrMTU       = errors.New("not an MTU")
)

// MaxMessage is the longest message in bytes (roce.md 5).
const MaxMessage = 1 << 31

// A QP is one end of a reliable connection. Calls must not overlap.
//
// After Post, Handle and HandleTimeout there may be packets to send: call Next
// until it reports false, or until enough are in hand to send, and again when
// those are gone. After any call the State may be Error and completions may
// wait, and Deadline may have changed.
//
// Sequence numbers are carried extended: as int64, whose low 24 bits are the
// PSN, so that only the conversion at the edge knows of the wrap (see extend).
//
// There may be ten thousand that have nothing to do, so what is small stands
// together. A QP has at most 1,272 bytes, which with the 8 that the runtime adds is one of its size classes.
type QP struct {
	config     Config
	connection Connection
	paceDue    time.Duration // when Next is to look again whether the Pacer lets a packet go; 0: it does
	counters   Counters
	state      State
	held       bool // see HoldAcknowledgement
	draining   bool // see Modification
	refusal    Status
	turn       int8 // see Next
	heldBack   bool // Next has held a packet back: see pacing.go
	gathers    bool // see Gather

	requester requester
	responder responder

	completions completions
}

// NewQP makes a QP in state Init. Memory for requests is allocated when there are more at
// once than ever before.
func NewQP(config Config) *QP {
	q := &QP{config: config}
	q.requester.q, q.responder.q = q, q
	q.requester.queue.init(&q.config, &q.completions)
	return q
}

// Connect takes the QP from Init to Ready. The error is ErrState or ErrMTU.
func (q *QP) Connect(c Connection) error {
	if q.state != Init {
		return ErrState
	}
	if roce.MTUCode(c.MTU) == 0 {
		return fmt.Errorf("%d: %w", c.MTU, ErrMTU)
	}
	q.connection = c
	q.state = Ready
	q.requester.connect()
	q.responder.connect()
	return nil
}

// A Sending has the part of a Connection that only the requester needs.
type Sending struct {
	SendPSN                   uint32
	InitiatorDepth            int
	AckTimeout                time.Duration
	RetryCount, RNRRetryCount int
}

// ConnectToSend has a QP take requests that was connected to receive only (RTS).
func (q *QP) ConnectToSend(s Sending) error {
	if q.state != Ready || !q.connection.ReceiveOnly {
		return ErrState
	}
	c := &q.connection
	c.SendPSN, c.InitiatorDepth = s.SendPSN, s.InitiatorDepth
	c.AckTimeout, c.RetryCount, c.RNRRetryCount = s.AckTimeout, s.RetryCount, s.RNRRetryCount
	c.ReceiveOnly = false
	q.requester.connect()
	return nil
}

// ExpectRoundTrip sets the longest that a round trip may take, for a QP that is Ready and has sent no
// request: the time that the peer took to answer when the connection was made. The
// probe timeout follows from it until a packet has been acknowledged.
func (q *QP) ExpectRoundTrip(atMost time.Duration) {
	q.requester.timers.roundTrip.setFirstTimeout(atMost)
}

// Post queues a request. Nothing of r is kept. The error is one of those
// above, and then there will be no completion.
func (q *QP) Post(r *Request) error {
	if q.state != Ready || q.connection.ReceiveOnly {
		return ErrState
	}
	return q.requester.queue.post(r, q.connection.InitiatorDepth)
}

// Handle takes a packet that arrived for this QP, decoded, its ICRC and its
// addresses checked (roce.md 7.1, step 1). Neither argument is kept.
func (q *QP) Handle(now time.Duration, h *roce.Header, payload []byte) {
	if q.state != Ready {
		return
	}
	q.counters.Received++
	switch {
	case h.Opcode.IsRequest():
		q.responder.handle(h, payload)
	case q.connection.ReceiveOnly: // nothing was asked for
	case h.Opcode.IsResponse():
		if len(payload) > 0 && !h.Opcode.IsReadResponse() {
			q.counters.BadLengths++
			return
		}
		q.requester.handle(now, h, payload)
		q.requester.checkOldest()
	}
}

// FinishPlacing copies what Config.Place has put off. It is to be called before the payloads are reused that Handle was
// given. A message of which something cannot be copied fails when the rest of it arrives.
func (q *QP) FinishPlacing() { q.config.settle() }

// burst bounds the packets in a row that Next takes from one half of the QP while
// the other has some too: enough for a carrier to merge, few enough not to
// starve the other.
const burst = 16

// Next makes the next packet to send in p, reusing the space that p.Payload
// has; false if there is none now. The pieces of the payload are the
// consumer's own memory, as Memory resolves it.
//
// Local operations are performed on the way, when their turn comes: also if
// there is nothing to send.
//
// An acknowledgement goes first, unless responses to READs go before it
// (roce.md 7.2). Those and requests take turns.
func (q *QP) Next(now time.Duration, p *roce.Packet) bool {
	p.Payload = p.Payload[:0]
	sent := false
	q.beginPacing(now)
	switch {
	case q.state == Init:
	case q.state == Error:
		sent = q.responder.nextPacket(p) // what the peer must still be told
	case q.responder.acknowledgementIsNext():
		if !q.held || !q.responder.onlyAcknowledges() || q.responder.told && q.requester.queue.mayBeRefused() {
			sent = q.responder.nextPacket(p) || q.requester.nextPacket(now, p)
			break
		}
		sent = q.requester.nextPacket(now, p)
	case q.turn < burst:
		sent = q.responder.nextPacket(p) || q.requester.nextPacket(now, p)
	default:
		sent = q.requester.nextPacket(now, p) || q.responder.nextPacket(p)
	}
	if !sent && q.state == Error { // of late: the first request could not be carried out
		sent = q.responder.nextPacket(p)
	}
	if !sent {
		return false
	}
	q.turn = (q.turn + 1) % (2 * burst)
	q.counters.Sent++
	p.Header.PKey = roce.DefaultPKey
	p.Header.DestQPN = q.connection.RemoteQPN
	q.noteSent(now, p)
	return true
}

// HoldAcknowledgement has Next make no acknowledgement, until it is called with false. Next
// still makes everything else, NAKs too. A request that the peer may refuse, since it
// names memory, does not overtake the acknowledgement of a message whose receive has
// completed: the consumer may be answering that message, and a refusal would end the connection
// and cancel what the peer has sent.
func (q *QP) HoldAcknowledgement(hold bool) { q.held = hold }

// AcknowledgementPending reports whether an acknowledgement waits.
func (q *QP) AcknowledgementPending() bool {
	return q.state == Ready && q.responder.replies.acknowledgementPending()
}

// Deadline returns when HandleTimeout is to be called; false if there is no need.
func (q *QP) Deadline() (time.Duration, bool) {
	if q.state != Ready {
		return 0, false
	}
	at, ok := q.paceDeadline()
	if r := &q.requester; r.queue.isOutstanding() {
		if timeout, set := r.timers.deadline(&q.connection, r.queue.next > r.queue.una); set && (!ok || timeout < at) {
			at, ok = timeout, true
		}
	}
	return at, ok
}

// HandleTimeout does what Deadline announced, if it has passed. Packets
// that have arrived are to be handled first, or it may resend in vain.
func (q *QP) HandleTimeout(now time.Duration) {
	if q.state == Ready {
		q.requester.handleTimeout(now)
	}
}

// PostponeGivingUp has the QP give up later by d, the time for which nobody was there to hear the peer. Packets
// in flight are no measure of the round trip then.
func (q *QP) PostponeGivingUp(d time.Duration) {
	q.requester.window.timed = 0
	q.requester.timers.postponeGivingUp(d)
}

// Completions appends the completions that wait, oldest first, to dst, and
// forgets them.
func (q *QP) Completions(dst []Completion) []Completion { return q.completions.take(dst) }

// Flush takes the QP to Error, silently: every request and receive completes
// Flushed, and the peer is told nothing but an acknowledgement that was put off. In Error it
// flushes the receives that were posted since.
func (q *QP) Flush() {
	if q.state != Error {
		q.responder.clearReplies()
	}
	q.enterError()
}

// Refusal returns the status with which a request of the peer was refused, which ended the connection; Success if none
// was.
func (q *QP) Refusal() Status { return q.refusal }

// State returns the QP's present state.
func (q *QP) State() State { return q.state }

// Counters returns how much the QP has done.
func (q *QP) Counters() Counters { return q.counters }

// enterError flushes whatever has not been completed with another status.
func (q *QP) enterError() {
	q.state = Error
	q.requester.queue.flush()
	q.responder.flush()
	if q.requester.spare != nil {
		q.requester.spare.responses.clear()
	}
	if q.responder.early != nil {
		q.responder.early.clear()
	}
	q.requester.scoreboard, q.requester.spare, q.responder.early = nil, nil, nil
	q.responder.replies.reports = reports{}
}

// completions are those that wait for the consumer, oldest first.
type completions []Completion

// add makes a completion, to which its maker may add. It is written where it
// stays: a copy of what has just been written in smaller pieces would have to wait
// until these are in the processor's cache.
func (l *completions) add(op Op, status Status, context any) *Completion {
	*l = append(*l, Completion{})
	c := &(*l)[len(*l)-1]
	c.Op, c.Status, c.Context = op, status, context
	c.Solicited = status != Success // roce.md 7.6
	return c
}

// take appends the completions to dst, and forgets them.
func (l *completions) take(dst []Completion) []Completion {
	dst = append(dst, *l...)
	clear(*l) // of the consumer's contexts
	*l = (*l)[:0]
	return dst
}

// extend returns the extended sequence number with the given PSN that is nearest to
// near.
func extend(psn uint32, near int64) int64 {
	return near + int64(roce.PSNDiff(psn, uint32(near)))
}

// psn returns the PSN of an extended sequence number.
func psn(sequence int64) uint32 { return uint32(sequence) & roce.PSNMask }
