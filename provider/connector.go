package provider

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Values that a connection of ours agrees on with its peer.
const (
	// ackTimeout is 4.096 us x 2^17, 537 ms, as rdma_cm gives it on soft-RoCE
	// (roce.md 12.3). It bounds how long a silent peer is waited for, not how
	// soon a lost packet is sent again: package rc has a timer of its own.
	ackTimeout mad.Timeout = 17
	// maxAckTimeout is 4.096 us x 2^21, 8.6 s, of which each retry takes as much.
	maxAckTimeout mad.Timeout = 21
	// retryCount is 6 since rxe takes 7 for ever (roce.md 13, trap 6).
	retryCount = 6
	// rnrRetryCount is for ever: a consumer may post its receives late.
	rnrRetryCount = 7
	// minRNRTimer is the code for 0.64 ms.
	minRNRTimer = 12
	// foreignAckDelay bounds the time that a peer which may not be of our kind may
	// take to acknowledge: 134 ms, as Linux says when it is the server (roce.md 13).
	// A REQ does not say it.
	foreignAckDelay mad.Timeout = 15
)

// A connectorState is the state of a connector.
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

// String returns the state's name for people.
func (s connectorState) String() string {
	return [...]string{"idle", "connecting", "replied", "requested", "accepting", "established",
		"disconnecting", "ended", "aborted", "refused"}[s]
}

// attempting reports whether a connection is being made.
func (s connectorState) attempting() bool { return s >= connecting && s <= accepting }

// live reports whether a connection is being made, up or being ended by us.
func (s connectorState) live() bool { return s >= connecting && s <= disconnecting }

// enter moves to a state and counts what that means. The manager's lock is held.
func (c *Connector) enter(s connectorState) {
	counters := c.adapter.miniport.counters.own
	switch {
	case c.state == established:
		counters.Active.Add(^uint64(0))
		c.qp.channel.Lock()
		c.qp.connected = false
		c.qp.channel.Unlock()
	case s == established && (c.state == replied || c.state == idle): // idle: ConnectUnmanaged
		counters.Connect.Add(1)
	case s == established:
		counters.Accept.Add(1)
	case c.state.attempting() && !s.attempting():
		counters.ConnectFailure.Add(1)
	}
	if c.state == requested {
		c.listener.undecided--
	}
	if c.state.live() && !s.live() {
		c.reads.giveBack(c.adapter.miniport.ledger)
		c.shared.leave(c)
	}
	c.state = s
	if s == established {
		counters.Active.Add(1)
		c.qp.established(c.handshake)
	}
	if !s.attempting() {
		c.attempt = nil
	}
}

// abort notes that the peer gave up before the connection was established, and
// returns the status that says so. The manager's lock is held.
func (c *Connector) abort(status Status) Status {
	c.enter(aborted)
	c.failure = status
	return status
}

// A Connector is one end of a connection. Made by CreateConnector it connects,
// delivered by a Listener it accepts.
type Connector struct {
	object
	Dispatch  ConnectorDispatch // as Adapter.Dispatch
	adapter   *Adapter
	callbacks callbacks
	listener  *Listener // it came from, nil if none

	// Guarded by the lock of Miniport.manager.
	state         connectorState
	id            cm.ID
	local, remote netip.AddrPort
	endpoint      *endpoint       // whose reference it holds, nil if none
	shared        *SharedEndpoint // that Connect was called with last, nil if none
	qp            *QP
	pending       request // Connect, Accept or Disconnect under way
	*attempt              // nil unless state.attempting()
	remoteQPN     uint32  // as far as known
	reads         readLimits
	private       peerData
	disconnect    disconnectCallback
	failure       Status // why the state is aborted
}

// An attempt describes a connection as long as it is being made.
type attempt struct {
	agreed    rc.Connection
	askedAt   time.Duration    // when the REQ or REP was sent first
	handshake time.Duration    // until the peer answered
	params    cm.ConnectParams // of Connect
	staleLeft int              // how often to ask again when the peer says it is stale
}

