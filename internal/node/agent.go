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
	methodUp       = control.NewMethod[upParams, uint32]("up") // returns what is granted of the adapter's receive buffer, 0 without one
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
// fields may be called from any goroutine.
type Agent struct {
	*Client
	control *control.Conn // that the client's requests go over
	cfg     Config
	proc    *process
	done    chan struct{} // closed when the process is reaped and its last output is logged

	buffer  atomic.Uint32 // see ReceiveBuffer
	pauses  atomic.Uint64 // numbers requests to pause and resume
	mounted atomic.Bool   // see Mount
	rates   atomic.Uint64 // numbers requests about the rates of lines

	mu         sync.Mutex   // guards what follows
	network    *rtnl.Socket // to configure the interfaces by; nil once Up has
	configured *Config      // how the network was configured last
}

// Start starts the agent of a node: the running binary again, in new network,
// UTS, mount and PID namespaces and, unless group is nil, in that cgroup before it
// does any work. It needs CAP_SYS_ADMIN in the caller's user namespace. The
// agent's standard error, panics included, goes to stderr line by line with the
// node's name in front. The agent ends when its supervisor does.
//
// A supervisor that reaps orphans must leave the agents to this package: with
// waitid(P_ALL, WNOWAIT) it sees who ended before it reaps.
func Start(cfg Config, group *cgroup.Group, stderr *os.File) (*Agent, error) {
	a := &Agent{Client: newClient(cfg.Name, "#"), cfg: cfg, done: make(chan struct{})}
	a.configured, a.prepare, a.observer = &a.cfg, a.prepareCommand, new(observer)
	if err := a.start(group, stderr); err != nil {
		return nil, a.named(err)
	}
	return a, nil
}

func (a *Agent) start(group *cgroup.Group, stderr *os.File) error {
	var born *os.File // the cgroup that the agent is born in, where the kernel can do that
	if group != nil {
		var err error
		if born, err = group.Directory(); err != nil {
			return err
		}
		defer born.Close() // of nil does nothing
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	logged, log, err := os.Pipe()
	if err != nil {
		return err
	}
	defer log.Close()
	conn, theirs, err := control.Pair(a.notices().Serve)
	if err != nil {
		logged.Close()
		return err
	}
	defer theirs.Close()
	word, err := newChanges()
	if err != nil {
		conn.Close()
		logged.Close()
		return err
	}
	defer word.Close()
	if a.observer.changes, err = openChanges(word); err != nil {
		conn.Close()
		logged.Close()
		return err
	}

	attr := &syscall.ProcAttr{
		Env:   withVariables(Environment("GOCOVERDIR"), map[string]string{"GOMAXPROCS": "1"}), // until there is traffic: see agent.readyForTraffic
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd(), theirs.Fd(), word.Fd()},               // controlFD and changesFD are the last
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
			Setpgid:    true, // for lowerPriority
		},
	}
	if born != nil {
		attr.Sys.CgroupFD, attr.Sys.UseCgroupFD = int(born.Fd()), true
	}
	proc, err := startProcess("/proc/self/exe", []string{argv0(a.cfg.Lab, a.cfg.Name)}, attr)
	if err != nil {
		conn.Close()
		logged.Close()
		return fmt.Errorf("start agent: %w", err)
	}
	a.conn, a.control, a.proc = conn, conn, proc
	a.observer.patience = patience + time.Duration(proc.pid)*time.Second%patience
	network, networkErr := openNetwork(proc)
	a.network = network
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		defer logged.Close()
		copyLines(stderr, "node "+a.cfg.Name+": ", logged)
	}()
	go func() {
		proc.wait()
		conn.Close()
		if network := a.takeNetwork(); network != nil {
			network.Close()
		}
		select {
		case <-copied:
		case <-time.After(10 * time.Second): // a process of its that still holds the pipe
		}
		close(a.done)
	}()
	if group != nil && born == nil {
		// The agent waits for its first request, which comes after this.
		if err := group.Add(proc.pid); err != nil {
			a.Kill()
			return err
		}
	}
	if networkErr != nil {
		a.Kill()
		return networkErr
	}
	return nil
}

// takeNetwork returns the socket to configure the interfaces by to its first caller, and
// nil to others.
func (a *Agent) takeNetwork() *rtnl.Socket {
	a.mu.Lock()
	defer a.mu.Unlock()
	network := a.network
	a.network = nil
	return network
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

// PID returns the agent's process id in the caller's PID namespace.
func (a *Agent) PID() int { return a.proc.pid }

// Done is closed when the agent process has ended, for whatever reason.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Exit returns how the agent process ended; valid once Done is closed.
func (a *Agent) Exit() Exit { return a.proc.exit }

// Kill ends the agent at once, and with it every process of the node: the agent is
// process 1 of their PID namespace. Done is closed when all are gone.
func (a *Agent) Kill() {
	// The only failure is that the process has ended already.
	_ = a.proc.signal(unix.SIGKILL, false)
}

// Send sends a signal to the agent. The commands of Exec are unaffected unless it ends the
// agent.
func (a *Agent) Send(sig syscall.Signal) error {
	return a.named(a.proc.signal(sig, false))
}

// Up configures the node's interfaces, which must exist by now, and opens the
// adapter. The node is ready when it returns.
func (a *Agent) Up(ctx context.Context) error { return a.named(a.bringUp(ctx)) }

func (a *Agent) bringUp(ctx context.Context) error {
	network := a.takeNetwork()
	if network == nil {
		select {
		case <-a.control.Done(): // the agent has ended, and the socket was given back
			return control.ErrClosed
		default:
			return errors.New("up already")
		}
	}
	defer network.Close()
	if err := a.configure(ctx, network); err != nil {
		return err
	}
	params := upParams{Seed: a.cfg.Seed, Addresses: a.cfg.addresses(), LineRates: a.cfg.LineRates, PFC: a.cfg.PFC, Buffered: a.cfg.Buffered, PIDLimit: a.cfg.PIDLimit, Dilation: a.cfg.Dilation}
	if a.cfg.Forwards || len(params.Addresses) == 0 && !params.PIDLimit {
		return nil
	}
	if a.cfg.Adapter != (topology.Adapter{}) {
		var err error
		if params.Adapter, err = json.Marshal(&a.cfg.Adapter); err != nil {
			return err
		}
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
