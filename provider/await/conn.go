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

// ErrDisconnected is the error of a connection that this end has not closed: the peer has
// disconnected or is lost, or a request of either end has failed.
var ErrDisconnected = errors.New("the connection has ended")

// A Conn is one end of a connection that Endpoint.Dial or Listener.Accept has established. Any
// number of goroutines may use it; requests take effect in the order in which they are posted.
//
// Send, Receive, Read, Write and Do return when their request has completed: the bytes that its SGL
// names are the caller's again then, whatever the outcome. If ctx ends before, the connection has
// ended, with ctx's cause: NDK cannot call back one request, only flush all (NDK-FLUSH-01).
// PostReceive, PostSend and Post return when a request is posted; its bytes are the adapter's until
// it completes.
//
// An error is the provider.Status with which the request failed; or that because of which the
// connection has ended: ErrDisconnected, the first request's that failed, the cause of a context's
// end, or net.ErrClosed after Close. It says what was to be done, and with which peer.
type Conn struct {
	QP        *provider.QP        // for requests with OpSilentSuccess and a nil context; its completions are the Conn's
	Connector *provider.Connector // for its addresses and private data

	endpoint *Endpoint
	cq       *provider.CQ
	remote   netip.AddrPort
	close    func() // once

	// An element stands for a request that is posted: so there is room for its
	// completion in the CQ.
	requests, receives chan struct{}

	handingOut sync.Mutex // held while completions are taken from the CQ, and before mu

	over chan struct{} // is closed when there are no more completions: the CQ has failed or is closed
	stop func()        // closes over, once

	mu    sync.Mutex // guards what follows
	err   error      // nil until ended is closed
	ended chan struct{}
}

// defaultDepth is Endpoint.Depth where none is set.
const defaultDepth = 16

// newConn makes what a connection needs before it is established.
func (e *Endpoint) newConn(ctx context.Context) (*Conn, error) {
	info := e.Adapter.Info()
	most := min(info.MaxReceiveQueueDepth, info.MaxInitiatorQueueDepth, info.MaxCqDepth/2)
	depth, pieces := e.Depth, max(e.Pieces, 1)
	if depth == 0 {
		depth = min(defaultDepth, most)
	}
	if depth > most {
		return nil, fmt.Errorf("the adapter allows a Depth of up to %d, not %d", most, depth)
	}
	c := &Conn{
		endpoint: e, requests: make(chan struct{}, depth), receives: make(chan struct{}, depth),
		over: make(chan struct{}), ended: make(chan struct{}),
	}
	c.stop = sync.OnceFunc(func() { close(c.over) })
	c.close = once(func() {
		c.end(net.ErrClosed)
		c.endpoint.remove(c)
		c.disconnect()
		waitClosed(c.Connector)
		c.discard()
		c.stop() // what was posted during the close
	})
	var status provider.Status
	if c.cq, status = e.Adapter.CreateCQ(2*depth, c.complete, nil, nil, nil, nil); status != provider.StatusSuccess {
		return nil, fmt.Errorf("create CQ: %w", status)
	}
	var err error
	c.QP, err = Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.QP, provider.Status) {
		return e.PD.CreateQP(c.cq, c.cq, nil, depth, depth, pieces, pieces, 0, completion, context)
	})
	if err != nil {
		waitClosed(c.cq)
		return nil, err
	}
	c.cq.Arm(provider.NotifyAny)
	return c, nil
}

// discard closes what newConn has made, when no connector uses it any more (NDK-LIFE-23, 26).
func (c *Conn) discard() {
	waitClosed(c.QP)
	waitClosed(c.cq)
}

// options returns those of a connection whose end c is to be told of.
func (c *Conn) options() Options {
	info := c.endpoint.Adapter.Info()
	return Options{
		InboundReadLimit: info.MaxInboundReadLimit, OutboundReadLimit: info.MaxOutboundReadLimit,
		// Requests that are pending would stay so (NDK-DISC-03). The peer's last messages
		// have completed before.
		Disconnected: func() {
			c.handOut() // if a request has failed, that is why
			c.end(ErrDisconnected)
			c.QP.Flush()
		},
	}
}

// end notes that the connection has ended, and why, if nobody has noted that before.
func (c *Conn) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = cause
		close(c.ended)
	}
}

