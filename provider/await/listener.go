package await

import (
	"context"
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/provider"
)

// A Listener hands out the connection requests that arrive at an address, one
// after the other.
type Listener struct {
	listener *provider.Listener

	mu      sync.Mutex // guards what follows
	waiting []*provider.Connector
	closed  bool
	more    chan struct{} // has an element if there may be something new in waiting
}

// Listen listens at an address of the adapter's; port 0 has one chosen.
func Listen(ctx context.Context, adapter *provider.Adapter, address netip.AddrPort) (*Listener, error) {
	l := &Listener{more: make(chan struct{}, 1)}
	var status provider.Status
	if l.listener, status = adapter.CreateListener(l.arrived, nil, nil, nil); status != provider.StatusSuccess {
		return nil, status
	}
	err := Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return l.listener.Listen(address, completion, context)
	})
	if err != nil {
		l.listener.Close(nil, nil)
		return nil, err
	}
	return l, nil
}

func (l *Listener) arrived(_ any, c *provider.Connector) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.waiting = append(l.waiting, c)
	}
	l.mu.Unlock()
	if closed {
		c.Close(nil, nil) // refuses
		return
	}
	l.wake()
}

func (l *Listener) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Next waits for the next connection request. Its connector is the caller's: to
// Accept, to reject or to close.
func (l *Listener) Next(ctx context.Context) (*provider.Connector, error) {
	for {
		l.mu.Lock()
		if len(l.waiting) > 0 {
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			left := len(l.waiting)
			l.mu.Unlock()
			if left > 0 {
				l.wake() // another caller of Next
			}
			return c, nil
		}
		l.mu.Unlock()
		select {
		case <-l.more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Address is where the listener listens.
func (l *Listener) Address() (netip.AddrPort, error) {
	address, status := l.listener.LocalAddress()
	return address, errorOf(status)
}

// Close refuses the requests that nobody has taken, and all that follow, and
// waits until the connectors that came from the listener are closed.
func (l *Listener) Close(ctx context.Context) error {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting, l.closed = nil, true
	l.mu.Unlock()
	for _, c := range waiting {
		c.Close(nil, nil)
	}
	return Close(ctx, l.listener)
}
