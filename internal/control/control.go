// Package control is the channel over which processes talk: requests, answers and notices
// as JSON, with files where a request carries some. Processes of one machine have a Unix
// stream socket between them, and files cross as descriptors (New). Those of different
// machines have TCP or TLS, and files cross as streams (OverStream). Either are served and
// called by the same code, and Relay passes from one to the other.
//
// Both ends of a Conn may make requests at any time, and any number may be
// under way at once. The package knows nothing of what is asked: a command and the
// supervisor of a lab, the supervisor and its agents and engines, and the processes that
// share an adapter (package lease) each have methods of their own. When the peer goes away
// every pending call fails with ErrClosed, which is how one process learns of another's
// death.
//
// Requests and notices are declared as values that both ends use: Method, Procedure and
// Notice. Start reading there (method.go), then at Conn. A carrier takes messages
// across: unixCarrier (carrier.go) or streams (streams.go).
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/failure"
)

// MaxMessage bounds a message, in bytes: the topology of 100,000 nodes has 50 MiB, a report on them less than 200 MiB.
const MaxMessage = 256 << 20

// MaxFiles bounds the descriptors of one request.
const MaxFiles = 16

// boundedRequests is the number of requests of an untrusted peer that may be unanswered.
const boundedRequests = 16

// ErrClosed is the end of a channel: the peer is gone or Close was called.
var ErrClosed = errors.New("control channel closed")

// A Code says what kind of failure an Error is.
type Code = failure.Code

// The codes.
const (
	Usage  = failure.Usage
	Unable = failure.Unable
	Failed = failure.Failed
	Unmet  = failure.Unmet
)

// An Error is a failure that crosses the channel with its kind.
type Error = failure.Error

// CodeOf returns the code of the Error that err is or wraps; "" if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return failure.Errorf(code, format, args...)
}

// AsError returns err with its code: that of the Error which it wraps, or Failed.
func AsError(err error) *Error {
	e := &Error{Code: Failed, Message: err.Error()}
	if kind := (*Error)(nil); errors.As(err, &kind) {
		e.Code = kind.Code
	}
	return e
}

// A Request is a call by the peer, or a notice of its. Files are closed when the handler
// returns; one that it keeps it replaces with nil in the slice.
type Request struct {
	Method string
	Params json.RawMessage
	Files  []*os.File
	Conn   *Conn
	Notice bool // nobody waits for an answer

	behind  string // for whom it is, or of whom: "" for the ends of the channel
	relayed bool   // it is answered by another process: the end of that one's channel is told
}

// decode reads the parameters into v.
func (r *Request) decode(v any) error {
	if err := json.Unmarshal(r.Params, v); err != nil {
		return Errorf(Usage, "%s: parameters: %v", r.Method, err)
	}
	return nil
}

// A Handler answers requests, each on a goroutine of its own, and notices, one
// after the other in the order they were sent (their result is dropped). ctx
// ends when the channel does, or when the caller gave up. A handler of notices
// must not wait for the peer: while one runs, later notices queue up, and
// behind a full queue so does everything else the peer sends.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// A Conn is one end of a channel. Its methods may be called from any goroutine.
type Conn struct {
	carrier carrier
	handler Handler
	ctx     context.Context
	cancel  context.CancelFunc
	readers sync.WaitGroup
	noticed chan struct{} // closed when the last notice has been handled

	longest int           // bytes of a message of the peer's; MaxMessage for one that is trusted
	writing chan struct{} // holds a token while a message is written

	mu      sync.Mutex // guards what follows
	nextID  uint64
	calls   map[uint64]chan *message
	serving map[uint64]context.CancelFunc
	// unanswered counts the peer's requests that have begun and whose answers it may not
	// have read.
	unanswered int
}

// New starts a channel on sock, which it owns from now on. handler may be nil
// if the peer asks nothing.
func New(sock *net.UnixConn, handler Handler) *Conn { return NewBounded(sock, handler, MaxMessage) }

// NewBounded is New for a peer that is not trusted: a message of more than longest bytes
// ends the channel before memory is taken for it, and so does a request while
// boundedRequests have no answer.
func NewBounded(sock *net.UnixConn, handler Handler, longest int) *Conn {
	return begin(unixCarrier{sock}, handler, longest)
}

// OverStream is New for a peer at the other end of a TCP connection or the like, which need
// not be of this machine. Files of requests cross as streams: each end of the channel copies
// between its file and the connection. The peer gets a pipe for a file that is only read or
// only written, a pseudo-terminal for a terminal that is lent (see Lend), and a socket for
// others. Ends and failures pass as well, and with the channel its files end.
//
// An answer comes after all that was written to the files before it: the caller finds it
// written. Of a file that is read, more may be read than the peer's reader wants, as with
// ssh(1): what a pipe holds and a window. When the caller gives up, nothing more is read.
func OverStream(conn net.Conn, handler Handler) *Conn {
	return begin(newStreams(conn), handler, MaxMessage)
}

