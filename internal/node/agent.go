package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/internal/node/rtnl"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/topology"
)

// The requests that an agent answers. Others are in the files on what they are about.
var (
	methodUp       = control.NewMethod[upParams, uint32]("up").WithFiles(0, control.MaxFiles) // sockets of the adapter (udp.Bind), or none; returns what is granted of the adapter's receive buffer, 0 without one
	methodCounters = control.NewMethod[control.None, Counters]("counters")
)

// upParams describe the adapter that an agent starts. Without addresses it starts none.
type upParams struct {
	Seed      uint64
	Addresses []localAddress
	LineRates map[netip.Addr]uint64 `json:",omitempty"` // Config.LineRates
	PFC       *pfc.Config           `json:",omitempty"` // Config.PFC
	Buffered  bool                  `json:",omitempty"` // Config.Buffered
	PIDLimit  bool                  // the node's
	Dilation  int                   `json:",omitempty"` // likewise
	// Adapter is a topology.Adapter, or nothing if that sets nothing, which saves package
	// json the reflection.
	Adapter json.RawMessage `json:",omitempty"`
}

// A localAddress is an address of one of the node's interfaces.
type localAddress struct {
	Address   netip.Addr
	Interface string
}

// An Agent is a running node as its supervisor sees it. Its methods and those of its
// fields may be called from any goroutine. A node that is idle (Config.Idle) has a network and no process yet: idle.go.
type Agent struct {
	*Client
	cfg    Config
	group  *cgroup.Group
	stderr *os.File
	done   chan struct{} // closed when the process is reaped and its last output is logged

	buffer  atomic.Uint32 // see ReceiveBuffer
	pauses  atomic.Uint64 // numbers requests to pause and resume
	mounted atomic.Bool   // see Mount
	rates   atomic.Uint64 // numbers requests about the rates of lines

	// starting is held while the process is started, and while it is decided that none is needed yet. It is taken before mu.
	starting sync.Mutex

	mu         sync.Mutex    // guards what follows
	network    *os.File      // the node's network namespace; nil once something else keeps it: the process, or sockets in it
	socket     *rtnl.Socket  // to configure the interfaces by; nil once Up has
	configured *Config       // how the network was configured last
	proc       *process      // nil before the node has one
	control    *control.Conn // that the client's requests go over; nil before the process is ready for them
	idle       *idle         // nil unless the node is up without a process
	killed     bool          // no process is started any more
	exit       Exit          // valid once done is closed
}

// Start starts a node: its network namespace and, unless it is idle, its agent, which is the running binary again, in new
// UTS, mount and PID namespaces and, unless group is nil, in that cgroup before it
// does any work. It needs CAP_SYS_ADMIN in the caller's user namespace. The
// agent's standard error, panics included, goes to stderr line by line with the
// node's name in front. The agent ends when its supervisor does.
//
// A supervisor that reaps orphans must leave the agents to this package: with
// waitid(P_ALL, WNOWAIT) it sees who ended before it reaps.
func Start(cfg Config, group *cgroup.Group, stderr *os.File) (*Agent, error) {
	a := &Agent{Client: newClient(cfg.Name, "#"), cfg: cfg, group: group, stderr: stderr, done: make(chan struct{})}
	if a.cfg.Machine == nil {
		a.cfg.Machine = new(Machine)
	}
	a.configured, a.prepare, a.observer, a.idleAnswer = &a.cfg, a.prepareCommand, new(observer), a.answerIdle
	a.conn = control.NewLater(a.begin, a.done)
	var err error
	if a.network, a.socket, err = a.cfg.Machine.newNetwork(); err != nil {
		return nil, a.named(err)
	}
	if cfg.Idle {
		return a, nil
	}
	if _, err := a.begin(); err != nil {
		return nil, a.named(err)
	}
	return a, nil
}

// giveBack gives back what keeps the network without a process.
func (a *Agent) giveBack() {
	a.mu.Lock()
	network, socket := a.network, a.socket
	a.network, a.socket = nil, nil
	a.mu.Unlock()
	network.Close() // of nil does nothing
	if socket != nil {
		socket.Close()
	}
}

