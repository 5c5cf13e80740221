package provider

import (
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A conversation is a connector as the connection manager and its queue pair see it: what they find out about the
// connection is done here. Where nothing else is said the manager's lock is held.
type conversation struct{ c *Connector }

// HandleEvent implements gsi.Conversation.
func (v conversation) HandleEvent(event cm.Event) {
	c := v.c
	switch e := event.(type) {
	case cm.ConnectReply:
		v.handleReply(e)
	case cm.Rejected:
		v.handleRejected(e)
	case cm.ConnectFailed:
		v.handleFailure(e.Failure)
	case cm.AcceptFailed:
		v.handleFailure(e.Failure)
	case cm.Established:
		if c.state == accepting {
			c.handshake = c.adapter.miniport.clock.Now() - c.askedAt
			c.enter(established)
			c.complete(StatusSuccess)
		}
	case cm.Disconnected:
		v.handleDisconnected(e.Lost)
	case cm.DisconnectDone:
		v.handleDisconnectDone(e.TimedOut)
	case cm.TimewaitOver:
		c.forgetID()
	}
}

// handleReply: the peer has accepted.
func (v conversation) handleReply(e cm.ConnectReply) {
	c := v.c
	if c.state != connecting {
		return
	}
	c.enter(replied)
	c.handshake = c.adapter.miniport.clock.Now() - c.askedAt
	c.private.set(e.PrivateData[:])
	c.reads.lower(c.adapter.miniport.ledger, uint32(e.InitiatorDepth), uint32(e.ResponderResources))
	c.remoteQPN, c.agreed.SendPSN = e.QPN, e.StartingPSN
	c.agreed.RNRRetryCount = int(e.RNRRetryCount)
	c.agreed.AckDelay = e.TargetAckDelay.Ack()
	c.agreed.Selective = c.params.ECE == offered && e.ECE == agreedTo
	c.complete(StatusSuccess)
}

// handleRejected: a refused connector may try again.
func (v conversation) handleRejected(e cm.Rejected) {
	c := v.c
	if c.state != connecting || e.Reason == mad.ReasonStaleConnection && v.retryWithNewNumber() ||
		v.retryWithSmallerMTU(e.MTU) {
		return
	}
	if e.Reason == mad.ReasonConsumer {
		c.private.set(e.PrivateData[:])
	}
	c.backToIdle()
	c.complete(statusOfRejection(e.Reason))
}

// statusOfRejection returns the status of a Connect that was refused for a reason (roce.md 15.2).
func statusOfRejection(r mad.Reason) Status {
	switch r {
	case mad.ReasonTimeout:
		// The peer has accepted, and none of its replies has come through.
		return StatusIOTimeout
	case mad.ReasonInvalidGID, mad.ReasonInvalidLID, mad.ReasonInvalidSL, mad.ReasonInvalidTrafficClass,
		mad.ReasonInvalidHopLimit, mad.ReasonInvalidPacketRate, mad.ReasonInvalidFlowLabel:
		// The peer has no way back to us, or none that it wants to use.
		return StatusHostUnreachable
	}
	return StatusConnectionRefused
}

// staleRetries bounds the repetitions of a request that the peer calls stale: the
// peer takes our queue pair's number for that of a connection which it believes to
// be up, and is done with that connection then (roce.md 11). A device that has
// started anew may have used a few numbers before. rdma_cm leaves asking again to
// its users, who use another queue pair (roce.md 15.2); ours do not see the reason.
const staleRetries = 8

// retryWithNewNumber repeats a request under another queue pair number; false if there
// is none left. The manager's lock is held.
func (v conversation) retryWithNewNumber() bool {
	c := v.c
	m := c.adapter.miniport
	if c.staleLeft == 0 || !m.transport.Renumber(&c.qp.channel.Pair) {
		return false
	}
	c.staleLeft--
	c.forgetID()
	c.sendRequest()
	return true
}

// retryWithSmallerMTU repeats a request with the smaller MTU that the peer names (IBA
// 12.6.7.2); false if it names none. The queue pair gets another number, since a
// copy of the first request that comes late would make the peer take the new
// connection, under the same number, for stale. The manager's lock is held.
func (v conversation) retryWithSmallerMTU(mtu uint8) bool {
	c := v.c
	if mtu == 0 || mtu >= c.params.MTU || !c.adapter.miniport.transport.Renumber(&c.qp.channel.Pair) {
		return false
	}
	c.params.MTU, c.agreed.MTU = mtu, roce.MTUOfCode(mtu)
	c.forgetID()
	c.sendRequest()
	return true
}

// handleFailure: no answer, or the peer gave up.
func (v conversation) handleFailure(failure cm.Failure) {
	c, status := v.c, StatusIOTimeout
	if failure != cm.TimedOut {
		status = StatusConnectionAborted
	}
	if c.state == connecting {
		c.backToIdle()
	} else {
		c.abort(status)
		c.leaveQP()
	}
	c.complete(status)
}

// handleDisconnected: the peer ended the connection, or has forgotten it. The
// QP's requests stay (NDK-DISC-03).
func (v conversation) handleDisconnected(lost bool) {
	c := v.c
	if c.state != established {
		return
	}
	c.enter(ended)
	c.qp.halt()
	reason := DisconnectReasonPeer
	if lost {
		reason = DisconnectReasonForgotten
		c.adapter.miniport.counters.own.ConnectionError.Add(1)
	}
	c.disconnect.call(c, reason)
}

// handleDisconnectDone: the flushed requests are on their CQs before the
// Disconnect completes (ndkpi.md T55), if it was not on our own account (lost).
func (v conversation) handleDisconnectDone(timedOut bool) {
	c := v.c
	c.enter(ended)
	c.leaveQP()
	status := StatusSuccess
	if timedOut {
		status = StatusIOTimeout
	}
	c.complete(status)
}

// noteTraffic takes the peer's first request for the RTU that may be lost. The manager's lock is not held.
func (v conversation) noteTraffic() {
	c := v.c
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	now := m.clock.Now()
	m.manager.CM.NoteTraffic(now, c.id)
	m.manager.Progress(now)
}

// handleQPFailure ends a connection whose QP has failed: the peer is told, which it may
// not have noticed otherwise, and so is the consumer (ndkpi.md T26). The manager's lock is not held.
func (v conversation) handleQPFailure() {
	c := v.c
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	now := m.clock.Now()
	switch c.state {
	case established:
		c.enter(ended)
		m.counters.own.ConnectionError.Add(1)
		c.disconnect.call(c, c.qp.failure())
		if err := m.manager.CM.Disconnect(now, c.id); err == nil {
			m.manager.Progress(now)
		}
	case accepting:
		c.complete(c.abort(StatusConnectionAborted))
		m.manager.CM.Abandon(now, c.id)
		m.manager.Progress(now)
	}
}
