package provider

import (
	"bytes"
	"net/netip"

	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/roce"
)

// connectQP completes what the two ends agreed on with our own side and has the
// QP carry packets. listening has it report the peer's first request. m.cmMu is
// held.
func (c *Connector) connectQP(listening bool) {
	m, qp, agreed := c.adapter.miniport, c.qp, c.agreed
	agreed.RemoteQPN = c.remoteQPN
	agreed.InitiatorDepth = int(c.outbound)
	agreed.ResponderResources = int(c.inbound)
	agreed.MinRNRTimer = minRNRTimer
	agreed.Credit = int(m.credit.size)
	flow := roce.Flow{Local: c.local.Addr(), Remote: c.remote.Addr()}
	flow.SourcePort = m.carrier.SourcePort(flow.Local, roce.FlowLabel(qp.number, agreed.RemoteQPN))
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.flow, qp.path = flow, m.pathTo(flow.Remote)
	qp.listening, qp.firstPSN = listening, agreed.ReceivePSN
	if err := qp.rc.Connect(agreed); err != nil {
		qp.clock.Go(c.lost) // a CQ failed since the QP was taken, and with it the QP
	}
}

// Reject refuses a connection: on the passive side a request, on the active side
// the peer's consent, after Connect and before CompleteConnect.
func (c *Connector) Reject(privateData []byte) Status {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
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
	if err := m.cm.Reject(now, c.id, privateData); err != nil {
		return c.abort(StatusConnectionAborted)
	}
	c.enter(refused)
	m.manage(now)
	return StatusSuccess
}

// Disconnect ends the connection: the peer is told, then what is still pending
// on the QP is flushed. It completes with StatusIOTimeout if the peer does not
// answer; the connection is ended all the same.
func (c *Connector) Disconnect(completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
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
	c.qp.acknowledge() // lest the peer learns first that the connection ends
	now := m.clock.Now()
	if err := m.cm.Disconnect(now, c.id); err != nil {
		c.leaveQP() // there is nothing more to tell the peer
		return m.settle(&c.object, completion, context)
	}
	c.begin(request{completion, context})
	m.manage(now)
	return StatusPending
}

// Close ends whatever the connector is in the middle of, flushes its QP if that
// was connected, and closes it.
func (c *Connector) Close(completion CloseCompletion, context any) Status {
	m := c.adapter.miniport
	return c.close(func() {
		m.cmMu.Lock()
		defer m.cmMu.Unlock()
		if c.state == established {
			c.countBroken()
		}
		c.enter(ended)
		c.leaveQP()
		c.complete(StatusCancelled)
		now := m.clock.Now()
		m.cm.Abandon(now, c.id)
		m.manage(now)
	}, func() {
		m.cmMu.Lock()
		defer m.cmMu.Unlock()
		c.forgetID()
		if c.endpoint != nil {
			m.unclaim(c.endpoint)
		}
	}, completion, context)
}

// GetConnectionData returns the effective read limits and what the peer sent
// along with its request, consent or refusal, as the table in ndkpi.md 4.10 has
// it: length holds the size of privateData on entry and the size of the data on
// return. Each pointer but length may be nil. The data is as long as the message
// has room for; the peer's part is followed by zeros.
func (c *Connector) GetConnectionData(inbound, outbound *uint32, privateData []byte, length *uint32) Status {
	c.adapter.miniport.cmMu.Lock()
	defer c.adapter.miniport.cmMu.Unlock()
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

// keepPrivate keeps what a message of the peer's has for the consumer. cmMu is held.
func (c *Connector) keepPrivate(data []byte) {
	c.private, c.privateSize = bytes.Clone(bytes.TrimRight(data, "\x00")), len(data)
}

// LocalAddress is the connection's address on this adapter.
func (c *Connector) LocalAddress() (netip.AddrPort, Status) {
	c.adapter.miniport.cmMu.Lock()
	defer c.adapter.miniport.cmMu.Unlock()
	if !c.local.IsValid() {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return c.local, StatusSuccess
}

// PeerAddress is the connection's address at the peer.
func (c *Connector) PeerAddress() (netip.AddrPort, Status) {
	c.adapter.miniport.cmMu.Lock()
	defer c.adapter.miniport.cmMu.Unlock()
	if !c.remote.IsValid() {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return c.remote, StatusSuccess
}

// handleEvent tells a connector or listener what the connection manager found.
// cmMu is held.
func (m *Miniport) handleEvent(event cm.Event) {
	switch e := event.(type) {
	case cm.ConnectRequest:
		m.endpoints[e.Local].listener.deliver(e) // which refuses has just found there
	case cm.ConnectReply:
		m.withConnector(e.ID, func(c *Connector) { c.handleReply(e) })
	case cm.Rejected:
		m.withConnector(e.ID, func(c *Connector) { c.handleRejected(e) })
	case cm.ConnectFailed:
		m.withConnector(e.ID, func(c *Connector) { c.handleFailure(e.Failure) })
	case cm.AcceptFailed:
		m.withConnector(e.ID, func(c *Connector) { c.handleFailure(e.Failure) })
	case cm.Established:
		m.withConnector(e.ID, func(c *Connector) {
			if c.state == accepting {
				c.handshake = m.clock.Now() - c.askedAt
				c.enter(established)
				c.complete(StatusSuccess)
			}
		})
	case cm.Disconnected:
		m.withConnector(e.ID, func(c *Connector) { c.handleDisconnected(e.Lost) })
	case cm.DisconnectDone:
		m.withConnector(e.ID, func(c *Connector) { c.handleDisconnectDone(e.TimedOut) })
		m.endOrphan(e.ID)
	case cm.TimewaitOver:
		m.qps.release(e.QPN)
		m.withConnector(e.ID, func(c *Connector) { c.forgetID() })
	}
}

func (m *Miniport) withConnector(id cm.ID, f func(*Connector)) {
	if c := m.connectors[id]; c != nil {
		f(c)
	}
}

// forgetID leaves the connection's ID to the connection manager, which may give
// it to another. cmMu is held.
func (c *Connector) forgetID() {
	delete(c.adapter.miniport.connectors, c.id)
	c.id = 0 // no connection's
}

// handleFailure: no answer, or the peer gave up.
func (c *Connector) handleFailure(failure cm.Failure) {
	status := StatusIOTimeout
	if failure == cm.Aborted {
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
// once. cmMu is held.
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
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	now := m.clock.Now()
	m.cm.NoteTraffic(now, c.id)
	m.manage(now)
}

// countBroken counts the error of an established connection that its consumer ends upon
// the failed request's completion, before lost is called (NDK-CNT-04). cmMu is held.
func (c *Connector) countBroken() {
	if c.qp.isBroken() {
		c.adapter.miniport.counters.connectionError.Add(1)
	}
}

// lost ends a connection whose QP has failed: the peer is told, which it may
// not have noticed otherwise, and so is the consumer (ndkpi.md T26).
func (c *Connector) lost() {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	now := m.clock.Now()
	switch c.state {
	case established:
		c.enter(ended)
		m.counters.connectionError.Add(1)
		c.raiseDisconnect(c.qp.failure())
		if err := m.cm.Disconnect(now, c.id); err == nil {
			m.manage(now)
		}
	case accepting:
		c.complete(c.abort(StatusConnectionAborted))
		m.cm.Abandon(now, c.id)
		m.manage(now)
	}
}
