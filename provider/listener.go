package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
)

// A Listener waits for connection requests at an address.
type Listener struct {
	object
	adapter   *Adapter
	event     ConnectEvent
	context   any
	callbacks callbacks

	// Guarded by Adapter.cmMu.
	endpoint  *endpoint // nil before Listen
	paused    bool
	undecided int // requests delivered and neither accepted nor ended
}

// backlog is how many requests may wait for one listener's consumer to decide.
// More are refused (NDK-CONN-10).
const backlog = 1024

// accepts reports whether a request is to be delivered. a.cmMu is held.
func (l *Listener) accepts() bool { return !l.paused && l.undecided < backlog }

// CreateListener makes a listener. event is called with context for every
// connection request, with a new connector that the consumer then owns: to
// accept, to reject or to close.
func (a *Adapter) CreateListener(event ConnectEvent, context any) (*Listener, Status) {
	if event == nil {
		return nil, StatusInvalidParameter
	}
	l := &Listener{adapter: a, event: event, context: context, callbacks: callbacks{clock: a.clock}}
	l.init(a.clock, ObjectTypeListener, &a.object)
	return l, StatusSuccess
}

// Listen starts to listen at an address of the adapter's. Port 0 has a free
// ephemeral port chosen. It always finishes inline.
func (l *Listener) Listen(address netip.AddrPort, _ RequestCompletion, _ any) Status {
	a := l.adapter
	a.cmMu.Lock()
	defer a.cmMu.Unlock()
	if l.endpoint != nil {
		return StatusInvalidDeviceState
	}
	e, status := a.claim(address)
	if status != StatusSuccess {
		return status
	}
	e.listener = l
	l.endpoint = e
	return StatusSuccess
}

// GetLocalAddress is where the listener listens.
func (l *Listener) GetLocalAddress() (netip.AddrPort, Status) {
	l.adapter.cmMu.Lock()
	defer l.adapter.cmMu.Unlock()
	if l.endpoint == nil {
		return netip.AddrPort{}, StatusInvalidDeviceState
	}
	return l.endpoint.address, StatusSuccess
}

// ControlConnectEvents pauses or resumes listening; while paused, requests are
// refused as if nobody listened.
func (l *Listener) ControlConnectEvents(pause bool) {
	l.adapter.cmMu.Lock()
	defer l.adapter.cmMu.Unlock()
	l.paused = pause
}

// Close refuses new requests at once, and closes the listener when the
// connectors that came from it are closed (NDK-LSN-08).
func (l *Listener) Close(completion CloseCompletion, context any) Status {
	a := l.adapter
	return l.close(func() {
		a.cmMu.Lock()
		defer a.cmMu.Unlock()
		if l.endpoint != nil {
			l.endpoint.listener = nil
		}
	}, func() {
		a.cmMu.Lock()
		defer a.cmMu.Unlock()
		if l.endpoint != nil {
			a.unclaim(l.endpoint)
		}
	}, completion, context)
}

// deliver hands a connection request to the consumer. a.cmMu is held, and
// accepts has just said that the listener wants it.
func (l *Listener) deliver(request cm.ConnectRequest) {
	a := l.adapter
	l.hold()
	c := newConnector(a)
	c.addAntecedent(&l.object)
	c.listener, c.state = l, requested
	l.undecided++
	c.id = request.ID
	c.local, c.remote = request.Local, request.Remote
	c.agreed = rc.Connection{
		RemoteQPN: request.QPN, MTU: roce.MTUOfCode(request.MTU),
		SendPSN: request.StartingPSN, ReceivePSN: a.rand.Uint32() & roce.PSNMask,
		AckTimeout: request.AckTimeout.Ack(), RetryCount: int(request.RetryCount),
		RNRRetryCount: int(request.RNRRetryCount),
	}
	c.private = request.PrivateData[:]
	c.inbound = min(a.info.MaxInboundReadLimit, uint32(request.InitiatorDepth))
	c.outbound = min(a.info.MaxOutboundReadLimit, uint32(request.ResponderResources))
	a.connectors[c.id] = c
	l.callbacks.add(func() {
		l.event(l.context, c)
		l.release()
	})
}
