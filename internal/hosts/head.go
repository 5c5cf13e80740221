package hosts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

// A Head is the lab's end of the connections to its hosts. Its methods may be called from any goroutine.
type Head struct {
	listener net.Listener
	launch   *control.Conn // to the guardian's Launch
	serve    func(*Host) control.Handler
	lost     chan Loss     // has room for all
	changed  chan struct{} // holds a token when Await is to look again

	// Announce tells workers that others have started of the head, by an assignment. It is set before Await if there may
	// be such.
	Announce func(ctx context.Context, assignment string) error

	after func(time.Duration) <-chan time.Time // time.After but in tests

	launcherOver chan struct{} // closed when the launcher has ended, for launcherEnd
	launcherEnd  error

	settings settings // set before anything is accepted

	greeting chan struct{} // holds a token for each connection that is not authenticated yet

	mu       sync.Mutex // guards what follows
	expected int        // hosts; 0: not known before one has come
	attached []*attachment
	failure  error // the first
	losing   bool  // the first is that of a host, and its text is being made
	begun    bool  // all hosts have come
	lossy    bool  // one of them is gone
	ended    bool
}

// An attachment is a connection that a worker has made.
type attachment struct {
	head  *Head
	pulse *pulse
	conn  *control.Conn // set before it serves anything
	made  chan struct{} // closed when conn is set

	// Those that follow are guarded by the head's mu.
	host    *Host // nil before its hello
	told    bool  // its loss is, of a lab that goes on
	ready   bool  // its part is there
	handler control.Handler
}

// FromFiles makes a head of what a supervisor inherits of its guardian's Launch (Launch.Files), and closes the files. serve is
// called once for every host, before its part is there, and returns the handler of what that part asks.
func FromFiles(listener, launch *os.File, serve func(*Host) control.Handler) (*Head, error) {
	l, err := net.FileListener(listener)
	listener.Close()
	if err != nil {
		launch.Close()
		return nil, fmt.Errorf("socket for hosts: %w", err)
	}
	h := &Head{
		listener: l, serve: serve, after: time.After, lost: make(chan Loss, MaxHosts+1), changed: make(chan struct{}, 1), launcherOver: make(chan struct{}),
		greeting: make(chan struct{}, mostGreetings),
	}
	if h.launch, err = control.FromFile(launch, nil); err != nil {
		l.Close()
		return nil, err
	}
	return h, nil
}

// A Loss is a host that is gone, or all of them with the launcher.
type Loss struct {
	Host *Host // nil: all, or one that has not come
	Err  error // names the host and says why
}

// Lost has the first loss, from which others follow, or every one of a lab that goes on.
func (h *Head) Lost() <-chan Loss { return h.lost }

