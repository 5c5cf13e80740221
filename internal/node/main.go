package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/internal/node/verbs/sysclass"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
)

// controlFD is the descriptor on which an agent inherits its control channel.
const controlFD = 3

// An agent is the node's own side of an Agent: what runs in the agent process.
type agent struct {
	lab, name string
	activity  activity

	processors sync.Once      // before the first workload
	mounting   sync.Once      // before the first command
	mountErr   error          // why the node's files are not in place; valid once mounting is done
	reaper     *reaper.Reaper // of what commands leave behind

	mu       sync.Mutex          // guards what follows
	shared   *lease.Server       // of the adapter; nil before it is started, and in a node without one
	pauses   *pfc.Listener       // that the adapter obeys; nil for none; set with it
	traffic  traffic             // on the adapter; set with it
	commands map[string]*process // that exec runs, by Command.ID
	ending   bool                // no more commands are started
	paused   bool                // no more commands are started, until it is resumed
	stops    uint64              // the number of the last pause or resumption
	rated    uint64              // the number of the last request about the rates of lines
	outside  *os.File            // the first /proc, for outsideProc; nil before

	mounts  *verbs.Mounts     // for RDMA programs; nil before the first command, and without them
	device  *sysclass.Device  // as they see it; not nil if mounts is not
	counted provider.Counters // the counters of device
}

// Main runs an agent until its control channel ends.
func Main() error {
	labAndName, isAgent := strings.CutPrefix(os.Args[0], processName+" ")
	lab, name, ok := strings.Cut(labAndName, "/")
	if !isAgent || !ok {
		// Outside a node's namespaces, what follows would change the host.
		return fmt.Errorf("%q is no agent's argv[0]", os.Args[0])
	}
	a := &agent{lab: lab, name: name, commands: map[string]*process{}, reaper: reaper.New()}
	if err := a.setUp(); err != nil {
		return err
	}
	word := os.NewFile(changesFD, "changes")
	var err error
	if a.activity.changes, err = openChanges(word); err != nil {
		return err
	}
	word.Close()
	conn, err := control.FromFile(os.NewFile(controlFD, "control"), a.activity.noting(a.requests().Serve))
	if err != nil {
		return err
	}
	<-conn.Done()
	a.end()
	return nil
}

// setUp sets the names of the process and the host, its priority, signals and mounts.
func (a *agent) setUp() error {
	// prctl(PR_SET_NAME) would name only the thread that calls it, and ps shows
	// the first one's.
	if err := os.WriteFile("/proc/self/comm", []byte(processName), 0); err != nil {
		return fmt.Errorf("process name: %w", err)
	}
	if err := unix.Sethostname([]byte(a.name)); err != nil {
		return fmt.Errorf("host name %s: %w", a.name, err)
	}
	// Neither the channel nor what the supervisor's parent left open is for
	// commands.
	err := unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == unix.EINVAL || err == unix.ENOSYS { // before Linux 5.11
		err = closeEachOnExec(controlFD)
	}
	if err != nil {
		return fmt.Errorf("close-on-exec: %w", err)
	}
	if err := lowerPriority(); err != nil {
		return err
	}
	takeIgnoredSignals()
	// Mounts made here stay here, and others' do not come in.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	return nil
}

// closeEachOnExec has no command inherit an open file whose descriptor is first or a later one.
func closeEachOnExec(first int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if fd < first {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && err != unix.EBADF { // that of the folder is closed
			return os.NewSyscallError("fcntl", err)
		}
	}
	return nil
}

// lowerPriority gives the link engine precedence over the agent and its commands. An engine
// that is not root's has no real-time priority. It is for all threads of the agent, which is
// alone in its process group. Threads made later inherit from those that make them.
func lowerPriority() error {
	const nice = 5
	err := unix.Setpriority(unix.PRIO_PGRP, 0, nice)
	if err != nil && err != unix.EACCES { // if ours is higher, only root of the host comes down
		return fmt.Errorf("priority: %w", err)
	}
	return nil
}

