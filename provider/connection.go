package provider

import (
	"iter"
	"net/netip"

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
	agreed.InitiatorDepth = int(c.reads.outbound)
	agreed.ResponderResources = int(c.reads.inbound)
	agreed.Rights = rc.AllowRead | rc.AllowWrite // NDKPI has no atomics
	agreed.MinRNRTimer = minRNRTimer
	qp.channel.Lock()
	defer qp.channel.Unlock()
	peer := transport.Peer{Local: c.local.Addr(), Remote: c.remote.Addr(), Announce: listening}
	if err := qp.channel.Connect(peer, agreed); err != nil {
		qp.clock.Go(conversation{c}.handleQPFailure) // a CQ failed since the QP was taken, and with it the QP
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
	case c.state == idle && c.private.size == 0, c.state == connecting:
		return StatusConnectionInvalid
	}
	if inbound != nil {
		*inbound = c.reads.inbound
	}
	if outbound != nil {
		*outbound = c.reads.outbound
	}
	return c.private.give(privateData, length)
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

// countBroken counts the error of an established connection that its consumer ends upon
// the failed request's completion, before lost is called (NDK-CNT-04). The manager's lock is held.
func (c *Connector) countBroken() {
	if c.qp.isBroken() {
		c.adapter.miniport.counters.own.ConnectionError.Add(1)
	}
}