// giveUp ends the connection. The peer is told, and everything that is posted completes at once,
// not when the peer has answered.
func (c *Conn) giveUp(cause error) {
	c.end(cause)
	c.disconnect()
	c.QP.Flush()
}

// disconnect tells the peer that the connection ends, after what it has sent is acknowledged. It
// does not wait for the answer.
func (c *Conn) disconnect() { c.Connector.Disconnect(func(any, provider.Status) {}, nil) }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err returns nil as long as the connection has not ended, then why it has.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until the connection has ended. The error is nil if the peer has disconnected or is
// lost, else Err's; or the cause of ctx's end, upon which the connection goes on.
func (c *Conn) Wait(ctx context.Context) error {
	select {
	case <-c.ended:
		if err := c.Err(); err != ErrDisconnected {
			return err
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// LocalAddr returns the connection's address on this adapter.
func (c *Conn) LocalAddr() netip.AddrPort {
	local, _ := c.Connector.LocalAddress() // which a connected one has
	return local
}

// RemoteAddr returns the connection's address at the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Close disconnects, and returns when the adapter accesses no memory on behalf of the connection
// any more. It does not wait for the peer, which is told (NDK-DISC-08). Posted requests complete as
// cancelled. The error is nil, also if the Conn is closed already.
func (c *Conn) Close() error {
	c.close()
	return nil
}

// complete is the CQ's notification. It is made again for whatever comes before the Arm
// (NDK-CQ-05).
func (c *Conn) complete(_ any, status provider.Status) {
	c.handOut()
	if status != provider.StatusSuccess {
		c.end(fmt.Errorf("%w: its completion queue failed: %w", ErrDisconnected, status))
		c.stop()
		return
	}
	c.cq.Arm(provider.NotifyAny)
}

// handOut gives the completions that are there to those who wait for them.
func (c *Conn) handOut() {
	c.handingOut.Lock()
	defer c.handingOut.Unlock()
	var results [16]provider.ResultEx
	for n := len(results); n == len(results); {
		n = c.cq.ResultsEx(results[:])
		for _, r := range results[:n] {
			if r.Status != provider.StatusSuccess {
				c.end(causeOf(r.Status))
			}
			if p, ok := r.RequestContext.(*Posted); ok {
				p.result = r
				<-p.room
				close(p.completed)
			}
		}
	}
}

// causeOf returns why a connection has ended whose request failed with a status.
func causeOf(status provider.Status) error {
	if status == provider.StatusCancelled { // by the failure of the peer's request
		return ErrDisconnected
	}
	return fmt.Errorf("%w: a request failed: %w", ErrDisconnected, status)
}

// errorOf returns a request's status as an error, and why the connection has ended in place of that
// it has.
func (c *Conn) errorOf(status provider.Status) error {
	switch status {
	case provider.StatusSuccess:
		return nil
	case provider.StatusCancelled, provider.StatusConnectionInvalid:
		c.end(ErrDisconnected)
		return c.Err()
	}
	return status
}

// A Posted is a request that is posted, whose completion can be waited for. It need not be: a
// request that fails ends the connection.
type Posted struct {
	conn      *Conn
	doing     string        // what it does with the peer
	room      chan struct{} // where it has an element until it completes
	result    provider.ResultEx
	completed chan struct{} // is closed when result is there
}

// over reports whether the request has completed.
func (p *Posted) over() bool {
	select {
	case <-p.completed:
		return true
	default:
		return false
	}
}

// Wait returns the request's completion. If ctx ends before, the request goes on, and Wait may be
// called again.
func (p *Posted) Wait(ctx context.Context) (provider.ResultEx, error) {
	var err error
	select {
	case <-p.completed:
	case <-p.conn.over:
		err = p.conn.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !p.over() { // else the completion comes first, whatever has happened since
		return provider.ResultEx{}, p.conn.wrap(p.doing, err)
	}
	return p.result, p.conn.wrap(p.doing, p.conn.errorOf(p.result.Status))
}

// finish is Wait, but the request does not go on: if ctx ends before, so does the connection.
func (p *Posted) finish(ctx context.Context) (provider.ResultEx, error) {
	if _, err := p.Wait(ctx); err != nil && !p.over() {
		p.conn.giveUp(context.Cause(ctx)) // of one whose CQ has failed this changes nothing
	}
	return p.Wait(context.Background())
}

// Post posts a request of any kind but Receive, for which start calls the QP's method with the
// context that it is given:
//
//	posted, err := conn.Post(ctx, func(qp *provider.QP, context any) provider.Status {
//		return qp.Bind(context, buffer.MR, window, 0, size, provider.OpAllowRemoteRead)
//	})
//
// It waits as long as Endpoint.Depth others are posted and have not completed.
func (c *Conn) Post(ctx context.Context, start func(qp *provider.QP, context any) provider.Status) (*Posted, error) {
	return c.post(ctx, "request to", c.requests, start)
}

func (c *Conn) post(ctx context.Context, doing string, room chan struct{}, start func(*provider.QP, any) provider.Status) (*Posted, error) {
	select {
	case room <- struct{}{}:
	case <-c.ended:
		return nil, c.wrap(doing, c.Err())
	case <-ctx.Done():
		return nil, c.wrap(doing, context.Cause(ctx))
	}
	p := &Posted{conn: c, doing: doing, room: room, completed: make(chan struct{})}
	if status := start(c.QP, p); status != provider.StatusSuccess {
		<-room
		return nil, c.wrap(doing, c.errorOf(status))
	}
	return p, nil
}

// Do posts a request as Post does, and waits until it has completed.
func (c *Conn) Do(ctx context.Context, start func(qp *provider.QP, context any) provider.Status) (provider.ResultEx, error) {
	return c.do(ctx, "request to", c.requests, start)
}

func (c *Conn) do(ctx context.Context, doing string, room chan struct{}, start func(*provider.QP, any) provider.Status) (provider.ResultEx, error) {
	p, err := c.post(ctx, doing, room, start)
	if err != nil {
		return provider.ResultEx{}, err
	}
	return p.finish(ctx)
}

// PostReceive posts a receive for one of the peer's messages, into the memory that sgl names, which
// must allow local writes. They arrive in the order in which they are posted. For a message that
// finds none the peer's adapter tries again, after a millisecond or so. A message that is longer
// ends the connection.
func (c *Conn) PostReceive(ctx context.Context, sgl []provider.SGE) (*Posted, error) {
	return c.post(ctx, "receive from", c.receives, receive(sgl))
}

// Receive posts a receive as PostReceive does, and returns the length of the message in bytes.
func (c *Conn) Receive(ctx context.Context, sgl []provider.SGE) (int, error) {
	r, err := c.do(ctx, "receive from", c.receives, receive(sgl))
	return int(r.BytesTransferred), err
}

func receive(sgl []provider.SGE) func(*provider.QP, any) provider.Status {
	return func(qp *provider.QP, context any) provider.Status { return qp.Receive(context, sgl) }
}

// PostSend posts a message to the peer.
func (c *Conn) PostSend(ctx context.Context, sgl []provider.SGE) (*Posted, error) {
	return c.post(ctx, "send to", c.requests, send(sgl))
}

// Send sends a message, and returns when it is in the memory of a receive of the peer's. A peer
// that closes the connection as soon as it has the message may have its acknowledgement lost: then
// the error is ErrDisconnected, though the message has arrived.
func (c *Conn) Send(ctx context.Context, sgl []provider.SGE) error {
	_, err := c.do(ctx, "send to", c.requests, send(sgl))
	return err
}

func send(sgl []provider.SGE) func(*provider.QP, any) provider.Status {
	return func(qp *provider.QP, context any) provider.Status { return qp.Send(context, sgl, 0) }
}

// Read reads the peer's memory at address under token into the memory that sgl names, which must
// allow local writes.
func (c *Conn) Read(ctx context.Context, sgl []provider.SGE, address uint64, token uint32) error {
	_, err := c.do(ctx, "read from", c.requests, func(qp *provider.QP, context any) provider.Status {
		return qp.Read(context, sgl, address, token, 0)
	})
	return err
}

// Write writes the memory that sgl names to the peer's at address under token, and returns when it
// is there.
func (c *Conn) Write(ctx context.Context, sgl []provider.SGE, address uint64, token uint32) error {
	_, err := c.do(ctx, "write to", c.requests, func(qp *provider.QP, context any) provider.Status {
		return qp.Write(context, sgl, address, token, 0)
	})
	return err
}

// wrap has an error say what was to be done with the peer.
func (c *Conn) wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %v: %w", doing, c.remote, err)
	}
	return nil
}
