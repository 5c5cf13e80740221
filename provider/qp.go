package provider

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// A QP is a queue pair.
type QP struct {
	object
	Dispatch    QPDispatch // as Adapter.Dispatch
	pd          *PD
	receiveCQ   *CQ
	initiatorCQ *CQ
	srq         *SRQ // nil: receives has the queue pair's own
	context     any
	maxSend     int // pieces per request
	maxReceive  int
	maxInline   int

	channel  transport.Channel // its lock guards what follows, too
	receives *rc.ReceiveQueue  // nil with an SRQ
	// connected says that the consumer has been told so: only then may it post
	// initiator requests (ndkpi.md T57). The connection itself may carry
	// packets earlier.
	connected bool
	timedOut  bool       // the error is that the peer did not answer
	failed    bool       // the connector knows of the error, or need not
	broken    bool       // the error came by itself, from no flush
	connector *Connector // the connector this QP is used with, nil if none
	sgl       []rc.SGE   // scratch of posts
	inline    []byte     // scratch of posts
	memory    view
	changes   tokenChanges
	drain     drain
}

// Close flushes what is pending and closes the queue pair.
func (qp *QP) Close(completion CloseCompletion, context any) Status {
	return qp.close(qp.Flush, qp.channel.Retire, completion, context)
}

// Number returns the queue pair's number on the wire. While a Connect is pending it
// may change.
func (qp *QP) Number() uint32 { return qp.miniport().transport.Number(&qp.channel.Pair) }

// Flush cancels every pending request of both queues; they complete with
// StatusCancelled. On a queue pair that was connected it is the beginning of
// the end: it carries nothing any more (ndkpi.md T48).
func (qp *QP) Flush() {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	qp.flush()
}

// progress moves what the state machine has to say. The lock is held.
func (qp *QP) progress() { qp.channel.Progress(qp.clock.Now()) }

func (qp *QP) miniport() *Miniport { return qp.pd.adapter.miniport }

// flush is Flush with qp.channel's lock held.
func (qp *QP) flush() {
	if qp.channel.QP.State() == rc.Init {
		var r rc.Receive
		for qp.srq == nil && qp.receives.Take(&r) {
			qp.complete([]rc.Completion{{Op: rc.OpReceive, Status: rc.Flushed, Context: r.Context, Solicited: true}})
		}
		return
	}
	qp.failed = true // nobody needs to be told
	qp.channel.QP.Flush()
	qp.progress()
}

// established lets the consumer post. handshake is how long the peer took to
// answer when the connection was made.
func (qp *QP) established(handshake time.Duration) {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	qp.channel.StopListening()
	qp.connected = qp.channel.QP.State() == rc.Ready
	qp.channel.QP.ExpectRoundTrip(handshake)
}

// An owner is a queue pair as its channel sees it. It implements transport.Model.
type owner struct{ qp *QP }

// Sent implements transport.Model.
func (o owner) Sent() { o.qp.memory.endUses() }

// Settle implements transport.Model: completions go to the CQs, a failure to the connector.
func (o owner) Settle(completions []rc.Completion) {
	qp := o.qp
	failed := qp.channel.QP.State() == rc.Error
	if failed {
		qp.changes.drop()
	}
	if failed && !qp.failed {
		qp.tellError(causeOf(completions))
	}
	if d := &qp.drain; d.regions > 0 {
		d.heldBack = append(d.heldBack, completions...)
	} else {
		qp.complete(completions)
	}
	if failed {
		if !qp.failed && qp.connector != nil {
			qp.broken = true
			qp.clock.Go(conversation{qp.connector}.handleQPFailure)
		}
		qp.failed = true
	}
}

// Watch implements transport.Model: consumers post by calls.
func (owner) Watch(bool) bool { return false }

// Requested implements transport.Model.
func (o owner) Requested() { o.qp.clock.Go(conversation{o.qp.connector}.noteTraffic) }

// failure returns why the queue pair is in error, as a DisconnectReason.
func (qp *QP) failure() uint32 {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	if qp.timedOut {
		return DisconnectReasonTimeout
	}
	return DisconnectReasonError
}

// isBroken reports whether the queue pair is in error, but not because of a flush.
func (qp *QP) isBroken() bool {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	return qp.broken
}

// halt has the queue pair no longer wait for the peer (transport.Channel.Halt).
func (qp *QP) halt() {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	qp.channel.Halt()
}
