// Package pingpong is both ends of rdma-core's ibv_rc_pingpong, the simplest
// exchange between two RDMA implementations (roce.md 16.2): a message goes to and
// fro.
//
// The ends do without connection management. Over TCP each tells the other its
// queue pair's number, a starting PSN and its address, and then each connects its
// queue pair by itself (Connector.ConnectUnmanaged). Package pingpong does so as a
// consumer of the provider, so that the peer may be any implementation.
//
// Start reading at Serve and Call; destination.go is what goes over TCP.
package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// Defaults of ibv_rc_pingpong.
const (
	DefaultPort       = 18515
	DefaultSize       = 4096
	DefaultMTU        = 1024
	DefaultIterations = 1000
	DefaultReceives   = 500
)

// MaxSize is the largest message, in bytes.
const MaxSize = 1 << 30

// DefaultPatience is well above what a lost packet costs on any link.
const DefaultPatience = 30 * time.Second

// Attributes of queue pairs as ibv_rc_pingpong sets them (roce.md 16.2), but for the ACK
// timeout: it has 14, 67 ms, of which adapters may make up to four times as much
// (roce.md 6.4). Ours takes timeouts by the letter: with 14 a peer that does not run
// for half a second, as an emulated one may, would be given up.
const (
	ackTimeout    = 16 // 4.096 us x 2^16, 268 ms
	retryCount    = 7
	rnrRetryCount = 7 // for ever
)

// Options set how an end does it. Size, MTU and Iterations are to be the same at
// both ends.
type Options struct {
	Size       int // of a message, bytes, 1 to MaxSize
	MTU        int // payload of a packet, bytes: 256, 512, 1024, 2048 or 4096
	Iterations int // messages each way
	Receives   int // that are posted at a time, at most; fewer where the adapter does not allow that
	// Validate has every message that arrives compared with what the client of
	// ibv_rc_pingpong -c sends, which a client of ours sends then, too.
	Validate bool
	// Patience bounds how long the peer may take for a message, over TCP or by RDMA.
	Patience time.Duration
	hasty    int // the message, from 1 on, that nobody is patient with; a test's, which knows that it never comes
	// Local is our address. The zero Addr is the one that packets to the peer come
	// from.
	Local netip.Addr
	// Output gets the addresses of both ends when they are known; nil if nobody
	// wants them.
	Output io.Writer
}

func (o *Options) check() error {
	switch {
	case o.Size < 1 || o.Size > MaxSize:
		return fmt.Errorf("size %d, expected 1 to %d bytes", o.Size, MaxSize)
	case o.Iterations < 1:
		return fmt.Errorf("%d iterations, expected 1 at least", o.Iterations)
	case o.Receives < 1:
		return fmt.Errorf("%d receives, expected 1 at least", o.Receives)
	}
	return nil
}

// A Result holds what an end has measured, from its own point of view.
type Result struct {
	Bytes      int64 // both ways
	Iterations int
	Elapsed    time.Duration
	// Unacknowledged says that the client has not acknowledged the last message. It
	// leaves when that has arrived, and if then its acknowledgement is lost nobody
	// can tell whether it did arrive.
	Unacknowledged bool
}

// String returns the result as ibv_rc_pingpong prints it.
func (r Result) String() string {
	us := float64(r.Elapsed.Nanoseconds()) / 1e3
	return fmt.Sprintf("%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter",
		r.Bytes, us/1e6, float64(r.Bytes)*8/us, r.Iterations, us/1e6, us/float64(r.Iterations))
}

// An end is one end of the connection.
type end struct {
	Options
	adapter  *provider.Adapter
	qp       *await.QP
	psn      uint32 // of our first request
	incoming *await.Memory
	outgoing *await.Memory // the same unless Validate: then what is expected to come in
	posted   int           // receives
	open     []func()      // what closes what is open
}

var (
	errLost   = errors.New("the peer is lost")
	errSilent = errors.New("the peer is silent: it may have ended, or do fewer iterations")
)

