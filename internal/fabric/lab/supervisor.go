package lab

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A Supervisor is the process that a lab hangs from: process 1 of the lab's PID
// namespace, in whose network namespace all links meet. Its end is the end of
// everything else, so it cleans nothing up: when the lab is over it exits.
//
// The lab's core decides what becomes of nodes and links, and the driver carries that out. A Supervisor answers for the
// lab as a whole. Its parts answer requests that concern nodes, links and runs. The nodes of a lab can change at any time,
// so that each request looks at one topology.
type Supervisor struct {
	name string
	*driver
	*nodeAPI
	*linkAPI
	runs      *runAPI
	head      *head // nil: the lab is on this machine
	decisions *decisionLog
	history   history
	clients   clients
	views     views

	dir string // the working folder of the scenario's programs; set by build, before the lab is ready

	over chan struct{} // closed when reason is set

	mu       sync.Mutex // guards what follows
	ready    time.Time  // when all nodes were; zero before
	dilation int        // the lab's; 0 before it is built
	released bool       // the lab may outlive its owner
	reason   *control.Error
}

// newSupervisor returns that of a lab in which nothing is as yet.
func newSupervisor(name string) *Supervisor {
	s := &Supervisor{name: name, over: make(chan struct{})}
	s.runs = &runAPI{Supervisor: s}
	children := reaper.New()
	nodes := &nodeDriver{lab: name, reaper: children, shared: &node.Machine{Reaper: children}, publish: s.Publish, qpError: s.publishQPError, lives: map[string]*life{}}
	links := &linkDriver{
		engine: engine{lab: name, reaper: children, died: s.end}, nodes: nodes, publish: s.Publish,
		externals: map[string]*external{}, links: map[int]*labLink{}, switches: map[string]*labSwitch{},
	}
	here := &machine{nodes: nodes, links: links, publish: s.Publish, lanes: newLanes()}
	s.driver = &driver{
		machines: here, here: here, publish: s.Publish, ended: s.end, allUp: s.beReady,
		core: core.New(&topology.Topology{Name: name}), started: time.Now(), asked: map[uint64]chan<- core.Answer{},
	}
	here.present, nodes.ended = s.topology, s.agentEnded
	s.nodeAPI = &nodeAPI{driver: s.driver, lab: name}
	s.linkAPI = &linkAPI{driver: s.driver, lab: name, nodeAPI: s.nodeAPI}
	s.decisions = &decisionLog{publish: s.Publish, start: func() ([]*linkem.Engine, error) {
		engine, err := links.engine.start()
		return []*linkem.Engine{engine}, err
	}}
	return s
}

// supervise is the supervisor process. It returns when the lab is over.
func supervise(name string) error {
	owner := inherited(ownerFile, "owner")
	listener := inherited(listenFile, "listener")
	locked := inherited(stateFile, "state")
	defer runtime.KeepAlive(locked) // the lock is held to the very end of the process
	s := newSupervisor(name)
	if os.Getenv(headVariable) != "" {
		if err := s.becomeHead(inherited(hostsFile, "hosts"), inherited(launchFile, "launch")); err != nil {
			return err
		}
	}
	findSelf()
	// Process 1 gets no signal that it has no handler for.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		s.end(control.Errorf(control.Failed, "lab %s was ended by %s", name, unix.SignalName((<-signals).(unix.Signal))))
	}()
	go s.here.nodes.reaper.Run()
	go boundLog(os.Stderr)

	if err := s.serveOwner(owner); err != nil {
		return err
	}
	if err := s.listen(listener); err != nil {
		return err
	}
	<-s.over
	log.Print(s.reason)
	s.decisions.close()
	s.clients.awaitGone()
	if s.head != nil {
		s.head.hosts.End()
	}
	s.here.links.engine.end()
	return nil
}

// headMemory is the size from which on a head collects garbage more often, bytes. Of 60,000 nodes it uses half of that, and
// would otherwise let itself grow to twice what it uses.
const headMemory = 1200 << 20

// becomeHead has the lab's nodes be at several hosts.
func (s *Supervisor) becomeHead(listener, launch *os.File) (err error) {
	debug.SetMemoryLimit(headMemory)
	s.head = &head{ended: s.agentEnded, qpError: s.publishQPError, publish: s.Publish, die: s.end, lives: map[string]*life{}, cut: make(chan cut, trunkEnds)}
	s.head.lose, s.head.since = s.hostLost, s.fabricTime
	s.head.hosts, err = hosts.FromFiles(listener, launch, s.head.requests)
	s.machines = s.head
	s.decisions.start, s.decisions.apart = s.head.startEngines, true
	return err
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

// serveOwner serves the command that starts the lab, and ends the lab if that
// command goes away before it has released it.
func (s *Supervisor) serveOwner(owner *os.File) error {
	conn, err := s.clients.add(func() (*control.Conn, error) { return control.FromFile(owner, s.ownerRequests().Serve) })
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
	_, _ = s.clients.add(func() (*control.Conn, error) { return control.New(sock, s.requests().Serve), nil })
}

// fabricTime is the lab's clock: the fabric's time since all nodes were ready, 0 before.
func (s *Supervisor) fabricTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since() / time.Duration(max(s.dilation, 1))
}

// Since returns the time since all nodes were ready by the machine's clock, 0 before.
func (s *Supervisor) Since() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since()
}

// since is Since; mu is held.
func (s *Supervisor) since() time.Duration {
	if s.ready.IsZero() {
		return 0
	}
	return time.Since(s.ready)
}