// Await has the workers started and returns the hosts in order of Index, when all are there with their parts. The error says
// which are missing, and why. It is called once.
func (h *Head) Await(ctx context.Context) ([]*Host, error) {
	var err error
	if h.settings, err = methodLaunch.Call(ctx, h.launch, nil); err != nil {
		return nil, err
	}
	credentials, err := ParseCredentials(h.settings.Credentials)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.expected = len(h.settings.Names)
	h.mu.Unlock()
	go h.watchLaunch()
	go h.accept(credentials.config())
	if h.settings.Announce {
		if err := h.announce(ctx); err != nil {
			return nil, err
		}
	}
	var late <-chan time.Time
	for {
		found, begun, err := h.found()
		if found != nil || err != nil {
			return found, err
		}
		// An allocation may take any time before it is granted; its first worker shows that it was.
		if late == nil && (begun || !h.settings.Waits) {
			late = h.after(h.settings.Come)
		}
		select {
		case <-h.changed:
		case <-late:
			return nil, control.Errorf(control.Unable, "%s: not there after %v; look whether it is up, and whether a firewall keeps it from %s", h.missing(), h.settings.Come, strings.Join(h.settings.Addresses, " or "))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *Head) announce(ctx context.Context) error {
	told, err := json.Marshal(assignment{Addresses: h.settings.Addresses, Credentials: h.settings.Credentials})
	if err != nil {
		return err
	}
	return h.Announce(ctx, string(told))
}

// found returns all hosts if they are there; begun says that one is.
func (h *Head) found() (found []*Host, begun bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure != nil {
		return nil, false, h.failure
	}
	for _, a := range h.attached {
		begun = begun || a.host != nil
		if a.ready {
			found = append(found, a.host)
		}
	}
	if h.expected == 0 || len(found) < h.expected {
		return nil, begun, nil
	}
	h.begun = true
	slices.SortFunc(found, func(a, b *Host) int { return a.Index - b.Index })
	return found, begun, nil
}

// missing names the hosts that are not there.
func (h *Head) missing() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[int]bool{}
	for _, a := range h.attached {
		if a.ready {
			there[a.host.Index] = true
		}
	}
	var names []string
	for i := range h.expected {
		if !there[i] {
			names = append(names, h.name(i))
		}
	}
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + strings.Join(names, ", ")
}

// name returns that of a host, as far as it is known.
func (h *Head) name(index int) string {
	if index < len(h.settings.Names) {
		return h.settings.Names[index]
	}
	return "number " + strconv.Itoa(index+1)
}

// look has Await look again.
func (h *Head) look() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// fail is the loss of something, unless the lab is ending. The first counts: others follow from it.
func (h *Head) fail(l Loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.losing {
		h.failAs(l)
	}
}

// failAs is fail for the one that has set losing; mu is held.
func (h *Head) failAs(l Loss) {
	if h.ended || h.failure != nil {
		return
	}
	h.failure = l.Err
	h.lost <- l
	h.look()
}

// goesOn reports whether the loss of a host leaves the others: all have come, and the lab is to go on. mu is held.
func (h *Head) goesOn() bool { return h.settings.Continues && h.begun }

// leave is the loss of the attachment's host from a lab that goes on, which is told once; mu is held.
func (a *attachment) leave(reason string) {
	if h := a.head; !a.told && !h.ended && h.failure == nil {
		a.told = true
		h.lost <- Loss{a.host, goneError(a.host, reason)}
	}
}

// watchLaunch waits for the end of the launcher, without which there are no hosts.
func (h *Head) watchLaunch() {
	err := methodAwait.Call(context.Background(), h.launch, nil)
	if errors.Is(err, control.ErrClosed) {
		return // nothing depends on the guardian; workers end with the head
	}
	if err == nil {
		err = control.Errorf(control.Failed, "the launcher has ended")
	}
	h.launcherEnd = err
	close(h.launcherOver)
	h.mu.Lock()
	begun, apart := len(h.attached) > 0, h.goesOn() && h.settings.Apart
	h.mu.Unlock()
	if apart {
		return // it was that of one host, which is lost with its worker
	}
	if begun {
		select { // the host whose end this is says more
		case <-time.After(launcherTime):
		case <-h.launch.Done():
		}
	}
	h.fail(Loss{Err: err})
}

// launcherTime bounds the time between the ends of a host's worker and of its launcher. Each says what the other does not: which
// host it was, and what its last words were.
const launcherTime = 250 * time.Millisecond

// accept takes the workers' connections until the listener is closed. While there are too many that are not authenticated, others
// wait in the kernel: anybody in the network can make some.
func (h *Head) accept(config *tls.Config) {
	for {
		h.greeting <- struct{}{}
		c, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-h.greeting
			log.Printf("hosts: %v", err) // out of descriptors, which passes
			time.Sleep(acceptRetry)
			continue
		}
		go func() {
			a, stream := h.authenticate(c, config)
			<-h.greeting
			if a != nil {
				h.attach(a, stream)
			}
		}()
	}
}

const (
	acceptRetry = 10 * time.Millisecond
	// handshakeTime bounds the time in which a connection is authenticated.
	handshakeTime = 10 * time.Second
	// mostGreetings bounds the connections that are not authenticated yet.
	mostGreetings = 64
)

// authenticate closes a connection that no worker of the lab has made, and then returns nil.
func (h *Head) authenticate(c net.Conn, config *tls.Config) (*attachment, *tls.Conn) {
	a := &attachment{head: h, pulse: &pulse{Conn: c}, made: make(chan struct{})}
	stream := tls.Server(a.pulse, config)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	if err := stream.HandshakeContext(ctx); err != nil {
		c.Close()
		log.Printf("hosts: connection from %v: %v", c.RemoteAddr(), err)
		return nil, nil
	}
	return a, stream
}

// attach serves a connection that a worker of the lab has made.
func (h *Head) attach(a *attachment, stream *tls.Conn) {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		a.pulse.Close()
		return
	}
	a.conn = control.OverStream(stream, a.answer)
	h.attached = append(h.attached, a)
	h.mu.Unlock()
	close(a.made)
	go beat(a.conn)
	<-a.conn.Done()
	a.lose()
}

