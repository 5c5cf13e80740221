package await

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/provider"
)

// An Endpoint is an open adapter with a protection domain. Connections, listeners and memory
// are made on it; any of its memory may be used on any of its connections.
//
// The fields Local, Depth and Pieces may be set before the first connection is made. The
// methods may be called from any goroutine.
type Endpoint struct {
	Adapter *provider.Adapter // for objects of other kinds, to be closed before the Endpoint is
	PD      *provider.PD      // likewise

	// Local is the adapter's address that Dial connects from. If it is the zero Addr,
	// LocalAddress chooses it.
	Local netip.Addr
	// Depth is the number of receives that a connection can have posted at a time, and of
	// other requests likewise. 0 means 16, or what the adapter allows if that is less.
	Depth uint32
	// Pieces is the number of SGEs that a request can have. 0 means 1.
	Pieces uint32

	device *provider.Miniport // the Endpoint's own; nil if NewEndpoint made it
	life   context.Context    // ends, with net.ErrClosed as the cause, when Close is called
	end    context.CancelCauseFunc
	close  func() // once

	mu    sync.Mutex        // guards what follows
	open  map[io.Closer]int // connections, listeners and memory, which are numbered; nil when Close is called
	added int               // so far
}

// Open opens a device and makes an Endpoint on it. A program in a node of a lab opens the node's
// device:
//
//	endpoint, err := await.Open(ctx, lease.Open)
//
// ctx bounds Open alone.
func Open(ctx context.Context, open func(context.Context) (*provider.Miniport, error)) (*Endpoint, error) {
	device, err := open(ctx)
	if err != nil {
		return nil, err
	}
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		device.Close()
		return nil, fmt.Errorf("open adapter: %w", status)
	}
	e, err := NewEndpoint(ctx, adapter)
	if err != nil {
		adapter.Close()
		device.Close()
		return nil, err
	}
	e.device = device
	return e, nil
}

// NewEndpoint makes an Endpoint on an adapter that is open. The adapter stays the caller's:
// Close leaves it open.
func NewEndpoint(ctx context.Context, adapter *provider.Adapter) (*Endpoint, error) {
	pd, err := Create(ctx, adapter.CreatePD)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{Adapter: adapter, PD: pd, open: map[io.Closer]int{}}
	e.life, e.end = context.WithCancelCause(context.Background())
	e.close = once(e.closeAll)
	return e, nil
}

// Close closes every connection, listener and Buffer of the Endpoint, then the protection domain
// and, if Open opened them, the adapter and the device: each after what was made on it
// (NDK-LIFE-21, 25). It waits until no memory is accessed any more, and for objects that the caller
// has made and not closed. A Dial or Accept in progress returns net.ErrClosed. The error is nil,
// also if the Endpoint is closed already.
func (e *Endpoint) Close() error {
	e.close()
	return nil
}

func (e *Endpoint) closeAll() {
	e.end(net.ErrClosed)
	e.mu.Lock()
	open := e.open
	e.open = nil
	e.mu.Unlock()
	// In the order in which they were opened, so that a simulation can be repeated.
	for _, c := range slices.SortedFunc(maps.Keys(open), func(a, b io.Closer) int { return open[a] - open[b] }) {
		c.Close()
	}
	waitClosed(e.PD)
	if e.device != nil {
		e.Adapter.Close()
		e.device.Close()
	}
}

// once returns a function that calls f the first time, and always returns when f has. Callers wait on a channel, so that
// package testing/synctest knows that they wait, which it does not of sync.Once.
func once(f func()) func() {
	var begun atomic.Bool
	done := make(chan struct{})
	return func() {
		if begun.Swap(true) {
			<-done
			return
		}
		defer close(done)
		f()
	}
}

// add notes what Close is to close. If the Endpoint is closed meanwhile, it closes c itself.
func (e *Endpoint) add(c io.Closer) error {
	e.mu.Lock()
	open := e.open != nil
	if open {
		e.added++
		e.open[c] = e.added
	}
	e.mu.Unlock()
	if !open {
		c.Close()
		return net.ErrClosed
	}
	return nil
}

// remove takes back what add has noted, of something that is closed.
func (e *Endpoint) remove(c io.Closer) {
	e.mu.Lock()
	delete(e.open, c)
	e.mu.Unlock()
}

// bound returns a context that ends with ctx, with the Endpoint, or when it is released.
func (e *Endpoint) bound(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// because returns net.ErrClosed in place of an error that came about because the Endpoint is
// closed.
func (e *Endpoint) because(err error) error {
	if cause := context.Cause(e.life); err != nil && cause != nil {
		return cause
	}
	return err
}

// waitClosed closes an object, which takes as long as what was made on it is open.
func waitClosed(o provider.Object) {
	_ = Close(context.Background(), o) // a close does not fail (ndkpi.md T12), and this context does not end
}

// A Buffer is memory that is registered with an Endpoint. Its addresses begin at 0.
type Buffer struct {
	*Memory
	endpoint *Endpoint
}

// Register has the adapter access bytes, with the given rights (NDK-MR-06 to 09): those of the
// caller's own requests, and of peers that know the Buffer's RemoteToken. The bytes are the
// adapter's, too, until the Buffer is closed: what a request or a peer may change meanwhile is not
// to be touched.
func (e *Endpoint) Register(bytes []byte, rights provider.MRFlags) (*Buffer, error) {
	m, err := register(context.Background(), e.PD, bytes, rights)
	b := &Buffer{m, e}
	if err == nil {
		err = e.add(b)
	}
	if err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(bytes), e.because(err))
	}
	return b, nil
}

// Close ends the registration, and returns when the bytes are the caller's alone. Windows that are
// bound to the Buffer are to be closed before (NDK-LIFE-29). The error is nil, also if the Buffer
// is closed already.
func (b *Buffer) Close() error {
	waitClosed(b.MR)
	b.endpoint.remove(b)
	return nil
}
