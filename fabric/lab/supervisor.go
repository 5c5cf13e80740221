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
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/node/reaper"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A Supervisor is the process that a lab hangs from: process 1 of the lab's PID
// namespace, in whose network namespace all links meet. Its end is the end of
// everything else, so it cleans nothing up: when the lab is over it exits.
//
// Who is in the lab can change while it is up (apply.go). A Supervisor sees it as it
// was at one moment: each request is answered with the lab as it was when it came, so
// that what it finds by a name or an index stays what it was. now is how to see it
// as it is.
type Supervisor struct {
	*core
	*roster
}

// A core is what a lab has once, whoever is in it.
type core struct {
	name     string
	reaper   *reaper.Reaper
	hostProc *os.File // the host's /proc; nil until the namespaces are entered

	// What follows is set by build, before the lab is ready, and not changed
	// afterwards.
	place     place
	dir       string // the working folder of the scenario's programs
	named     bool   // externals get names for ip netns
	hosts     string // the file that stands for /etc/hosts in nodes; "": the host's does
	libraries string // the folder of the libraries for RDMA programs; "": there is none
	network   *link.Network
	sockets   *os.File // the directory of the externals' sockets; nil without externals
	engine    engine
	recording string // the file of the engine's decisions; "": none

	parting sync.Mutex // held while a partition begins or ends

	short sync.Once // says that a receive buffer is less than the file asks for

	history history

	over chan struct{} // closed when reason is set

	present atomic.Pointer[roster] // nil before all of the lab is built; changed by who has applying

	mu       sync.Mutex // guards what follows
	running  *run       // the last one that began
	applying bool       // who is in the lab is being changed, and no run can begin
	// unfinished is why the last change of who is in the lab did not come to its end;
	// "" if it did.
	unfinished string
	ready      time.Time // when all nodes were; zero before
	released   bool      // the lab may outlive its owner
	reason     *control.Error
	clients    map[*control.Conn]*client
	served     int // clients so far
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
	s := &Supervisor{&core{
		name:    name,
		reaper:  reaper.New(),
		clients: map[*control.Conn]*client{},
		over:    make(chan struct{}),
	}, newRoster()}
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
	go s.reaper.Run()

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
	s.endEngine()
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

// Topology is the lab's, with its seed. It must not be changed.
func (s *Supervisor) Topology() *topology.Topology { return s.topo }
