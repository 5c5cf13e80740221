package provider

import (
	"bytes"
	"iter"
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// connectQP completes what the two ends agreed on with our own side and has the
// QP carry packets. listening has it report the peer's first request. The manager's
// lock is held.
func (c *Connector) connectQP(listening bool) {
	qp, agreed := c.qp, c.agreed
	agreed.RemoteQPN = c.remoteQPN
	agreed.InitiatorDepth = int(c.outbound)
	agreed.ResponderResources = int(c.inbound)
	agreed.Rights = rc.AllowRead | rc.AllowWrite // NDKPI has no atomics
	agreed.MinRNRTimer = minRNRTimer
	qp.channel.Lock()
	defer qp.channel.Unlock()
	peer := transport.Peer{Local: c.local.Addr(), Remote: c.remote.Addr(), Announce: listening}
	if err := qp.channel.Connect(peer, agreed, (*rc.QP).Connect); err != nil {
		qp.clock.Go(c.handleQPFailure) // a CQ failed since the QP was taken, and with it the QP
	}
}

// Reject refuses a connection: on the passive side a request, on the active side
// the peer's consent, after Connect and before CompleteConnect.
func (c *Connector) Reject(privateData []byte) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	switch {
	case c.state == aborted:
		return StatusConnectionAborted
	case c.state != requested && c.state != replied:
		return StatusInvalidDeviceState
	case len(privateData) > int(m.info.MaxCalleeData):
		return StatusInvalidBufferSize
	}
	now := m.clock.Now()
	c.leaveQP()
	if err := m.manager.CM.Reject(now, c.id, mad.ReasonConsumer, privateData); err != nil {
		return c.abort(StatusConnectionAborted)
	}
	c.enter(refused)
	m.manager.Progress(now)
	return StatusSuccess
}

// Disconnect ends the connection: the peer is told, then what is still pending
// on the QP is flushed. It completes with StatusIOTimeout if the peer does not
// answer; the connection is ended all the same.
func (c *Connector) Disconnect(completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	if completion == nil {
		return StatusInvalidParameter
	}
	switch c.state {
	case established:
		c.countBroken()
		c.enter(disconnecting)
	case ended:
		// The peer was first.
	default:
		return StatusConnectionInvalid
	}
	c.qp.channel.Acknowledge() // lest the peer learns first that the connection ends
	now := m.clock.Now()
	if err := m.manager.CM.Disconnect(now, c.id); err != nil {
		c.leaveQP() // there is nothing more to tell the peer
		return m.completeRequest(&c.object, completion, context)
	}
	c.begin(request{completion, context})
	m.manager.Progress(now)
	return StatusPending
}

// Close ends whatever the connector is in the middle of, flushes its QP if that
// was connected, and closes it.
func (c *Connector) Close(completion CloseCompletion, context any) Status {
	m := c.adapter.miniport
	return c.close(func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		if c.state == established {
			c.countBroken()
		}
		c.enter(ended)
		c.leaveQP()
		c.complete(StatusCancelled)
		now := m.clock.Now()
		m.manager.CM.Abandon(now, c.id)
		m.manager.Progress(now)
	}, func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		c.forgetID()
		if c.endpoint != nil {
			m.manager.Release(c.endpoint)
		}
	}, completion, context)
}

// GetConnectionData returns the effective read limits and what the peer sent
// along with its request, consent or refusal, as the table in ndkpi.md 4.10 has
// it: length holds the size of privateData on entry and the size of the data on
// return. Each pointer but length may be nil. The data is as long as the message
// has room for; the peer's part is followed by zeros.
func (c *Connector) GetConnectionData(inbound, outbound *uint32, privateData []byte, length *uint32) Status {
	c.adapter.miniport.manager.Lock()
	defer c.adapter.miniport.manager.Unlock()
	switch {
	case length == nil:
		return StatusInvalidParameter
	case c.state == idle && c.privateSize == 0, c.state == connecting:
		return StatusConnectionInvalid
	}
	if inbound != nil {
		*inbound = c.inbound
	}
	if outbound != nil {
		*outbound = c.outbound
	}
	given := *length
	*length = uint32(c.privateSize)
	switch {
	case privateData == nil && given == 0:
		return StatusSuccess
	case privateData == nil || int(given) > len(privateData):
		return StatusInvalidParameter
	}
	room := privateData[:min(int(given), c.privateSize)]
	clear(room[copy(room, c.private):])
	if len(room) < c.privateSize {
		return StatusBufferTooSmall
	}
	return StatusSuccess
}

// setPrivateData keeps what a message of the peer's has for the consumer. The manager's lock is held.
func (c *Connector) setPrivateData(data []byte) {
	c.private, c.privateSize = bytes.Clone(bytes.TrimRight(data, "\x00")), len(data)
}

