package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// What a connection of ours agrees on with its peer.
const (
	// ackTimeout is 4.096 us x 2^17, 537 ms, as rdma_cm gives it on soft-RoCE
	// (roce.md 12.3). It bounds how long a silent peer is waited for, not how
	// soon a lost packet is sent again: package rc has a timer of its own.
	ackTimeout mad.Timeout = 17
	// retryCount is 6 since rxe takes 7 for ever (roce.md 13, trap 6).
	retryCount = 6
	// rnrRetryCount is for ever: a consumer may post its receives late.
	rnrRetryCount = 7
	// minRNRTimer is the code for 0.64 ms.
	minRNRTimer = 12
)

// connectorState is where a connector stands.
type connectorState uint8

const (
	idle       connectorState = iota
	connecting                // REQ is sent
	replied                   // Connect has completed; CompleteConnect or Reject is next
	requested                 // delivered by a listener; Accept or Reject is next
	accepting                 // REP is sent
	established
	disconnecting
	ended   // was connected, or is closed
	aborted // the peer gave up before it was connected
	refused // by us
)

// String is the state's name for people.
func (s connectorState) String() string {
	return [...]string{"idle", "connecting", "replied", "requested", "accepting", "established",
		"disconnecting", "ended", "aborted", "refused"}[s]
}

// attempting reports whether a connection is being made.
func (s connectorState) attempting() bool { return s >= connecting && s <= accepting }

// enter moves to a state and counts what that means. cmMu is held.
func (c *Connector) enter(s connectorState) {
	counters := &c.adapter.miniport.counters
	switch {
	case c.state == established:
		counters.active.Add(^uint64(0))
		c.qp.mu.Lock()
		c.qp.connected = false
		c.qp.mu.Unlock()
	case s == established && c.state == replied:
		counters.connect.Add(1)
	case s == established:
		counters.accept.Add(1)
	case c.state.attempting() && !s.attempting():
		counters.connectFailure.Add(1)
	}
	if c.state == requested {
		c.listener.undecided--
	}
	c.state = s
	if s == established {
		counters.active.Add(1)
		c.qp.established()
	}
}

// A Connector is one end of a connection. Made by CreateConnector it connects,
// delivered by a Listener it accepts.
type Connector struct {
	object
	Dispatch  ConnectorDispatch // as Adapter.Dispatch
	adapter   *Adapter
	callbacks callbacks
	listener  *Listener // it came from, nil if none

	// Guarded by Miniport.cmMu.
	state             connectorState
	id                cm.ID
	local, remote     netip.AddrPort
	endpoint          *endpoint // whose reference it holds, nil if none
	qp                *QP
	pending           request       // Connect, Accept or Disconnect under way
	agreed            rc.Connection // what is known of it so far
	inbound, outbound uint32        // effective read limits
	private           []byte        // from the peer, as long as the message has room for
	disconnectEvent   DisconnectEvent
	disconnectContext any
}

// request is an asynchronous call that returned StatusPending.
type request struct {
	completion RequestCompletion
	context    any
}

// CreateConnector makes a connector for Connect.
func (a *Adapter) CreateConnector(completion CreateCompletion, context any) (*Connector, Status) {
	c := newConnector(a)
	return created(a.miniport, c, &c.object, completion, context)
}

func newConnector(a *Adapter) *Connector {
	c := &Connector{adapter: a, callbacks: callbacks{clock: a.clock}}
	c.Dispatch = c
	c.init(a.clock, ObjectTypeConnector, &a.object)
	return c
}

// begin makes r the request under way; the object is held until its callback
// has returned. cmMu is held.
func (c *Connector) begin(r request) {
	c.hold()
	c.pending = r
}

// complete ends the request under way, if there is one. cmMu is held.
func (c *Connector) complete(status Status) {
	r := c.pending
	if r.completion == nil {
		return
	}
	c.pending = request{}
	c.callbacks.add(func() {
		r.completion(r.context, status)
		c.release()
	})
}

