package lab

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file gives commands the packets of interfaces, at both ends of the lab's
// channel. The supervisor opens a packet socket in the namespace of the interface
// and hands it to the command, which reads it for as long as its request stands.
// So the command bears the cost of a capture in processor time and memory, and
// writes files as its user. Of an interface at another host, the part there reads the
// socket, and the command has a stream of what it gives.

// Capture begins to capture an interface, node:interface, until ctx ends, its
// node or the lab. It is for package capture to read.
func (l *Lab) Capture(ctx context.Context, endpoint string) (capture.Source, error) {
	source, _, err := l.beginCapture(ctx, endpoint)
	return source, err
}

// captureRequests are the captures that have been requested and whose sockets have not come.
type captureRequests struct {
	mu      sync.Mutex // guards what follows
	last    uint64
	pending map[uint64]chan<- capture.Source // by captureParams.ID
}

// add adds a request, and returns its ID and where its socket comes.
func (c *captureRequests) add() (uint64, <-chan capture.Source) {
	arrived := make(chan capture.Source, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		c.pending = map[uint64]chan<- capture.Source{}
	}
	c.last++
	c.pending[c.last] = arrived
	return c.last, arrived
}

// remove removes a request, if it is there.
func (c *captureRequests) remove(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// takeSocket answers methodSocket.
func (c *captureRequests) takeSocket(_ context.Context, r *control.Request, params socketParams) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	arrived := c.pending[params.ID]
	if arrived == nil {
		return control.Errorf(control.Usage, "nobody waits for capture %d", params.ID)
	}
	delete(c.pending, params.ID)
	arrived <- capture.Source{Socket: r.Files[0], Stream: params.Stream, Tap: r.Files[1], Direction: params.Direction, Carried: params.Carried, Host: params.Host, Clock: params.Clock}
	r.Files[0], r.Files[1] = nil, nil
	return nil
}

// begin has a capture of an interface begin by asking for it, for as long as that lasts. It also returns a function that
// says why there is nothing more to come, to be called once that is so (Source.Gone).
func (c *captureRequests) begin(endpoint string, ask func(captureParams) error) (capture.Source, func() error, error) {
	id, arrived := c.add()
	gone := make(chan struct{})
	var over error
	why := func() error { return over }
	go func() {
		over = ask(captureParams{ID: id, Endpoint: endpoint})
		c.remove(id)
		close(gone)
	}()
	select {
	case source := <-arrived:
		source.Name, source.Gone = endpoint, gone
		return source, why, nil
	case <-gone:
		select {
		case source := <-arrived: // and it is over already
			source.Name, source.Gone = endpoint, gone
			return source, why, nil
		default:
		}
		if over == nil {
			over = fmt.Errorf("capture of %s: nothing came", endpoint)
		}
		return capture.Source{}, nil, over
	}
}

// beginCapture is begin of a command.
func (l *Lab) beginCapture(ctx context.Context, endpoint string) (capture.Source, func() error, error) {
	return l.captures.begin(endpoint, func(params captureParams) error { return l.whyEnded(methodCapture.Call(ctx, l.conn, params)) })
}

// capture answers methodCapture, when the capture is over.
func (a *linkAPI) capture(ctx context.Context, r *control.Request, params captureParams) error {
	topo := a.topology()
	spec, end, ok := endOf(topo, params.Endpoint)
	if !ok {
		return control.Errorf(control.Usage, "lab %s has no interface %s", a.lab, params.Endpoint)
	}
	e := spec.Endpoints[end]
	var present *life
	var down chan struct{} // of an external, a switch, or what has a packet buffer: never
	if of := topo.FindNode(e.Node); of != nil && of.Kind != topology.Switch && of.Buffer == nil {
		if _, err := a.nodeAPI.agent(e.Node); err != nil {
			return err
		}
		var err error
		if present, err = a.alive(e.Node); err != nil {
			return err
		}
		down = present.down
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- a.machines.capture(ctx, r.Conn, spec, end, params.ID) }()
	select {
	case <-down: // the socket would keep its interface alive
		cancel()
		<-over
		return control.Errorf(control.Usage, "node %s is down: %s", e.Node, present.reason)
	case err := <-over:
		return err
	}
}

// endOf returns the link with an endpoint, node:interface, and which end that is.
func endOf(topo *topology.Topology, endpoint string) (spec *topology.Link, end int, ok bool) {
	index, ok := topo.FindLink(endpoint)
	if !ok {
		return nil, 0, false
	}
	spec = &topo.Links[index]
	if spec.Endpoints[1].String() == endpoint {
		end = 1
	}
	return spec, end, true
}

// capture captures the interface at a link's end until ctx ends, or the link is gone. It gives whoever asks for it a
// packet socket and a tap (methodSocket), or for one at another host, which can have no such socket, a stream of what
// the socket gives.
func (m *machine) capture(ctx context.Context, to control.Caller, spec *topology.Link, end int, id uint64) error {
	l, e := m.links.link(spec), spec.Endpoints[end]
	ctx, cancel := context.WithCancel(ctx) // before untap, which waits for nobody
	defer cancel()
	theirs, tapped, untap, err := l.tap(ctx)
	if untap != nil {
		defer untap()
	}
	if err != nil {
		return err
	}
	defer theirs.Close()
	socket, err := m.openCapture(spec, end) // behind the tap, which then tells of all that it gets
	if err != nil {
		return err
	}
	defer socket.Close()
	given := socket
	var sent chan error
	if m.afar {
		var ours *os.File
		if ours, given, err = streamPair("capture"); err != nil {
			return err
		}
		defer given.Close()
		sent = make(chan error, 1)
		go func() { sent <- capture.Send(ctx, socket, ours, tapped, m.difference) }()
		defer func() { // all that was captured
			cancel()
			if sent != nil {
				<-sent
			}
		}()
	}
	err = methodSocket.Call(ctx, to, socketParams{ID: id, Direction: end, Carried: tapped(), Stream: m.afar, Host: m.host, Clock: m.difference()}, given, theirs)
	theirs.Close()
	given.Close() // or a socket would keep all that the command does not take
	if err != nil {
		return err
	}
	m.publish(event.Event{Kind: event.CaptureStarted, Node: e.Node, Link: e.String(), Text: fmt.Sprintf("capture of %s begins", e)})
	defer m.publish(event.Event{Kind: event.CaptureDone, Node: e.Node, Link: e.String(), Text: fmt.Sprintf("capture of %s is over", e)})
	for {
		select {
		case err := <-sent: // its reader wants no more, unless it has failed
			if sent = nil; err != nil {
				return fmt.Errorf("interface %s: %w", e, err)
			}
		case <-l.gone:
			return control.Errorf(control.Usage, "link %s is in the lab no more", spec.Endpoints[0])
		case <-ctx.Done():
			return nil
		}
	}
}

