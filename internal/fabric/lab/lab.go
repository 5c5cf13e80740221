// Package lab runs labs: it starts the processes of a topology, joins them, and
// answers for them until they are taken down, after which nothing is left.
//
// A lab is a supervisor process in namespaces of its own (supervisor.go), from
// which everything else hangs: one agent per host and router (package node), the
// switches (switches.go) and links (package link), and a link engine if a link is
// impaired (package linkem). A guardian outside (guardian.go) removes what the kernel
// does not when the supervisor has ended. Commands are clients of the supervisor's
// socket: a *Lab is their end. All of these processes are the same binary; a program
// that uses this package calls Child first of all.
//
// Package core decides what becomes of nodes and links: how a lab is built, changed to another topology, and what
// a command or the end of an agent leads to. The driver (driver.go) gives it commands and results, and carries its
// actions out: on agents, of which a node has another one each time that it is started (nodedriver.go, life.go), and on
// links and switches (linkdriver.go, lablink.go, switches.go).
//
// The package knows no YAML and prints nothing. Workloads run in the agents; here
// is who tells them when (run.go), and asks for their adapters (adapters.go); what
// happens is kept for who looks on (events.go, logs.go), waits (await.go) or has to look
// back when a run has failed (memory.go). A link may end outside the lab (externals.go),
// and a program outside have a node's adapter (admit.go).
//
// Start reading at Start and Lab for the commands' side, at supervise, Supervisor.build and driver for the lab's.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A Lab is a command's connection to a running lab. Its methods, and those of its fields,
// may be called from any goroutine. A failure because of the caller's request, the machine
// or the lab is a *control.Error of that code; after the lab's end every method
// fails with the reason of it.
type Lab struct {
	Nodes Nodes
	Links Links
	*session

	place place
	life  *os.File // the state file, whose lock is free once the lab's processes are gone; nil if it was removed
	info  Info
	nodes int  // that the lab has or, as it is starting, is to have
	owner bool // the lab ends with the connection
	// recorder is the process that writes the captures which the topology asks for.
	// It is nil unless this process started the lab.
	recorder *control.Conn

	closing  sync.Once
	closeErr error // of closing

	captures captureRequests
	announce func(ctx context.Context, assignment string) error // Options.Announce
	observed atomic.Pointer[observed]                           // by the last Observe; nil before

	mu     sync.Mutex // guards what follows
	events func(event.Event)
	memory *Memory // nil: nobody asked
}

// newLab returns a Lab without a connection.
func newLab(p place) *Lab {
	s := &session{over: make(chan struct{})}
	return &Lab{Nodes: Nodes{s}, Links: Links{s}, session: s, place: p}
}

// A session is the connection to a lab, until the lab ends.
type session struct {
	conn       *control.Conn
	recordings sync.WaitGroup // that need the connection

	over   chan struct{} // closed when the lab is ending, or the connection has
	reason error         // why it ended; valid once over is closed
}

// connect makes conn the session's connection.
func (s *session) connect(conn *control.Conn) {
	s.conn = conn
	go s.wait()
}

// Options hold what a caller of Start may choose.
type Options struct {
	// Events is called for every event of the lab, in order, one at a time. nil
	// if nobody wants them.
	Events func(event.Event)
	// Record, if not nil, is a file that every decision of the link engine is logged
	// to, which package impair says more of. Links that are plain, or netem's, have
	// none. The log is complete when the lab has ended. The file stays the caller's.
	Record *os.File
	// Replay, if not nil, is such a log: packets meet what was decided then on those
	// in their places. It is read before Start returns, and stays the caller's.
	Replay *os.File
	// Hosts says over which hosts the lab is to be (hosts.Parse); "": it is on this machine alone.
	Hosts string
	// Network is that in which hosts reach this machine, as --network says; "": any.
	Network string
	// Announce tells the workers of hosts of the kind hosts.Task of the lab (hosts.Step). nil if there are none.
	Announce func(ctx context.Context, assignment string) error
	// NotStarted is called with the lab's log if it does not come up: the log goes with
	// it. nil if nobody wants it.
	NotStarted func(log io.Reader)
}