// begin starts a channel.
func begin(carrier carrier, handler Handler, longest int) *Conn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Conn{carrier: carrier, handler: handler, longest: longest, ctx: ctx, cancel: cancel,
		writing: make(chan struct{}, 1), noticed: make(chan struct{}),
		calls: map[uint64]chan *message{}, serving: map[uint64]context.CancelFunc{}}
	c.readers.Add(1)
	go c.read()
	return c
}

// FromFile starts a channel on a socket inherited as f, which it closes.
func FromFile(f *os.File, handler Handler) (*Conn, error) {
	conn, err := net.FileConn(f)
	f.Close() // before a request can start a process, which would inherit it
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("control socket: %s is no Unix socket", conn.LocalAddr().Network())
	}
	return New(sock, handler), nil
}

// Pair makes a channel to a child: the parent's end, running, and the file that
// the child is to inherit and the caller closes.
func Pair(handler Handler) (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	child := os.NewFile(uintptr(fds[1]), "control")
	conn, err := FromFile(os.NewFile(uintptr(fds[0]), "control"), handler)
	if err != nil {
		child.Close()
		return nil, nil, err
	}
	return conn, child, nil
}

// Done is closed when the channel has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Wait returns when the channel has ended and all notices are handled that the
// peer sent before. It is not for handlers of notices.
func (c *Conn) Wait() { <-c.noticed }

// Close ends the channel and waits until its reader has stopped; handlers have
// their context cancelled and may still be running.
func (c *Conn) Close() {
	c.End()
	c.readers.Wait()
}

// End has the channel end, and does not wait for it: a handler may call it.
func (c *Conn) End() {
	c.cancel()
	c.carrier.close()
}

// Peer returns the process at the other end, as the kernel vouches for it. It fails for a
// channel over a stream, whose peer is no process of this machine.
func (c *Conn) Peer() (*unix.Ucred, error) { return c.carrier.peer() }

// call is that of Caller.
func (c *Conn) call(ctx context.Context, method string, params, result any, files ...*os.File) error {
	return c.callBehind(ctx, "", method, params, result, files)
}

// callBehind is call to the one behind the peer, or to the peer if that is "".
func (c *Conn) callBehind(ctx context.Context, behind, method string, params, result any, files []*os.File) error {
	body, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	answer, err := c.exchange(ctx, &message{Method: method, Params: body, Behind: behind}, files, nil)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("%s: answer: %w", method, err)
	}
	return nil
}

// exchange sends a request and returns the result that is its answer. sent, if there is
// one, is called when the files are on their way.
func (c *Conn) exchange(ctx context.Context, request *message, files []*os.File, sent func()) (json.RawMessage, error) {
	m, err := c.await(ctx, request, files, sent)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", request.Method, err)
	case m.Closed:
		return nil, fmt.Errorf("%s: %w", request.Method, ErrClosed)
	case m.Error != nil:
		return nil, m.Error
	}
	return m.Result, nil
}

// await sends a request, which it numbers, and waits for its answer.
func (c *Conn) await(ctx context.Context, request *message, files []*os.File, sent func()) (*message, error) {
	answer := make(chan *message, 1)
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	request.ID, request.lent = id, isLent(ctx)
	c.calls[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, request, files); err != nil {
		if ctx.Err() != nil {
			c.giveUp(id)
		}
		return nil, err
	}
	if sent != nil {
		sent()
	}
	select {
	case m := <-answer:
		flush(ctx, request.streams)
		return m, nil
	case <-ctx.Done():
		c.giveUp(id)
		abandon(request.streams)
		return nil, ctx.Err()
	case <-c.ctx.Done():
		select { // an answer that came just before the end still counts
		case m := <-answer:
			flush(ctx, request.streams)
			return m, nil
		default:
			return nil, ErrClosed
		}
	}
}

// giveUp tells the peer that nobody waits for an answer any more, without
// waiting for a peer that does not read. It does nothing for a request that was
// never sent.
func (c *Conn) giveUp(id uint64) {
	go func() {
		// If the channel ends first, the peer learns it by that.
		_ = c.send(c.ctx, &message{ID: id, Cancel: true}, nil)
	}()
}

// notify is that of Caller.
func (c *Conn) notify(method string, params any) error {
	return c.notifyBehind("", method, params)
}

// notifyBehind is notify to the one behind the peer.
func (c *Conn) notifyBehind(behind, method string, params any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return c.tell(&message{Method: method, Params: body, Behind: behind})
}

// tell sends a notice.
func (c *Conn) tell(notice *message) error {
	if err := c.send(c.ctx, notice, nil); err != nil {
		return fmt.Errorf("%s: %w", notice.Method, err)
	}
	return nil
}
