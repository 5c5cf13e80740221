package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Connect asks for a connection from a local address to a peer's. Port 0 has
// an ephemeral port chosen. The read limits are capped to what the adapter and
// the peer allow. When it has completed with StatusSuccess the peer has
// accepted, and CompleteConnect or Reject is next.
func (c *Connector) Connect(qp *QP, source, destination netip.AddrPort, inboundReadLimit, outboundReadLimit uint32,
	privateData []byte, completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	if status := c.mayConnect(source, destination, privateData, completion); status != StatusSuccess {
		return status
	}
	e, status := m.claim(source)
	if status != StatusSuccess {
		if m.sharedAt(source).leadsTo(destination) {
			return StatusAddressAlreadyExists
		}
		return status
	}
	return c.connect(e, qp, destination, inboundReadLimit, outboundReadLimit, privateData, request{completion, context})
}

// ConnectWithSharedEndpoint is Connect from a shared endpoint. The status is
// StatusAddressAlreadyExists if another connector connects from there to the
// same destination.
func (c *Connector) ConnectWithSharedEndpoint(qp *QP, endpoint *SharedEndpoint, destination netip.AddrPort,
	inboundReadLimit, outboundReadLimit uint32, privateData []byte,
	completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	if endpoint == nil || endpoint.adapter != c.adapter || !endpoint.open() {
		return StatusInvalidParameter
	}
	e := endpoint.endpoint
	if status := c.mayConnect(e.Address, destination, privateData, completion); status != StatusSuccess {
		return status
	}
	if endpoint.leadsTo(destination) {
		return StatusAddressAlreadyExists
	}
	e.Refer()
	return c.connect(e, qp, destination, inboundReadLimit, outboundReadLimit, privateData, request{completion, context})
}

// mayConnect checks what does not depend on the endpoint. The manager's lock is held.
func (c *Connector) mayConnect(source, destination netip.AddrPort, privateData []byte, completion RequestCompletion) Status {
	switch {
	case c.state != idle:
		return StatusInvalidDeviceState
	case len(privateData) > int(c.adapter.miniport.info.MaxCallerData):
		return StatusInvalidBufferSize
	case completion == nil, !destination.IsValid(), destination.Addr().Is4() != source.Addr().Is4():
		return StatusInvalidParameter
	}
	return StatusSuccess
}

// connect asks for a connection from e, of which it takes over a reference.
// The manager's lock is held.
func (c *Connector) connect(e *endpoint, qp *QP, destination netip.AddrPort, inboundReadLimit, outboundReadLimit uint32,
	privateData []byte, r request) Status {
	m := c.adapter.miniport
	mtu, status := m.checkPath(e.Address.Addr(), destination.Addr())
	if status == StatusSuccess {
		status = c.takeQP(qp)
	}
	if status != StatusSuccess {
		m.manager.Release(e)
		return status
	}
	c.endpoint = e
	c.local, c.remote = e.Address, destination
	if s := sharedOf(e); s != nil {
		s.join(c)
	}
	c.reads.take(m, min(inboundReadLimit, m.info.MaxInboundReadLimit), min(outboundReadLimit, m.info.MaxOutboundReadLimit))
	c.private = peerData{}
	c.attempt, c.remoteQPN = &attempt{staleLeft: staleRetries}, 0
	c.agreed = rc.Connection{
		MTU: mtu, ReceivePSN: m.rand.Uint32() & roce.PSNMask,
		AckTimeout: ackTimeout.Ack(), RetryCount: retryCount,
	}
	c.params = cm.ConnectParams{
		Local: c.local, Remote: c.remote, StartingPSN: c.agreed.ReceivePSN,
		MTU:                roce.MTUCode(mtu),
		ResponderResources: uint8(c.reads.inbound), InitiatorDepth: uint8(c.reads.outbound),
		RetryCount: retryCount, RNRRetryCount: rnrRetryCount, AckTimeout: ackTimeout,
		ECE:         m.offer,
		PrivateData: append([]byte(nil), privateData...),
	}
	c.enter(connecting)
	c.sendRequest()
	c.begin(r)
	m.manager.Progress(m.clock.Now())
	return StatusPending
}

// sendRequest sends the request that connect has prepared. The manager's lock is held.
func (c *Connector) sendRequest() {
	m := c.adapter.miniport
	c.params.QPN = c.qp.Number()
	c.askedAt = m.clock.Now()
	id, err := m.manager.CM.Connect(c.askedAt, c.params)
	if err != nil {
		panic(err) // mayConnect lets nothing through that the connection manager minds
	}
	c.id = id
	m.manager.Join(id, conversation{c})
	m.transport.HoldNumber(c.params.QPN)
}

// backToIdle undoes what Connect did.
func (c *Connector) backToIdle() {
	m := c.adapter.miniport
	c.enter(idle)
	c.leaveQP()
	c.forgetID()
	m.manager.Release(c.endpoint)
	c.endpoint = nil
}

// CompleteConnect establishes the connection that the peer has accepted. event,
// which may be nil, is called with eventContext when the peer disconnects or is
// lost. The peer learns of it by the next packet. The status is
// StatusIOTimeout if the peer has waited too long for this call.
func (c *Connector) CompleteConnect(event DisconnectEvent, eventContext any,
	completion RequestCompletion, context any) Status {
	return c.completeConnect(event.withReason(), eventContext, completion, context)
}

// CompleteConnectEx is CompleteConnect with an event that is told the reason. It
// came with version 2.1.
func (c *Connector) CompleteConnectEx(event DisconnectEventEx, eventContext any,
	completion RequestCompletion, context any) Status {
	if !c.hasEx() {
		return StatusNotSupported
	}
	return c.completeConnect(event, eventContext, completion, context)
}

func (c *Connector) completeConnect(event DisconnectEventEx, eventContext any,
	completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	if c.state == aborted {
		return c.failure
	}
	if c.state != replied {
		return StatusConnectionInvalid
	}
	now := m.clock.Now()
	if err := m.manager.CM.CompleteConnect(now, c.id); err != nil {
		return c.abort(StatusConnectionAborted)
	}
	c.disconnect = disconnectCallback{event, eventContext}
	// The peer may send when it has the RTU, so the QP comes first.
	c.connectQP(false)
	c.enter(established)
	m.manager.Progress(now)
	return m.completeRequest(&c.object, completion, context)
}