// Start makes the lab of a topology and returns when every node is ready. The
// caller owns the lab, which ends with the caller's process, or with Close,
// unless Release is called. When ctx ends first, or anything fails, Start takes
// down what was made before it returns. topo must have a seed, and links of different
// numbers.
func Start(ctx context.Context, topo *topology.Topology, options Options) (*Lab, error) {
	if err := Refuse(topo); err != nil {
		return nil, err
	}
	p, err := placeOf(topo.Name)
	if err != nil {
		return nil, err
	}
	over := "" // which hosts
	if options.Hosts == "" {
		allowed := systemCapacity()
		err = allowed.check(topo)
	} else {
		over, err = acrossHosts(options.Hosts)
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	l := newLab(p)
	l.nodes, l.owner, l.events, l.announce = len(topo.Nodes), true, options.Events, options.Announce
	logFile, err := l.launch(ctx, len(topo.Captures) > 0, over, options.Network, topo.Continues())
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	params := startParams{
		Topology: topo, StateDir: p.dir, Privileged: privileged(), Dir: dir,
	}
	var files []*os.File
	for _, log := range []struct {
		file *os.File
		name *string
	}{{options.Record, &params.Record}, {options.Replay, &params.Replay}} {
		if log.file != nil {
			files, *log.name = append(files, log.file), log.file.Name()
		}
	}
	var startErr error
	l.info, startErr = call(ctx, l.session, methodStart, params, files...)
	if startErr == nil {
		startErr = l.startCaptures(ctx, topo.Captures)
	}
	if startErr == nil {
		return l, nil
	}
	if errors.Is(startErr, control.ErrClosed) {
		startErr = control.Errorf(control.Failed, "lab %s died while it was starting: %s", p.name, firstProblem(logFile))
	}
	if l.recorder != nil {
		l.recorder.Close() // it has nothing to complete
	}
	closeErr := l.Close()
	if options.NotStarted != nil {
		options.NotStarted(io.NewSectionReader(logFile, 0, 1<<62)) // from its beginning
	}
	return nil, errors.Join(startErr, closeErr)
}

// launch starts the guardian, and through it the supervisor, and if need be the
// recorder. The log is open for reading when it returns.
func (l *Lab) launch(ctx context.Context, records bool, hosts, network string, continues bool) (logFile *os.File, err error) {
	listener, err := l.place.bind()
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	locked, err := l.place.reserve(ctx)
	if err != nil {
		return nil, err
	}
	defer locked.Close()
	var open []*os.File
	defer func() {
		if err == nil {
			return
		}
		for _, f := range open {
			f.Close()
		}
		err = errors.Join(err, l.place.clean())
	}()
	if l.life, err = os.Open(l.place.stateFile()); err != nil {
		return nil, err
	}
	open = append(open, l.life)
	logFile, err = os.OpenFile(l.place.logFile(), os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, noState("log", err)
	}
	open = append(open, logFile)
	conn, theirs, err := control.Pair(l.requests().Serve)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	guardian := childCommand(guardianName, l.place.name, logFile, theirs, listener, locked)
	if hosts != "" {
		guardian.Env = append(os.Environ(), hostsVariable+"="+hosts, networkVariable+"="+network) // srun and ssh need what the caller has
		if continues {
			guardian.Env = append(guardian.Env, continuesVariable+"=1")
		}
	}
	guardian.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of the reach of the terminal's signals
	if records {
		if err := l.startRecorder(logFile, locked); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if err := guardian.Start(); err != nil {
		conn.Close()
		if records {
			l.recorder.Close()
		}
		return nil, fmt.Errorf("start guardian: %w", err)
	}
	go func() {
		// For as long as we live it is our child; how it ends does not matter.
		_ = guardian.Wait()
	}()
	l.connect(conn)
	return logFile, nil
}

// Open connects to a lab of the caller's that is up.
func Open(ctx context.Context, name string) (*Lab, error) {
	p, err := placeOf(name)
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, p, endTime)
	if err == nil || !errors.Is(err, errNoLab) {
		return l, err
	}
	labs, listErr := List(ctx)
	if listErr != nil {
		return nil, listErr
	}
	return nil, notUp(name, labs)
}

// notUp returns the error that a lab is not up, with the labs that are.
func notUp(name string, labs []Info) error {
	var names []string
	for _, info := range labs {
		if info.Lab != name { // one that has come up, or not quite ended, meanwhile
			names = append(names, info.Lab)
		}
	}
	up := "no lab is"
	switch len(names) {
	case 0:
	case 1:
		up = names[0] + " is"
	default:
		up = strings.Join(names, ", ") + " are"
	}
	return control.Errorf(control.Usage, "lab %s is not up (%s)", name, up)
}

var errNoLab = errors.New("no such lab")

// open connects to a lab, which has until limit to say what it is.
func open(ctx context.Context, p place, limit time.Duration) (*Lab, error) {
	asked, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	life, err := os.Open(p.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		life, err = nil, nil // somebody may have removed that of a lab which is up
	}
	if err != nil {
		return nil, err
	}
	sock, err := p.dial(asked)
	if err != nil {
		life.Close()
		var failure net.Error
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, errNoLab
		case errors.As(err, &failure) && failure.Timeout() && ctx.Err() == nil:
			return nil, p.mute()
		}
		return nil, err
	}
	l := newLab(p)
	l.life = life
	l.connect(control.New(sock, l.requests().Serve))
	if l.info, err = methodInfo.Call(asked, l.conn, nil); err != nil {
		// A client's close does no more than close.
		_ = l.Close()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, p.mute()
		}
		if errors.Is(err, control.ErrClosed) {
			return nil, errNoLab // it was about to end
		}
		return nil, err
	}
	l.nodes = l.info.Nodes
	return l, nil
}