// Network opens the node's network namespace. The caller closes it.
func (a *Agent) Network() (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fd, err := -1, error(nil)
	switch {
	case a.network != nil:
		fd, err = unix.FcntlInt(a.network.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	case a.idle != nil && len(a.idle.sockets) > 0:
		fd, err = unix.IoctlRetInt(int(a.idle.sockets[0].Fd()), unix.SIOCGSKNS)
	case a.proc != nil:
		return a.proc.network()
	default:
		return nil, control.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "network namespace"), nil
}

// inNetwork calls f on a thread that is in the node's network namespace.
func (a *Agent) inNetwork(f func()) error {
	network, err := a.Network()
	if err != nil {
		return err
	}
	defer network.Close()
	return inside(network, f)
}

// run starts the process, and returns a channel to it. a.starting is held.
func (a *Agent) run() (*control.Conn, error) {
	var born *os.File // the cgroup that the agent is born in, where the kernel can do that
	if a.group != nil {
		var err error
		if born, err = a.group.Directory(); err != nil {
			return nil, err
		}
		defer born.Close() // of nil does nothing
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	logged, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	conn, theirs, err := control.Pair(a.notices().Serve)
	if err != nil {
		logged.Close()
		return nil, err
	}
	defer theirs.Close()
	word, err := newChanges()
	if err != nil {
		conn.Close()
		logged.Close()
		return nil, err
	}
	defer word.Close()
	changes, err := openChanges(word)
	if err != nil {
		conn.Close()
		logged.Close()
		return nil, err
	}

	attr := &syscall.ProcAttr{
		Env:   withVariables(Environment("GOCOVERDIR"), map[string]string{"GOMAXPROCS": "1"}), // until there is traffic: see agent.readyForTraffic
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd(), theirs.Fd(), word.Fd()},               // controlFD and changesFD are the last
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUTS | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
			Setpgid:    true, // for lowerPriority
		},
	}
	if born != nil {
		attr.Sys.CgroupFD, attr.Sys.UseCgroupFD = int(born.Fd()), true
	}
	var proc *process
	away := a.inNetwork(func() {
		err = a.cfg.Machine.collect(func() (pid int, err error) {
			if proc, err = startProcess("/proc/self/exe", []string{argv0(a.cfg.Lab, a.cfg.Name)}, attr); err != nil {
				return 0, err
			}
			return proc.pid, nil
		})
	})
	if err := errors.Join(away, err); proc == nil {
		conn.Close()
		logged.Close()
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a.observer.begin(changes, patience+time.Duration(proc.pid)*time.Second%patience)
	a.mu.Lock()
	a.proc = proc
	killed := a.killed
	a.mu.Unlock()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		defer logged.Close()
		copyLines(a.stderr, "node "+a.cfg.Name+": ", logged)
	}()
	go func() {
		proc.wait()
		conn.Close()
		a.cfg.Machine.collected(proc.pid)
		a.giveBack()
		select {
		case <-copied:
		case <-time.After(10 * time.Second): // a process of its that still holds the pipe
		}
		a.mu.Lock()
		a.exit = proc.exit
		a.mu.Unlock()
		close(a.done)
	}()
	if killed {
		a.Kill()
	}
	if a.group != nil && born == nil {
		// The agent waits for its first request, which comes after this.
		if err := a.group.Add(proc.pid); err != nil {
			a.Kill()
			return nil, err
		}
	}
	if a.cfg.Began != nil {
		a.cfg.Began(proc.pid)
	}
	return conn, nil
}

// takeSocket returns the socket to configure the interfaces by to its first caller, and
// nil to others.
func (a *Agent) takeSocket() *rtnl.Socket {
	a.mu.Lock()
	defer a.mu.Unlock()
	socket := a.socket
	a.socket = nil
	return socket
}