// LocalAddress returns the connection's address on this adapter.
func (c *Connector) LocalAddress() (netip.AddrPort, Status) {
	c.adapter.miniport.manager.Lock()
	defer c.adapter.miniport.manager.Unlock()
	if !c.local.IsValid() {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return c.local, StatusSuccess
}

// PeerAddress returns the connection's address at the peer.
func (c *Connector) PeerAddress() (netip.AddrPort, Status) {
	c.adapter.miniport.manager.Lock()
	defer c.adapter.miniport.manager.Unlock()
	if !c.remote.IsValid() {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return c.remote, StatusSuccess
}

// conversation is a connector as the connection manager sees it.
type conversation struct{ c *Connector }

// HandleEvent implements gsi.Conversation.
func (v conversation) HandleEvent(event cm.Event) {
	c := v.c
	switch e := event.(type) {
	case cm.ConnectReply:
		c.handleReply(e)
	case cm.Rejected:
		c.handleRejected(e)
	case cm.ConnectFailed:
		c.handleFailure(e.Failure)
	case cm.AcceptFailed:
		c.handleFailure(e.Failure)
	case cm.Established:
		if c.state == accepting {
			c.handshake = c.adapter.miniport.clock.Now() - c.askedAt
			c.enter(established)
			c.complete(StatusSuccess)
		}
	case cm.Disconnected:
		c.handleDisconnected(e.Lost)
	case cm.DisconnectDone:
		c.handleDisconnectDone(e.TimedOut)
	case cm.TimewaitOver:
		c.forgetID()
	}
}

// connectors returns every connector that has a connection, in the order in which they came. The manager's lock is
// held.
func (m *Miniport) connectors() iter.Seq[*Connector] {
	return func(yield func(*Connector) bool) {
		for _, v := range m.manager.Conversations() {
			if v, ok := v.(conversation); ok && !yield(v.c) {
				return
			}
		}
	}
}

// forgetID leaves the connection's ID to the connection manager, which may give
// it to another. The manager's lock is held.
func (c *Connector) forgetID() {
	c.adapter.miniport.manager.Leave(c.id)
	c.id = 0 // no connection's
}

// handleFailure: no answer, or the peer gave up.
func (c *Connector) handleFailure(failure cm.Failure) {
	status := StatusIOTimeout
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
func (c *Connector) handleDisconnected(lost bool) {
	if c.state != established {
		return
	}
	c.enter(ended)
	c.qp.halt()
	reason := DisconnectReasonPeer
	if lost {
		reason = DisconnectReasonForgotten
		c.adapter.miniport.counters.connectionError.Add(1)
	}
	c.raiseDisconnect(reason)
}

// raiseDisconnect calls the consumer's event, as an established connection ends:
// once. The manager's lock is held.
func (c *Connector) raiseDisconnect(reason uint32) {
	event, context := c.disconnectEvent, c.disconnectContext
	if event == nil || !c.holdOpen() {
		return
	}
	c.callbacks.add(func() {
		event(context, reason)
		c.release()
	}, nil)
}

// handleDisconnectDone: the flushed requests are on their CQs before the
// Disconnect completes (ndkpi.md T55), if it was not on our own account (lost).
func (c *Connector) handleDisconnectDone(timedOut bool) {
	c.enter(ended)
	c.leaveQP()
	status := StatusSuccess
	if timedOut {
		status = StatusIOTimeout
	}
	c.complete(status)
}

// noteTraffic takes the peer's first request for the RTU that may be lost.
func (c *Connector) noteTraffic() {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	now := m.clock.Now()
	m.manager.CM.NoteTraffic(now, c.id)
	m.manager.Progress(now)
}

// countBroken counts the error of an established connection that its consumer ends upon
// the failed request's completion, before lost is called (NDK-CNT-04). The manager's lock is held.
func (c *Connector) countBroken() {
	if c.qp.isBroken() {
		c.adapter.miniport.counters.connectionError.Add(1)
	}
}

// handleQPFailure ends a connection whose QP has failed: the peer is told, which it may
// not have noticed otherwise, and so is the consumer (ndkpi.md T26).
func (c *Connector) handleQPFailure() {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	now := m.clock.Now()
	switch c.state {
	case established:
		c.enter(ended)
		m.counters.connectionError.Add(1)
		c.raiseDisconnect(c.qp.failure())
		if err := m.manager.CM.Disconnect(now, c.id); err == nil {
			m.manager.Progress(now)
		}
	case accepting:
		c.complete(c.abort(StatusConnectionAborted))
		m.manager.CM.Abandon(now, c.id)
		m.manager.Progress(now)
	}
}