// newEnd makes what both ends need. It has posted its receives. It is to be closed,
// also if there is an error.
func newEnd(ctx context.Context, adapter *provider.Adapter, o Options) (*end, error) {
	e := &end{Options: o, adapter: adapter, psn: rand.Uint32() & 0xFFFFFF}
	if err := o.check(); err != nil {
		return e, err
	}
	info := adapter.Info()
	if uint64(o.Size) > uint64(info.MaxTransferLength) {
		return e, fmt.Errorf("size %d, the adapter transfers %d bytes at most", o.Size, info.MaxTransferLength)
	}
	e.Receives = min(o.Receives, int(info.MaxReceiveQueueDepth), int(info.MaxInitiatorQueueDepth), int(info.MaxCqDepth))
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return e, err
	}
	e.open = append(e.open, func() { pd.Close(nil, nil) })
	if e.qp, err = await.NewQP(ctx, adapter, pd, uint32(e.Receives), 1); err != nil {
		return e, fmt.Errorf("create QP: %w", err)
	}
	e.open = append(e.open, e.qp.Close)
	if e.incoming, err = e.register(ctx, pd); err != nil {
		return e, err
	}
	e.outgoing = e.incoming
	if e.Validate {
		if e.outgoing, err = e.register(ctx, pd); err != nil {
			return e, err
		}
	}
	fill(e.outgoing.Bytes, e.Validate)
	return e, e.expect()
}

// register makes memory for a message.
func (e *end) register(ctx context.Context, pd *provider.PD) (*await.Memory, error) {
	m, err := await.Register(ctx, pd, e.Size, provider.MRAllowLocalWrite)
	if err == nil {
		e.open = append(e.open, func() { m.Close(nil, nil) })
	}
	return m, err
}

// close begins to close what is open, the newest first. Adapter.Close waits.
func (e *end) close() {
	for i := len(e.open) - 1; i >= 0; i-- {
		e.open[i]()
	}
}

// fill makes a message as a client of ibv_rc_pingpong does: with -c every page of it
// begins with a 0.
func fill(message []byte, validate bool) {
	const content, page = 0x7b, 4096
	for i := range message {
		message[i] = content
		if validate && i%page == 0 {
			message[i] = 0
		}
	}
}

// Serve waits at a TCP port of all addresses for one client and serves it.
// listening, if not nil, is called once a client may come.
func Serve(ctx context.Context, adapter *provider.Adapter, port uint16, o Options, listening func()) (Result, error) {
	e, err := newEnd(ctx, adapter, o)
	defer e.close()
	if err != nil {
		return Result{}, err
	}
	conn, err := accept(ctx, port, listening)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	connected, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	err = e.dialogue(ctx, conn, func() error {
		theirs, err := readDestination(conn)
		if err != nil {
			return err
		}
		if !e.Local.IsValid() {
			if e.Local, err = await.LocalAddress(theirs.gid); err != nil {
				return err
			}
		}
		// The client may send as soon as it has our destination.
		if err := e.connect(ctx, theirs, lost); err != nil {
			return err
		}
		if err := e.destination().write(conn); err != nil {
			return err
		}
		return readDone(conn)
	})
	if err != nil {
		return Result{}, fmt.Errorf("client %v: %w", conn.RemoteAddr(), err)
	}
	r, err := e.run(connected, lost, false)
	if err == nil && !r.Unacknowledged {
		stay(ctx)
	}
	return r, err
}

