package lab

import (
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A Supervisor is the process that a lab hangs from: process 1 of the lab's PID
// namespace, in whose network namespace all links meet. Its end is the end of
// everything else, so it cleans nothing up: when the lab is over it exits.
//
// What becomes of nodes and links is decided by the lab's core; the driver carries that out. A Supervisor answers for the
// lab, and plays its scenario. Who is in the lab can change at any time, so that each request looks at one topology.
type Supervisor struct {
	name string
	*driver
	history history

	dir string // the working folder of the scenario's programs; set by build, before the lab is ready

	over chan struct{} // closed when reason is set

	mu       sync.Mutex // guards what follows
	running  *run       // the last one that began
	ready    time.Time  // when all nodes were; zero before
	released bool       // the lab may outlive its owner
	reason   *control.Error
	clients  map[*control.Conn]*client
	served   int // clients so far
	// recording is the file of the engine's decisions; "": none.
	recording string
}

// newSupervisor returns that of a lab in which nothing is as yet.
func newSupervisor(name string) *Supervisor {
	s := &Supervisor{name: name, clients: map[*control.Conn]*client{}, over: make(chan struct{})}
	children := reaper.New()
	nodes := &nodeDriver{lab: name, reaper: children, publish: s.Publish, qpError: s.publishQPError, lives: map[string]*life{}}
	links := &linkDriver{
		engine: engine{lab: name, reaper: children, died: s.end}, nodes: nodes, publish: s.Publish,
		externals: map[string]*external{}, links: map[int]*labLink{}, switches: map[string]*labSwitch{},
	}
	s.driver = &driver{
		nodes: nodes, links: links, publish: s.Publish, ended: s.end, allUp: s.beReady, lanes: newLanes(),
		core: core.New(&topology.Topology{Name: name}), started: time.Now(), asked: map[uint64]chan<- core.Answer{},
	}
	nodes.ended = s.agentEnded
	return s
}

// A client is a command's channel. Its fields are guarded by Supervisor.mu.
type client struct {
	number  int  // tells channels apart
	watches bool // events are sent to it
}

// supervise is the supervisor process. It returns when the lab is over.
func supervise(name string) error {
	owner := inherited(ownerFile, "owner")
	listener := inherited(listenFile, "listener")
	locked := inherited(stateFile, "state")
	defer runtime.KeepAlive(locked) // the lock is held to the very end of the process
	s := newSupervisor(name)
	// Commands of nodes find this program also where it was started by a path.
	if self, err := os.Executable(); err == nil {
		os.Setenv("PATH", strings.TrimPrefix(os.Getenv("PATH")+":"+filepath.Dir(self), ":"))
	}
	// Process 1 gets no signal that it has no handler for.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		s.end(control.Errorf(control.Failed, "lab %s was ended by %s", name, unix.SignalName((<-signals).(unix.Signal))))
	}()
	go s.nodes.reaper.Run()

	if err := s.serveOwner(owner); err != nil {
		return err
	}
	if err := s.listen(listener); err != nil {
		return err
	}
	<-s.over
	log.Print(s.reason)
	s.closeLog()
	s.farewell()
	s.links.engine.end()
	return nil
}

// end makes the lab end; the first reason counts.
func (s *Supervisor) end(reason *control.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
		close(s.over)
	}
}

// beReady begins the lab's clock.
func (s *Supervisor) beReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = time.Now()
}

// farewellTime bounds how long clients may take to hear why the lab is over.
const farewellTime = 100 * time.Millisecond

// farewell waits until every client has had the answer to its wait request and
// closed its channel, but not for one that reads nothing because it was stopped.
func (s *Supervisor) farewell() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for _, conn := range conns {
			<-conn.Done()
		}
	}()
	clock.Within(farewellTime, gone)
}

// serveOwner serves the command that starts the lab, and ends the lab if that
// command goes away before it has released it.
func (s *Supervisor) serveOwner(owner *os.File) error {
	conn, err := s.addClient(func() (*control.Conn, error) { return control.FromFile(owner, s.handleOwner) })
	if err != nil {
		return err
	}
	go func() {
		<-conn.Done()
		s.mu.Lock()
		released := s.released
		s.mu.Unlock()
		if !released {
			s.end(control.Errorf(control.Failed, "the command that owns lab %s has gone", s.name))
		}
	}()
	return nil
}

// listen serves the API to commands of the same user.
func (s *Supervisor) listen(file *os.File) error {
	inheritedListener, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("API socket: %w", err)
	}
	listener, ok := inheritedListener.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("API socket: %s is no Unix socket", inheritedListener.Addr().Network())
	}
	go func() {
		for {
			sock, err := listener.AcceptUnix()
			if err == nil {
				s.serveClient(sock)
				continue
			}
			// Out of descriptors, which passes.
			log.Printf("API: %v", err)
			time.Sleep(acceptRetry)
		}
	}()
	return nil
}

const acceptRetry = 10 * time.Millisecond

// serveClient refuses other users. In a user namespace, where the lab's own user
// is mapped to 0 and nobody else is mapped, even root is another user.
func (s *Supervisor) serveClient(sock *net.UnixConn) {
	if uid, err := peerUID(sock); err != nil || uid != os.Getuid() {
		sock.Close()
		return
	}
	// New cannot fail.
	_, _ = s.addClient(func() (*control.Conn, error) { return control.New(sock, s.handle), nil })
}

// addClient makes a client's channel and knows it before it serves its first
// request.
func (s *Supervisor) addClient(open func() (*control.Conn, error)) (*control.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := open()
	if err != nil {
		return nil, err
	}
	s.served++
	s.clients[conn] = &client{number: s.served}
	go func() {
		<-conn.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, conn)
	}()
	return conn, nil
}

// Since is the lab's clock: how long all nodes have been ready. It is 0 before.
func (s *Supervisor) Since() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.IsZero() {
		return 0
	}
	return time.Since(s.ready)
}