// lose is the end of an attachment.
func (a *attachment) lose() {
	h := a.head
	h.mu.Lock()
	h.attached = slices.DeleteFunc(h.attached, func(other *attachment) bool { return other == a })
	host := a.host
	h.lossy = h.lossy || host != nil && !h.ended
	if host != nil && h.goesOn() {
		reason, _ := a.pulse.reason()
		a.leave(reason)
		h.mu.Unlock()
		return
	}
	first := host != nil && !h.losing && h.failure == nil && !h.ended // host is nil of a worker that was refused, which Await knows
	h.losing = h.losing || first
	h.mu.Unlock()
	if !first {
		return
	}
	reason, silent := a.pulse.reason()
	if !silent {
		select {
		case <-h.launcherOver:
			reason += fmt.Sprintf(" (%v)", h.launcherEnd)
		case <-time.After(launcherTime):
		case <-h.launch.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failAs(Loss{host, goneError(host, reason)})
}

func goneError(host *Host, reason string) error {
	return control.Errorf(control.Failed, "host %s is gone: %s", host.Name, reason)
}

// answer is the handler of what a worker asks, and of what its part does.
func (a *attachment) answer(ctx context.Context, r *control.Request) (any, error) {
	if strings.HasPrefix(r.Method, prefix) {
		return a.requests().Serve(ctx, r)
	}
	a.head.mu.Lock()
	handler := a.handler
	a.head.mu.Unlock()
	if handler == nil {
		return nil, control.Errorf(control.Usage, "%s: the worker has not said which host it is on", r.Method)
	}
	return handler(ctx, r)
}

func (a *attachment) requests() *control.Mux {
	mux := new(control.Mux)
	noticeBeat.Handle(mux, func(context.Context, *control.Request, control.None) error { return nil })
	methodHello.Handle(mux, func(_ context.Context, _ *control.Request, said hello) (welcome, error) {
		<-a.made
		if err := a.admit(said); err != nil {
			a.head.fail(Loss{Err: err})
			return welcome{}, err
		}
		return welcome{Lab: a.head.settings.Lab}, nil
	})
	methodReady.Handle(mux, func(ctx context.Context, _ *control.Request, _ control.None) error { return a.beReady(ctx) })
	methodFarewell.Handle(mux, func(_ context.Context, _ *control.Request, reason string) error {
		h := a.head
		h.mu.Lock()
		defer h.mu.Unlock()
		switch { // before its worker ends, which says less
		case a.host == nil:
		case h.goesOn():
			a.leave(reason)
		case !h.losing:
			h.failAs(Loss{a.host, goneError(a.host, reason)})
		}
		return nil
	})
	return mux
}

// admit makes a host of what a worker says of itself.
func (a *attachment) admit(said hello) error {
	h := a.head
	if own := build(); said.Build != own {
		return buildError(said.Name, said.Build, own)
	}
	host := &Host{Name: said.Name, Index: said.Index, CPUs: said.CPUs, Memory: said.Memory, Conn: a.conn, link: a, clock: &comparison{wall: readClocks}}
	if address, ok := a.pulse.RemoteAddr().(*net.TCPAddr); ok {
		host.Address = address.IP.String()
	}
	if h.settings.Names != nil {
		host.Index = slices.Index(h.settings.Names, said.Name) // Slurm may number them otherwise
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.expected == 0 {
		h.expected = said.Count
	}
	if host.Index < 0 || host.Index >= h.expected {
		return control.Errorf(control.Failed, "host %s is none of the %d that were asked for", said.Name, h.expected)
	}
	for _, other := range h.attached {
		if other.host != nil && (other.host.Index == host.Index || other.host.Name == host.Name) {
			return control.Errorf(control.Failed, "two workers have come as host %s, number %d: expected one a host", host.Name, host.Index+1)
		}
	}
	a.host = host
	return nil
}

// buildError is that of a host whose program is another one.
func buildError(host, theirs, own string) error {
	return control.Errorf(control.Unable, "host %s runs another build of ndklab (%s) than this one (%s): install the same program on all hosts", host, theirs, own)
}

// beReady makes the host one of those that have come.
func (a *attachment) beReady(ctx context.Context) error {
	h := a.head
	h.mu.Lock()
	host := a.host
	h.mu.Unlock()
	if host == nil {
		return control.Errorf(control.Usage, "%sready: the worker has not said which host it is on", prefix)
	}
	if err := host.clock.measure(ctx, a.conn, firstTrips); err != nil {
		return err
	}
	go host.clock.follow(a.conn)
	host.Trip = host.clock.trip() // nobody has it before ready is set
	handler := h.serve(host)
	h.mu.Lock()
	a.handler, a.ready = handler, true
	h.mu.Unlock()
	h.look()
	return nil
}

// End ends the workers and their parts, and all connections. Then the launcher ends, too. It waits at most endTime for
// hosts that do not end; those end by themselves.
func (h *Head) End() {
	h.mu.Lock()
	h.ended = true
	attached, lossy := slices.Clone(h.attached), h.lossy
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	var told sync.WaitGroup
	var silent atomic.Bool
	for _, a := range attached {
		told.Go(func() {
			// It fails if the worker has just ended, or does not answer. Then it ends by the silence that follows.
			_ = methodEnd.Call(ctx, a.conn, nil)
			select {
			case <-a.conn.Done():
			case <-ctx.Done():
				silent.Store(true)
				a.conn.Close()
			}
		})
	}
	told.Wait()
	patience := overPatience
	if lossy {
		patience = lossPatience
	}
	if lossy || !silent.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		// A guardian that is gone has no launcher.
		_ = methodPatience.Call(ctx, h.launch, patience)
	}
	h.listener.Close()
	h.launch.Close()
}

// endTime bounds the time that a process is given to end before it is killed.
const endTime = 2 * time.Second