// capture has the part of an interface capture it, and passes on what that gives.
func (h *head) capture(ctx context.Context, to control.Caller, spec *topology.Link, end int, id uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := spec.Endpoints[end]
	p := h.ofEnd(spec, end)
	source, why, err := h.captures.begin(e.String(), func(params captureParams) error { return methodCapture.Call(ctx, p.Conn, params) })
	if err != nil {
		return err
	}
	err = methodSocket.Call(ctx, to, socketParams{ID: id, Direction: source.Direction, Carried: source.Carried, Stream: source.Stream, Host: source.Host, Clock: source.Clock}, source.Socket, source.Tap)
	source.Close()
	if err != nil {
		cancel()
	}
	<-source.Gone
	return cmp.Or(err, why())
}

// capture answers methodCapture of the head.
func (p *part) capture(ctx context.Context, r *control.Request, params captureParams) error {
	spec, end, ok := endOf(p.topo.Load(), params.Endpoint)
	if !ok {
		return control.Errorf(control.Usage, "there is no interface %s", params.Endpoint)
	}
	return p.machine.capture(ctx, r.Conn, spec, end, params.ID)
}

// openCapture opens a packet socket at a link's end, which stays in its namespace.
func (m *machine) openCapture(spec *topology.Link, end int) (*os.File, error) {
	var namespace *os.File
	e := spec.Endpoints[end]
	switch {
	case m.links.hasBuffer(e.Node):
		return nil, control.Errorf(control.Usage, atBuffer, "capture", e, "capture the link, or the interface of a node beside the switch")
	case m.links.switchOf(e.Node) != nil:
		return capture.Open(link.Port(spec.Number, end)) // in our own
	case e.External():
		namespace = m.links.externals[e.Interface].namespace
	default:
		life := m.life(e.Node)
		if life == nil {
			return nil, control.Errorf(control.Usage, "node %s is down", e.Node)
		}
		var err error
		if namespace, err = life.agent.Network(); err != nil {
			return nil, fmt.Errorf("node %s: %w", e.Node, err)
		}
		defer namespace.Close()
	}
	var socket *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			socket, err = capture.Open(e.Interface)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("interface %s: %w", e, err)
	}
	return socket, nil
}

// A linkTap is a tap on a link for a capture. It begins with the engine's first
// term with the link, and from then on tells of each.
type linkTap struct {
	ctx  context.Context // ends with the capture
	file *os.File        // for the engine to write to
	on   atomic.Bool     // the engine has it; written with acting held
}

// streamPair makes a pair of sockets for a stream.
func streamPair(name string) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// tap makes a tap on a link. on reports whether it is on, which it is from the beginning if the engine carries the link.
func (l *labLink) tap(ctx context.Context) (theirs *os.File, on func() bool, untap func(), err error) {
	t := &linkTap{ctx: ctx}
	if t.file, theirs, err = streamPair("tap"); err != nil {
		return nil, nil, nil, err
	}
	l.acting.Lock()
	defer l.acting.Unlock()
	l.taps = append(l.taps, t)
	untap = func() {
		l.acting.Lock()
		defer l.acting.Unlock()
		l.taps = slices.DeleteFunc(l.taps, func(u *linkTap) bool { return u == t })
		if !t.on.Load() {
			t.file.Close()
		}
	}
	if _, ours := l.carrier().(linkemCarrier); !ours || !l.engaged {
		return theirs, t.on.Load, untap, nil
	}
	if err := l.startTaps(); err != nil {
		theirs.Close()
		return nil, nil, untap, err
	}
	return theirs, t.on.Load, untap, nil
}

// startTaps has the engine, which has the link, tell the taps that are not on, and waits
// until they are: else packets that the engine decides on meanwhile would be taken for
// those of the kernel. acting is held.
func (l *labLink) startTaps() error {
	for _, t := range l.taps {
		if t.on.Load() {
			continue
		}
		on, begins, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("link %s: tap: %w", l.name(), err)
		}
		t.on.Store(true)
		engine, name := l.engine.current(), l.name()
		go func() {
			defer t.file.Close()
			defer begins.Close()
			if err := engine.Tap(t.ctx, name, capture.TapLength, t.file, begins); err != nil && t.ctx.Err() == nil {
				log.Printf("link %s: tap: %v", name, err)
			}
		}()
		err = awaitTap(on)
		on.Close()
		if err != nil && t.ctx.Err() == nil {
			return fmt.Errorf("link %s: tap: %w", name, err)
		}
	}
	return nil
}

// awaitTap waits until the stream of a tap has begun.
func awaitTap(on *os.File) error {
	if err := on.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	_, err := on.Read(make([]byte, 1))
	return err
}
