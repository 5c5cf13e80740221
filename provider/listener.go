package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// A Listener waits for connection requests at an address.
type Listener struct {
	object
	Dispatch  ListenerDispatch // as Adapter.Dispatch
	adapter   *Adapter
	event     ConnectEvent
	context   any
	callbacks callbacks

	// Guarded by the lock of Miniport.manager.
	endpoint  *endpoint // nil before Listen
	paused    bool
	undecided int // requests delivered and neither accepted nor ended
}

// backlog bounds the requests that may wait for one listener's consumer to decide.
// More are refused (NDK-CONN-10).
const backlog = 1024

// refuses returns why a request is not to be delivered, 0 if it is. The manager's lock is held.
func (l *Listener) refuses() mad.Reason {
	switch {
	case l.paused: // as if nobody listened (NDK-LSN-06)
		return mad.ReasonInvalidServiceID
	case l.undecided >= backlog:
		return mad.ReasonNoResources
	}
	return 0
}

// service is a listener as the connection manager sees it.
type service struct{ l *Listener }

// Refuses implements gsi.Listener.
func (s service) Refuses() mad.Reason { return s.l.refuses() }

// Deliver implements gsi.Listener.
func (s service) Deliver(request cm.ConnectRequest) { s.l.deliver(request) }

// CreateListener makes a listener. event is called with context for every
// connection request, with a new connector that the consumer then owns: to
// accept, to reject or to close.
func (a *Adapter) CreateListener(event ConnectEvent, eventContext any,
	completion CreateCompletion, context any) (*Listener, Status) {
	if !a.open() {
		return nil, StatusInvalidDeviceState
	}
	if event == nil {
		return nil, StatusInvalidParameter
	}
	l := &Listener{adapter: a, event: event, context: eventContext, callbacks: callbacks{clock: a.clock}}
	l.Dispatch = l
	l.init(a.clock, ObjectTypeListener, &a.object)
	return completeCreate(a.miniport, l, &l.object, completion, context)
}

// Listen starts to listen at an address of the adapter's. Port 0 has a free
// ephemeral port chosen.
func (l *Listener) Listen(address netip.AddrPort, completion RequestCompletion, context any) Status {
	m := l.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	if l.endpoint != nil || !l.open() {
		return StatusInvalidDeviceState
	}
	e, status := m.claim(address)
	if status != StatusSuccess {
		return status
	}
	e.Listener = service{l}
	l.endpoint = e
	m.ledger.UsePort(e.Address, sharing.PortOfListener)
	return m.completeRequest(&l.object, completion, context)
}

// LocalAddress returns where the listener listens.
func (l *Listener) LocalAddress() (netip.AddrPort, Status) {
	l.adapter.miniport.manager.Lock()
	defer l.adapter.miniport.manager.Unlock()
	if l.endpoint == nil {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return l.endpoint.Address, StatusSuccess
}

// ControlConnectEvents pauses or resumes listening; while paused, requests are
// refused as if nobody listened.
func (l *Listener) ControlConnectEvents(pause bool) {
	l.adapter.miniport.manager.Lock()
	defer l.adapter.miniport.manager.Unlock()
	l.paused = pause
}

// Close refuses new requests at once, and closes the listener when the
// connectors that came from it are closed (NDK-LSN-08).
func (l *Listener) Close(completion CloseCompletion, context any) Status {
	m := l.adapter.miniport
	return l.close(func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		if l.endpoint != nil {
			l.endpoint.Listener = nil
			m.ledger.UsePort(l.endpoint.Address, sharing.PortOfConnection)
		}
	}, func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		if l.endpoint != nil {
			m.manager.Release(l.endpoint)
		}
	}, completion, context)
}

// boundedAckTimeout returns what a peer asks us to wait for it, but never without end, nor for hours: a consumer has to learn that it
// is gone.
func boundedAckTimeout(asked mad.Timeout) mad.Timeout {
	if asked == 0 { // never (roce.md 6.4)
		return ackTimeout
	}
	return min(asked, maxAckTimeout)
}

// deliver hands a connection request to the consumer. The manager's lock is held, and
// refuses has just said nothing against it.
func (l *Listener) deliver(request cm.ConnectRequest) {
	m := l.adapter.miniport
	l.hold()
	c := newConnector(l.adapter)
	c.addAntecedent(&l.object)
	c.listener, c.state = l, requested
	l.undecided++
	c.id = request.ID
	c.local, c.remote = request.Local, request.Remote
	c.attempt, c.remoteQPN = new(attempt), request.QPN
	c.agreed = rc.Connection{
		MTU:     roce.MTUOfCode(request.MTU),
		SendPSN: request.StartingPSN, ReceivePSN: m.rand.Uint32() & roce.PSNMask,
		AckTimeout: boundedAckTimeout(request.AckTimeout).Ack(), RetryCount: int(request.RetryCount),
		RNRRetryCount: int(request.RNRRetryCount),
		Selective:     m.offer == offered && request.ECE == offered,
	}
	if request.ECE.Vendor != vendorID {
		c.agreed.AckDelay = foreignAckDelay.Ack()
	}
	c.private.set(request.PrivateData[:])
	c.reads.inbound = min(m.info.MaxInboundReadLimit, uint32(request.InitiatorDepth))
	c.reads.outbound = min(m.info.MaxOutboundReadLimit, uint32(request.ResponderResources))
	m.manager.Join(c.id, conversation{c})
	l.callbacks.add(func() {
		l.event(l.context, c)
		l.release()
	}, nil)
}