// take makes qp the connector's. cmMu is held.
func (c *Connector) take(qp *QP) Status {
	if qp == nil || qp.pd.adapter != c.adapter {
		return StatusInvalidParameter
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.rc.State() != rc.Init || qp.connector != nil && qp.connector != c {
		return StatusConnectionActive
	}
	qp.connector = c
	if c.qp != qp { // a refused connector may try again with the same QP
		c.addAntecedent(&qp.object)
		c.qp = qp
	}
	return StatusSuccess
}

// leaveQP ends the connector's use of its QP, if it uses one. A QP that was to
// be connected and never was is left as it was, for use with another connector;
// any other is flushed. cmMu is held.
func (c *Connector) leaveQP() {
	qp := c.qp
	if qp == nil {
		return
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	switch {
	case qp.connector != c: // left before
	case qp.rc.State() == rc.Init:
		qp.connector = nil
	default:
		qp.flush()
	}
}

// Connect asks for a connection from a local address to a peer's. Port 0 has
// an ephemeral port chosen. The read limits are capped to what the adapter and
// the peer allow. When it has completed with StatusSuccess the peer has
// accepted, and CompleteConnect or Reject is next.
func (c *Connector) Connect(qp *QP, source, destination netip.AddrPort, inboundReadLimit, outboundReadLimit uint32,
	privateData []byte, completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	switch {
	case c.state != idle:
		return StatusInvalidDeviceState
	case len(privateData) > int(m.info.MaxCallerData):
		return StatusInvalidBufferSize
	case completion == nil, !destination.IsValid(), destination.Addr().Is4() != source.Addr().Is4():
		return StatusInvalidParameter
	}
	e, status := m.claim(source)
	if status != StatusSuccess {
		return status
	}
	mtu := m.pathMTU(source.Addr())
	if mtu == 0 { // the interface is gone, or too narrow for any packet
		m.unclaim(e)
		return StatusNetworkUnreachable
	}
	if status := c.take(qp); status != StatusSuccess {
		m.unclaim(e)
		return status
	}
	c.inbound = min(inboundReadLimit, m.info.MaxInboundReadLimit)
	c.outbound = min(outboundReadLimit, m.info.MaxOutboundReadLimit)
	c.private = nil
	c.agreed = rc.Connection{
		MTU: mtu, ReceivePSN: m.rand.Uint32() & roce.PSNMask,
		AckTimeout: ackTimeout.Ack(), RetryCount: retryCount,
	}
	now := m.clock.Now()
	id, err := m.cm.Connect(now, cm.ConnectParams{
		Local: e.address, Remote: destination, QPN: qp.number, StartingPSN: c.agreed.ReceivePSN,
		MTU:                roce.MTUCode(mtu),
		ResponderResources: uint8(c.inbound), InitiatorDepth: uint8(c.outbound),
		RetryCount: retryCount, RNRRetryCount: rnrRetryCount, AckTimeout: ackTimeout,
		PrivateData: privateData,
	})
	if err != nil {
		c.leaveQP()
		m.unclaim(e)
		return StatusInvalidParameter
	}
	c.enter(connecting)
	c.id, c.endpoint = id, e
	c.local, c.remote = e.address, destination
	m.connectors[id] = c
	c.begin(request{completion, context})
	m.manage(now)
	return StatusPending
}

// CompleteConnect establishes the connection that the peer has accepted. event,
// which may be nil, is called with eventContext when the peer disconnects or is
// lost. The peer learns of it by the next packet.
func (c *Connector) CompleteConnect(event DisconnectEvent, eventContext any,
	completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	if c.state == aborted {
		return StatusConnectionAborted
	}
	if c.state != replied {
		return StatusConnectionInvalid
	}
	now := m.clock.Now()
	if err := m.cm.CompleteConnect(now, c.id); err != nil {
		c.enter(aborted)
		return StatusConnectionAborted
	}
	c.disconnectEvent, c.disconnectContext = event, eventContext
	// The peer may send when it has the RTU, so the QP comes first.
	c.connectQP(false)
	c.enter(established)
	m.manage(now)
	return m.settle(&c.object, completion, context)
}

// Accept consents to a connection request. It completes when the peer has
// established the connection. event is as with CompleteConnect.
func (c *Connector) Accept(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
	event DisconnectEvent, eventContext any, completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	switch {
	case c.state == aborted:
		return StatusConnectionAborted
	case c.state != requested:
		return StatusInvalidDeviceState
	case len(privateData) > int(m.info.MaxCalleeData):
		return StatusInvalidBufferSize
	case completion == nil:
		return StatusInvalidParameter
	}
	if status := c.take(qp); status != StatusSuccess {
		return status
	}
	c.inbound = min(c.inbound, inboundReadLimit)
	c.outbound = min(c.outbound, outboundReadLimit)
	now := m.clock.Now()
	if err := m.cm.Accept(now, c.id, cm.AcceptParams{
		QPN: qp.number, StartingPSN: c.agreed.ReceivePSN,
		ResponderResources: uint8(c.inbound), InitiatorDepth: uint8(c.outbound),
		RNRRetryCount: rnrRetryCount, PrivateData: privateData,
	}); err != nil {
		c.leaveQP()
		c.enter(aborted)
		return StatusConnectionAborted
	}
	c.disconnectEvent, c.disconnectContext = event, eventContext
	// The peer may send when it has the REP, so the QP comes first.
	c.connectQP(true)
	c.enter(accepting)
	// The listener's endpoint is there still: the listener's close waits for
	// this connector.
	c.endpoint = m.endpoints[c.local]
	c.endpoint.references++
	c.begin(request{completion, context})
	m.manage(now)
	return StatusPending
}
