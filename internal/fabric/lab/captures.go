package lab

import (
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
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
// writes files as its user.

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
	arrived <- capture.Source{Socket: r.Files[0], Tap: r.Files[1], Direction: params.Direction, Carried: params.Carried}
	r.Files[0], r.Files[1] = nil, nil
	return nil
}

// beginCapture also returns a function that says why there is nothing more to come,
// to be called once that is so (Source.Gone).
func (l *Lab) beginCapture(ctx context.Context, endpoint string) (capture.Source, func() error, error) {
	id, arrived := l.captures.add()
	gone := make(chan struct{})
	var over error
	why := func() error { return over }
	go func() {
		over = l.whyEnded(methodCapture.Call(ctx, l.conn, captureParams{ID: id, Endpoint: endpoint}))
		l.captures.remove(id)
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

// capture answers methodCapture, when the capture is over.
func (a *linkAPI) capture(ctx context.Context, r *control.Request, params captureParams) error {
	if err := a.isAlone("a capture"); err != nil {
		return err
	}
	topo := a.topology()
	index, err := findLink(topo, params.Endpoint)
	if err != nil {
		return control.Errorf(control.Usage, "lab %s has no interface %s", a.lab, params.Endpoint)
	}
	spec := &topo.Links[index]
	l := a.here.links.link(spec)
	end := 0
	if spec.Endpoints[1].String() == params.Endpoint {
		end = 1
	}
	e := spec.Endpoints[end]
	ctx, cancel := context.WithCancel(ctx) // before untap, which waits for nobody
	defer cancel()
	theirs, carried, untap, err := l.tap(ctx)
	if untap != nil {
		defer untap()
	}
	if err != nil {
		return err
	}
	present := a.machines.life(e.Node)
	var down chan struct{} // of an external or a switch: never
	if present != nil {
		down = present.down
	}
	socket, err := a.openCapture(spec, end) // behind the tap, which then tells of all that it gets
	if err != nil {
		theirs.Close()
		return err
	}
	defer socket.Close()
	err = methodSocket.Call(ctx, r.Conn, socketParams{ID: params.ID, Direction: end, Carried: carried}, socket, theirs)
	theirs.Close()
	socket.Close() // or it would keep all that the command does not take
	if err != nil {
		return err
	}
	a.publish(event.Event{Kind: event.CaptureStarted, Node: e.Node, Link: params.Endpoint, Text: fmt.Sprintf("capture of %s begins", params.Endpoint)})
	defer a.publish(event.Event{Kind: event.CaptureDone, Node: e.Node, Link: params.Endpoint, Text: fmt.Sprintf("capture of %s is over", params.Endpoint)})
	select {
	case <-down: // the socket would keep its interface alive
		return control.Errorf(control.Usage, "node %s is down: %s", e.Node, present.reason)
	case <-l.gone:
		return control.Errorf(control.Usage, "link %s is in the lab no more", spec.Endpoints[0])
	case <-ctx.Done():
	}
	return nil
}

// openCapture opens a packet socket at a link's end, which stays in its namespace.
func (a *linkAPI) openCapture(spec *topology.Link, end int) (*os.File, error) {
	var namespace *os.File
	e := spec.Endpoints[end]
	switch {
	case a.here.links.hasBuffer(e.Node):
		return nil, control.Errorf(control.Usage, atBuffer, "capture", e, "capture the link, or the interface of a node beside the switch")
	case a.here.links.switchOf(e.Node) != nil:
		return capture.Open(link.Port(spec.Number, end)) // in our own
	case e.External():
		namespace = a.here.links.externals[e.Interface].namespace
	default:
		if _, err := a.nodeAPI.agent(e.Node); err != nil {
			return nil, err
		}
		life, err := a.alive(e.Node)
		if err != nil {
			return nil, err
		}
		namespace, err = os.Open("/proc/" + strconv.Itoa(life.agent.PID()) + "/ns/net")
		if err != nil {
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
	on   bool            // the engine has it
}

// tap makes a tap on a link. If the engine carries the link, the tap is on.
func (l *labLink) tap(ctx context.Context) (theirs *os.File, carried bool, untap func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, false, nil, fmt.Errorf("tap: %w", err)
	}
	t := &linkTap{ctx: ctx, file: os.NewFile(uintptr(fds[0]), "tap")}
	theirs = os.NewFile(uintptr(fds[1]), "tap")
	l.acting.Lock()
	defer l.acting.Unlock()
	l.taps = append(l.taps, t)
	untap = func() {
		l.acting.Lock()
		defer l.acting.Unlock()
		l.taps = slices.DeleteFunc(l.taps, func(u *linkTap) bool { return u == t })
		if !t.on {
			t.file.Close()
		}
	}
	if _, ours := l.carrier().(linkemCarrier); !ours || !l.engaged {
		return theirs, false, untap, nil
	}
	if err := l.startTaps(); err != nil {
		theirs.Close()
		return nil, false, untap, err
	}
	return theirs, true, untap, nil
}

// startTaps has the engine, which has the link, tell the taps that are not on, and waits
// until they are: else packets that the engine decides on meanwhile would be taken for
// those of the kernel. acting is held.
func (l *labLink) startTaps() error {
	for _, t := range l.taps {
		if t.on {
			continue
		}
		on, begins, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("link %s: tap: %w", l.name(), err)
		}
		t.on = true
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