// request is an asynchronous call that returned StatusPending.
type request struct {
	completion RequestCompletion
	context    any
}

// CreateConnector makes a connector for Connect.
func (a *Adapter) CreateConnector(completion CreateCompletion, context any) (*Connector, Status) {
	if !a.open() {
		return nil, StatusInvalidDeviceState
	}
	c := newConnector(a)
	return completeCreate(a.miniport, c, &c.object, completion, context)
}

func newConnector(a *Adapter) *Connector {
	c := &Connector{adapter: a, callbacks: callbacks{clock: a.clock}}
	c.Dispatch = c
	c.init(a.clock, ObjectTypeConnector, &a.object)
	return c
}

// begin makes r the request under way; the object is held until its callback
// has returned. The manager's lock is held.
func (c *Connector) begin(r request) {
	c.hold()
	c.pending = r
}

// complete ends the request under way, if there is one. The manager's lock is held.
func (c *Connector) complete(status Status) {
	r := c.pending
	if r.completion == nil {
		return
	}
	c.pending = request{}
	c.callbacks.add(func() {
		r.completion(r.context, status)
		c.release()
	}, nil)
}

// takeQP makes qp the connector's. The manager's lock is held.
func (c *Connector) takeQP(qp *QP) Status {
	if qp == nil || qp.pd.adapter != c.adapter || !qp.open() {
		return StatusInvalidParameter
	}
	qp.channel.Lock()
	defer qp.channel.Unlock()
	if qp.channel.QP.State() != rc.Init || qp.connector != nil && qp.connector != c {
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
// any other is flushed. The manager's lock is held.
func (c *Connector) leaveQP() {
	qp := c.qp
	if qp == nil {
		return
	}
	qp.channel.Lock()
	defer qp.channel.Unlock()
	switch {
	case qp.connector != c: // left before
	case qp.channel.QP.State() == rc.Init:
		qp.connector = nil
	default:
		qp.flush()
	}
}

// Accept consents to a connection request. It completes when the peer has
// established the connection. event is as with CompleteConnect.
func (c *Connector) Accept(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
	event DisconnectEvent, eventContext any, completion RequestCompletion, context any) Status {
	return c.accept(qp, inboundReadLimit, outboundReadLimit, privateData,
		event.withReason(), eventContext, completion, context)
}

// AcceptEx is Accept with an event that is told the reason. It came with version
// 2.1.
func (c *Connector) AcceptEx(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
	event DisconnectEventEx, eventContext any, completion RequestCompletion, context any) Status {
	if !c.hasEx() {
		return StatusNotSupported
	}
	return c.accept(qp, inboundReadLimit, outboundReadLimit, privateData, event, eventContext, completion, context)
}

func (c *Connector) accept(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
	event DisconnectEventEx, eventContext any, completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
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
	if status := c.takeQP(qp); status != StatusSuccess {
		return status
	}
	c.reads.take(m, min(c.reads.inbound, inboundReadLimit), min(c.reads.outbound, outboundReadLimit))
	now := m.clock.Now()
	if err := m.manager.CM.Accept(now, c.id, cm.AcceptParams{
		QPN: qp.Number(), StartingPSN: c.agreed.ReceivePSN,
		ResponderResources: uint8(c.reads.inbound), InitiatorDepth: uint8(c.reads.outbound),
		RNRRetryCount: rnrRetryCount, ECE: extensionAnswer(c.agreed.Selective), PrivateData: privateData,
	}); err != nil {
		c.leaveQP()
		return c.abort(StatusConnectionAborted)
	}
	c.askedAt = now
	m.transport.HoldNumber(qp.Number())
	c.disconnect = disconnectCallback{event, eventContext}
	// The peer may send when it has the REP, so the QP comes first.
	c.connectQP(true)
	c.enter(accepting)
	// The listener's endpoint is there still: the listener's close waits for
	// this connector.
	c.endpoint = m.manager.EndpointAt(c.local)
	c.endpoint.Refer()
	c.begin(request{completion, context})
	m.manager.Progress(now)
	return StatusPending
}
