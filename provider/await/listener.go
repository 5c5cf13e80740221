package await

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/provider"
)

// A RequestListener hands out the connection requests that arrive at an address, one
// after the other.
type RequestListener struct {
	listener *provider.Listener

	mu      sync.Mutex // guards what follows
	waiting []*provider.Connector
	closed  bool
	more    chan struct{} // has an element if there may be something new in waiting
}

// Listen listens at an address of the adapter's; port 0 has one chosen.
func Listen(ctx context.Context, adapter *provider.Adapter, address netip.AddrPort) (*RequestListener, error) {
	l := &RequestListener{more: make(chan struct{}, 1)}
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

func (l *RequestListener) arrived(_ any, c *provider.Connector) {
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

func (l *RequestListener) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Next waits for the next connection request. Its connector is the caller's: to
// Accept, to reject or to close. The error is the cause of ctx's end, or net.ErrClosed.
func (l *RequestListener) Next(ctx context.Context) (*provider.Connector, error) {
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
		closed := l.closed
		l.mu.Unlock()
		if closed {
			l.wake() // likewise
			return nil, net.ErrClosed
		}
		select {
		case <-l.more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Address returns where the listener listens.
func (l *RequestListener) Address() (netip.AddrPort, error) {
	address, status := l.listener.LocalAddress()
	return address, errorOf(status)
}

// Close refuses the requests that nobody has taken, and all that follow, and
// waits until the connectors that came from the listener are closed.
func (l *RequestListener) Close(ctx context.Context) error {
	l.refuse()
	return Close(ctx, l.listener)
}

// refuse refuses the requests that nobody has taken, and all that follow.
func (l *RequestListener) refuse() {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting, l.closed = nil, true
	l.mu.Unlock()
	l.wake()
	for _, c := range waiting {
		c.Close(nil, nil)
	}
}

// A Listener accepts connections at an address of an Endpoint's. Its methods may be called from any
// goroutine.
type Listener struct {
	*RequestListener // for connections with a QP of the caller's own (Next)
	endpoint         *Endpoint
}

// Listen listens at an address of the adapter's; port 0 has one chosen (NDK-LSN-02).
func (e *Endpoint) Listen(ctx context.Context, address netip.AddrPort) (*Listener, error) {
	requests, err := Listen(ctx, e.Adapter, address)
	l := &Listener{requests, e}
	if err == nil {
		err = e.add(l)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %v: %w", address, explain(e.because(err)))
	}
	return l, nil
}

// Accept waits for a client and returns the connection with it, once that is established. Clients
// that give up before are passed over. It establishes one connection at a time: a server whose
// clients may be slow to complete theirs calls it from several goroutines. The error is the cause
// of ctx's end, net.ErrClosed after Close, or says that the adapter has no room for another
// connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	ctx, release := l.endpoint.bound(ctx)
	defer release()
	for {
		c, err := l.accept(ctx)
		gaveUp := errors.Is(err, provider.StatusConnectionAborted) || errors.Is(err, provider.StatusIOTimeout) // NDK-CONN-04 to 06
		switch {
		case err == nil:
			return c, nil
		case !gaveUp || ctx.Err() != nil:
			return nil, fmt.Errorf("accept at %v: %w", l.Addr(), l.endpoint.because(err))
		}
	}
}

func (l *Listener) accept(ctx context.Context) (*Conn, error) {
	connector, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	c, err := l.endpoint.newConn(ctx)
	if err != nil {
		connector.Close(nil, nil) // refuses (NDK-LSN-11)
		return nil, err
	}
	c.Connector = connector
	c.remote, _ = connector.PeerAddress() // which every request has (NDK-CONN-33)
	if err := Accept(ctx, connector, c.QP, c.options()); err != nil {
		c.discard()
		return nil, err
	}
	return c, l.endpoint.add(c)
}

// Addr returns where the Listener listens.
func (l *Listener) Addr() netip.AddrPort {
	address, _ := l.Address() // which it has since Listen
	return address
}

// Close refuses the clients that have not been accepted, and all that follow. It does not wait; the
// address stays in use until the connections that were accepted are closed (NDK-LSN-08). The error
// is nil, also if the Listener is closed already.
func (l *Listener) Close() error {
	l.refuse()
	l.listener.Close(nil, nil)
	l.endpoint.remove(l)
	return nil
}