// answerTimeout bounds the time that List waits for a lab to say what it is.
const answerTimeout = time.Second

// List returns the labs of the caller that are up, by name. It does not wait for a lab
// that does not answer.
func List(ctx context.Context) ([]Info, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	names, err := labNames(dir)
	if err != nil {
		return nil, err
	}
	others, err := heard()
	if err != nil {
		return nil, err
	}
	names = append(names, others...)
	slices.Sort(names)
	names = slices.Compact(names)
	found := make([]*Info, len(names))
	err = parallel(ctx, 16, len(names), func(ctx context.Context, i int) error {
		found[i] = look(ctx, place{dir: dir, name: names[i]})
		return nil
	})
	if err != nil {
		return nil, err
	}
	labs := []Info{}
	for _, info := range found {
		if info != nil {
			labs = append(labs, *info)
		}
	}
	return labs, nil
}

// look asks a lab what it is; nil if there is none.
func look(ctx context.Context, p place) *Info {
	l, err := open(ctx, p, answerTimeout)
	if err == nil {
		_ = l.Close()
		return &l.info
	}
	locked, lockErr := p.lock(false)
	if lockErr == nil {
		locked.Close()
	}
	if !errors.Is(lockErr, errLocked) {
		return nil
	}
	return &Info{Lab: p.name, State: Unknown}
}

// requests handles the lab's events, and the sockets of captures and memories.
func (l *Lab) requests() *control.Mux {
	var mux control.Mux
	methodSocket.Handle(&mux, l.captures.takeSocket)
	methodTakeMiddles.Handle(&mux, l.takeMiddles)
	methodAnnounce.Handle(&mux, l.takeAnnouncement)
	noticeEvent.Handle(&mux, l.takeEvent)
	return &mux
}

// takeAnnouncement passes on how workers reach the lab.
func (l *Lab) takeAnnouncement(ctx context.Context, _ *control.Request, assignment string) error {
	if l.announce == nil {
		return control.Errorf(control.Usage, "--hosts step is for `ndklab run` of one file: nobody else tells the other tasks")
	}
	return l.announce(ctx, assignment)
}

func (l *Lab) takeMiddles(_ context.Context, r *control.Request, params middlesParams) error {
	l.mu.Lock()
	memory := l.memory
	l.mu.Unlock()
	if memory == nil {
		return control.Errorf(control.Usage, "nobody waits for sockets")
	}
	return memory.take(r, params)
}