// takeIgnoredSignals has commands begin with no signal ignored, also if nohup or a shell's
// "&" had it ignored when the lab was started: a child does not ignore what its parent
// handles. These are all the signals that Go leaves ignored.
func takeIgnoredSignals() {
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// requests answers the supervisor's requests.
func (a *agent) requests() *control.Mux {
	var mux control.Mux
	methodUp.Handle(&mux, a.bringUp)
	methodCounters.Handle(&mux, a.counters)
	methodObserve.Handle(&mux, a.observe)
	methodMount.Handle(&mux, a.mount)
	methodExec.Handle(&mux, a.exec)
	methodListening.Handle(&mux, a.listening)
	methodSignal.Handle(&mux, a.signal)
	methodPause.Handle(&mux, a.pause)
	methodShare.Handle(&mux, a.share)
	methodLineRates.Handle(&mux, a.setLineRates)
	methodAdapter.Handle(&mux, a.describe)
	methodConnections.Handle(&mux, a.connections)
	methodSetState.Handle(&mux, a.setState)
	a.traffic.answer(mux.When(a.readyForTraffic))
	return &mux
}

// readyForTraffic is called before each request about workloads.
func (a *agent) readyForTraffic() error {
	if a.sharedAdapter() == nil {
		return errNoAdapter
	}
	// An agent starts with one processor for its goroutines. A second has caches and wakes
	// threads of its own, which would make starting a node slower and larger.
	a.processors.Do(func() {
		runtime.SetDefaultGOMAXPROCS()
		runtime.GOMAXPROCS(ownProcessors(runtime.GOMAXPROCS(0)))
	})
	return nil
}

// ownProcessors returns how many of the machine's processors a node with traffic has for its goroutines: half of them, since the
// other end is there, too. Those that find no goroutine to run take time from the ones that do (bench/README.md, all-to-all).
func ownProcessors(all int) int { return max(1, all/2) }

func (a *agent) bringUp(_ context.Context, r *control.Request, params upParams) (granted uint32, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shared != nil {
		return 0, errors.New("up already")
	}
	if params.PIDLimit {
		makeThreads(spareThreads)
	}
	if len(params.Addresses) == 0 {
		return 0, nil
	}
	fabric := clock.Dilated(clock.Real(), params.Dilation) // which the adapter and the workloads live by
	shared, err := startAdapter(&params, r.Files, fabric, lease.NewErrorTeller(r.Conn).Tell, a.activity.note)
	if err != nil {
		return 0, err
	}
	device := shared.Device()
	if params.PFC != nil {
		if a.pauses, err = params.obeyPauses(fabric, shared); err != nil {
			return 0, errors.Join(fmt.Errorf("adapter: %w", err), shared.Close())
		}
	}
	a.shared, a.traffic = shared, traffic{node: a.lab + "/" + a.name, device: device, host: workload.NewHost(device, fabric)}
	return device.ReceiveBuffer().Granted, nil
}

func (a *agent) counters(ctx context.Context, _ *control.Request, _ control.None) (Counters, error) {
	shared := a.sharedAdapter()
	if shared == nil {
		return Counters{NDK: map[string]uint64{}, Transport: map[string]uint64{}}, nil
	}
	transport := shared.TransportCounters(ctx)
	a.mu.Lock()
	pauses := a.pauses
	a.mu.Unlock()
	if pauses != nil {
		maps.Copy(transport, pauses.Counters())
	}
	return Counters{NDK: shared.Device().Counters().Map(), Transport: transport}, nil
}

// end waits for the commands, whose contexts ended with the channel.
func (a *agent) end() {
	a.mu.Lock()
	a.ending = true
	var last []*process
	for _, p := range a.commands {
		last = append(last, p)
	}
	a.mu.Unlock()
	for _, p := range last {
		<-p.done
	}
}

// spareThreads are more than an agent has ever been seen to need.
const spareThreads = 16

// makeThreads has the runtime make n threads, which it keeps and takes before it makes
// another. In a node whose commands have used up its processes and threads, the kernel
// makes none any more, which the runtime does not survive.
func makeThreads(n int) {
	var made, over sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // while it is, nobody else runs on this thread
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		})
	}
	made.Wait()
	close(release)
	over.Wait()
}