// accept waits for a TCP connection.
func accept(ctx context.Context, port uint16, listening func()) (net.Conn, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if listening != nil {
		listening()
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	conn, err := listener.Accept()
	if ctx.Err() != nil {
		if err == nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	}
	return conn, err
}

// Call connects to a server, a name or an address and a TCP port, and begins the
// exchange.
func Call(ctx context.Context, adapter *provider.Adapter, server string, o Options) (Result, error) {
	e, err := newEnd(ctx, adapter, o)
	defer e.close()
	if err != nil {
		return Result{}, err
	}
	conn, err := (&net.Dialer{Timeout: e.Patience}).DialContext(ctx, "tcp", server)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	if !e.Local.IsValid() {
		local, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err != nil {
			return Result{}, err
		}
		e.Local = local.Addr().Unmap()
	}
	connected, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	err = e.dialogue(ctx, conn, func() error {
		if err := e.destination().write(conn); err != nil {
			return err
		}
		theirs, err := readDestination(conn)
		if err != nil {
			return err
		}
		if err := e.connect(ctx, theirs, lost); err != nil {
			return err
		}
		return writeDone(conn)
	})
	if err != nil {
		return Result{}, fmt.Errorf("server %s: %w", server, err)
	}
	r, err := e.run(connected, lost, true)
	if err == nil {
		lingerFor(ctx, conn)
	}
	return r, err
}

// leastLinger is some of the ACK timeouts of ibv_rc_pingpong, of 67 ms.
const leastLinger = 500 * time.Millisecond

// stay keeps our queue pair for leastLinger, or until ctx ends. It acknowledges the peer's last message again, whose
// acknowledgement may have been lost: ibv_rc_pingpong repeats it for ever (rxe of Linux 6.1).
func stay(ctx context.Context) {
	select {
	case <-time.After(leastLinger):
	case <-ctx.Done():
	}
}

// lingerFor waits until the server does not need our queue pair any more. A server of ours ends its TCP connection
// then; ibv_rc_pingpong has ended it before the first message.
func lingerFor(ctx context.Context, conn net.Conn) {
	// It is more than our server's patience with its last message, (retryCount+1) x
	// 268 ms, and its own stay. The result of the read does not matter.
	const longEnough = 3 * time.Second
	_ = conn.SetReadDeadline(time.Now().Add(longEnough))
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	staying := time.Now()
	_, _ = conn.Read(make([]byte, 1))
	if time.Since(staying) < leastLinger {
		stay(ctx)
	}
}

// dialogue bounds what is said over TCP in time. It goes on when the connection is
// lost meanwhile, so that the reason comes first that is on the queue pair.
func (e *end) dialogue(ctx context.Context, conn net.Conn, f func() error) error {
	if err := conn.SetDeadline(time.Now().Add(e.Patience)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := f(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// destination returns what the peer sends to.
func (e *end) destination() destination {
	return destination{qpn: e.qp.Number(), psn: e.psn, gid: e.Local}
}

// connect connects the queue pair to the peer's.
func (e *end) connect(ctx context.Context, peer destination, lost context.CancelCauseFunc) error {
	if e.Output != nil {
		// An error of a terminal is no failure of the exchange.
		_, _ = fmt.Fprintf(e.Output, "  local address:  %v\n  remote address: %v\n", e.destination(), peer)
	}
	connector, err := await.Create(ctx, e.adapter.CreateConnector)
	if err != nil {
		return err
	}
	e.open = append(e.open, func() { connector.Close(nil, nil) })
	err = await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return connector.ConnectUnmanaged(e.qp.QP, provider.UnmanagedConnection{
			Local: e.Local, Remote: peer.gid, RemoteQPN: peer.qpn, SendPSN: e.psn, ReceivePSN: peer.psn,
			MTU: e.MTU, AckTimeout: ackTimeout, RetryCount: retryCount, RNRRetryCount: rnrRetryCount,
			InboundReadLimit: 1, OutboundReadLimit: 1,
		}, func(any, uint32) { lost(errLost) }, nil, completion, context)
	})
	switch {
	case errors.Is(err, provider.StatusImplementationLimit):
		return fmt.Errorf("MTU %d is more than packets from %v may carry: %w", e.MTU, e.Local, err)
	case errors.Is(err, provider.StatusInvalidAddress):
		return fmt.Errorf("%v is no address of the adapter: %w", e.Local, err)
	case err != nil:
		return fmt.Errorf("connect %v to QPN 0x%06x at %v: %w", e.Local, peer.qpn, peer.gid, err)
	}
	return nil
}

// run exchanges the messages. The client begins.
func (e *end) run(ctx context.Context, stop context.CancelCauseFunc, client bool) (Result, error) {
	watchdog := time.AfterFunc(e.patience(1), func() { stop(errSilent) })
	defer watchdog.Stop()
	begin := time.Now()
	r := Result{Bytes: 2 * int64(e.Size) * int64(e.Iterations), Iterations: e.Iterations}
	for i := range e.Iterations {
		var err error
		if client {
			if err = e.post(); err == nil {
				err = e.receive(ctx)
			}
			if errors.Is(err, provider.StatusCancelled) {
				err = e.sent(ctx) // which says why
			}
		} else if err = e.receive(ctx); err == nil {
			err = e.post()
		}
		if err == nil {
			err = e.sent(ctx)
		}
		if !client && i == e.Iterations-1 && errors.Is(err, provider.StatusIOTimeout) {
			r.Unacknowledged, err = true, nil
		}
		if err != nil {
			return Result{}, fmt.Errorf("message %d of %d: %w", i+1, e.Iterations, err)
		}
		watchdog.Reset(e.patience(i + 2))
	}
	r.Elapsed = time.Since(begin)
	return r, nil
}

// patience returns how long the peer may take for a message, of which the first is 1.
func (e *end) patience(message int) time.Duration {
	if message == e.hasty {
		return 0
	}
	return e.Patience
}

// post begins to send a message.
func (e *end) post() error {
	if status := e.qp.Send(nil, e.outgoing.SGL(0, e.Size), 0); status != provider.StatusSuccess {
		return fmt.Errorf("send: %w", status)
	}
	return nil
}

// sent waits until the message has been acknowledged.
func (e *end) sent(ctx context.Context) error {
	_, err := e.qp.Done(ctx, provider.StatusSuccess)
	switch {
	case errors.Is(err, provider.StatusRemoteResources):
		return fmt.Errorf("send: the peer refuses the message; both ends need the same size and MTU: %w", err)
	case errors.Is(err, provider.StatusIOTimeout):
		return fmt.Errorf("send: the peer does not acknowledge; it may have ended, or its link is down: %w", err)
	case err != nil:
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// expect posts receives, as many as there are to be.
func (e *end) expect() error {
	for ; e.posted < e.Receives; e.posted++ {
		if status := e.qp.Receive(nil, e.incoming.SGL(0, e.Size)); status != provider.StatusSuccess {
			return fmt.Errorf("post a receive: %w", status)
		}
	}
	return nil
}

// receive waits for a message and looks at it.
func (e *end) receive(ctx context.Context) error {
	r, err := e.qp.Received(ctx)
	switch {
	case errors.Is(err, provider.StatusBufferOverflow):
		return fmt.Errorf("receive: more than the %d bytes expected; both ends need the same size: %w", e.Size, err)
	case errors.Is(err, provider.StatusRemoteResources):
		return fmt.Errorf("receive: the peer's message is not as expected; both ends need the same size and MTU: %w", err)
	case err != nil:
		return fmt.Errorf("receive: %w", err)
	case int(r.BytesTransferred) != e.Size:
		return fmt.Errorf("receive: %d bytes, expected %d; both ends need the same size", r.BytesTransferred, e.Size)
	}
	if e.Validate {
		if err := e.validate(); err != nil {
			return err
		}
	}
	if e.posted--; e.posted <= 1 {
		return e.expect()
	}
	return nil
}

// validate compares what came in, and clears it, so that nothing can be taken for the
// next message but that.
func (e *end) validate() error {
	for i, want := range e.outgoing.Bytes {
		if got := e.incoming.Bytes[i]; got != want {
			return fmt.Errorf("receive: byte %d is %#x, expected %#x; both ends need -c", i, got, want)
		}
	}
	clear(e.incoming.Bytes)
	return nil
}