// copyLines copies lines from r to w, each with prefix and in one write.
func copyLines(w *os.File, prefix string, r *os.File) {
	in := bufio.NewReaderSize(r, 1024)
	for {
		line, err := in.ReadSlice('\n') // or as much of it as fits
		if len(line) > 0 {
			out := append([]byte(prefix), line...)
			if line[len(line)-1] != '\n' {
				out = append(out, '\n')
			}
			// Nobody can be told that the log is gone; the agent must not block on it.
			_, _ = w.Write(out)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// notices handles the agent's notices.
func (a *Agent) notices() *control.Mux {
	var mux control.Mux
	noticeStarted.Handle(&mux, a.commands.noteStarted)
	lease.NoticeQPErrors.Handle(&mux, a.tellQPErrors)
	return &mux
}

func (a *Agent) tellQPErrors(_ context.Context, _ *control.Request, list []provider.QPError) error {
	if a.cfg.QPError != nil {
		for _, e := range list {
			a.cfg.QPError(e)
		}
	}
	return nil
}

// process returns the node's process; nil if it has none yet.
func (a *Agent) process() *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proc
}

// hasEnded reports whether the node has ended or is about to.
func (a *Agent) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.killed || a.control == nil {
		return a.killed
	}
	select {
	case <-a.control.Done():
		return true
	default:
		return false
	}
}

// PID returns the agent's process id in the caller's PID namespace; 0 if there is no process yet.
func (a *Agent) PID() int {
	if proc := a.process(); proc != nil {
		return proc.pid
	}
	return 0
}

// Done is closed when the agent process has ended, for whatever reason, or when a node without one was killed.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Exit returns how the agent process ended; valid once Done is closed. A node without one was killed.
func (a *Agent) Exit() Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exit
}

// Kill ends the agent at once, and with it every process of the node: the agent is
// process 1 of their PID namespace. Done is closed when all are gone.
func (a *Agent) Kill() {
	a.mu.Lock()
	a.killed = true
	proc := a.proc
	a.mu.Unlock()
	if proc == nil {
		a.endIdle()
		return
	}
	// The only failure is that the process has ended already.
	_ = proc.signal(unix.SIGKILL, false)
}

// Send sends a signal to the agent, which is started for it if need be. The commands of Exec are unaffected unless it ends the
// agent.
func (a *Agent) Send(sig syscall.Signal) error {
	if _, err := a.begin(); err != nil {
		return a.named(err)
	}
	return a.named(a.process().signal(sig, false))
}

// Up configures the node's interfaces, which must exist by now, and opens the
// adapter. The node is ready when it returns.
func (a *Agent) Up(ctx context.Context) error { return a.named(a.bringUp(ctx)) }

func (a *Agent) bringUp(ctx context.Context) error {
	socket := a.takeSocket()
	if socket == nil {
		if a.hasEnded() { // and the socket was given back
			return control.ErrClosed
		}
		return errors.New("up already")
	}
	defer socket.Close()
	if err := a.configure(ctx, socket); err != nil {
		return err
	}
	params := upParams{Seed: a.cfg.Seed, Addresses: a.cfg.addresses(), LineRates: a.cfg.LineRates, PFC: a.cfg.PFC, Buffered: a.cfg.Buffered, PIDLimit: a.cfg.PIDLimit, Dilation: a.cfg.Dilation}
	if a.cfg.Forwards {
		params.Addresses = nil
	}
	if a.cfg.Adapter != (topology.Adapter{}) {
		var err error
		if params.Adapter, err = json.Marshal(&a.cfg.Adapter); err != nil {
			return err
		}
	}
	if idle, err := a.beIdle(&params); idle || err != nil {
		return err
	}
	if err := a.enterNeighbours(); err != nil { // it has a process before it is up
		return err
	}
	if len(params.Addresses) == 0 && !params.PIDLimit {
		return nil
	}
	granted, err := methodUp.Call(ctx, a.conn, params)
	if err != nil {
		return err
	}
	a.buffer.Store(granted)
	return nil
}

// ReceiveBuffer returns the bytes that the kernel has granted of the adapter's receive
// buffer (provider.ReceiveBuffer); 0 before Up, and of a node without an adapter.
func (a *Agent) ReceiveBuffer() uint32 { return a.buffer.Load() }