func (l *Lab) takeEvent(_ context.Context, _ *control.Request, e event.Event) error {
	l.mu.Lock()
	events, memory := l.events, l.memory
	l.mu.Unlock()
	if memory != nil {
		memory.event(&e)
	}
	if events != nil {
		events(e)
	}
	return nil
}

// wait waits for the lab's end and keeps the reason. Recordings keep the connection
// for as long as the lab waits for their last packets (Supervisor.farewell).
func (s *session) wait() {
	s.reason = methodWait.Call(context.Background(), s.conn, nil)
	close(s.over)
	s.recordings.Wait()
	s.conn.Close()
}

// call makes a request. When the lab ends, it fails with the reason.
func call[Params, Result any](ctx context.Context, s *session, m control.Method[Params, Result], params Params, files ...*os.File) (Result, error) {
	result, err := m.Call(ctx, s.conn, params, files...)
	return result, s.whyEnded(err)
}

// whyEnded returns the reason of the lab's end for the error of a request that it has
// ended, and any other error as it is.
func (s *session) whyEnded(err error) error {
	if errors.Is(err, control.ErrClosed) {
		<-s.over
		return s.reason
	}
	return err
}

// Info returns what the lab was when it was started or opened.
func (l *Lab) Info() Info { return l.info }

// Done is closed when the lab has ended, or the connection to it.
func (s *session) Done() <-chan struct{} { return s.over }

// Err returns why the lab has ended; valid once Done is closed. It is
// control.ErrClosed if that is not known because the supervisor was killed, or
// if the connection was closed.
func (s *session) Err() error { return s.reason }

// End returns Err as those are told it who watched the lab: with its name where the supervisor was killed.
func (l *Lab) End() error {
	if err := l.Err(); !errors.Is(err, control.ErrClosed) {
		return err
	}
	return control.Errorf(control.Failed, "the supervisor of lab %s was killed, and the lab with it", l.info.Lab)
}

// Release lets the lab live on after the caller's end. It is for the caller of
// Start. The end of ctx does not interrupt it once it has begun, so that it is always known
// whose the lab is.
func (l *Lab) Release(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := methodRelease.Call(context.WithoutCancel(ctx), l.conn, nil); err != nil {
		return l.whyEnded(err)
	}
	l.owner = false
	return nil
}

// Close ends the connection, and the lab with it if the caller owns it; then it
// waits until nothing of the lab is left. After Close or Down it does nothing.
func (l *Lab) Close() error {
	return l.close(l.owner)
}

// Down takes the lab down and returns when nothing of it is left. The Lab is
// closed then. If the lab's guardian was killed, the kernel may be about to end its
// last processes. It fails if the lab does not answer, as one whose supervisor is stopped.
func (l *Lab) Down(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, endTimeOf(l.nodes))
	defer cancel()
	err := methodDown.Call(asked, l.conn, nil)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return l.place.mute()
	}
	if err != nil && !errors.Is(err, control.ErrClosed) { // the end of the channel is the lab's
		return err
	}
	select {
	case <-l.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.close(true)
}

// close closes the connection and, if the lab is ending, waits for its end.
func (l *Lab) close(ending bool) error {
	l.closing.Do(func() {
		l.conn.Close()
		<-l.over
		l.mu.Lock()
		memory := l.memory
		l.mu.Unlock()
		if memory != nil {
			var forgetting sync.WaitGroup // while the lab ends: either takes some milliseconds
			forgetting.Go(memory.forget)
			defer forgetting.Wait()
		}
		defer l.life.Close()
		if ending {
			l.closeErr = l.place.awaitEnd(l.life, l.nodes)
		}
		if l.recorder != nil {
			if ending && l.closeErr == nil {
				l.recorder.Wait() // for what it has to say
			}
			l.recorder.Close()
		}
	})
	return l.closeErr
}

// Inspect returns the state of every node and link.
func (l *Lab) Inspect(ctx context.Context) (*Inspection, error) {
	return call(ctx, l.session, methodInspect, nil)
}

// Externals returns the state of the ends of links outside the lab. Unlike Inspect it asks
// no node.
func (l *Lab) Externals(ctx context.Context) ([]report.External, error) {
	return call(ctx, l.session, methodExternals, nil)
}
