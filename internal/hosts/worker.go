package hosts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"golang.org/x/sys/unix"
)

// workerCommand is the only argument of a process that is a worker.
const workerCommand = "worker"

// IsWorker reports whether this process was started as a worker, and is to call Work.
func IsWorker() bool { return len(os.Args) == 2 && os.Args[1] == workerCommand }

// assignmentVariable is of the environment of a worker, and has its assignment. If there is none, the assignment comes on
// standard input. It is never among the arguments, which every user of a host can read.
const assignmentVariable = "NDKLAB_WORKER"

// An assignment tells a worker of its lab and its host. It comes from its launcher.
type assignment struct {
	Addresses   []string // of the head, with ports
	Credentials string
	// Name and Index are the host's. Where Name is "", one assignment is for all hosts, and Slurm says which this is.
	Name  string
	Index int
	Count int // of hosts; 0 if Slurm says so
	// Sharers are the workers on this machine, each of which may have the same part of its memory; 0: this one alone.
	Sharers int
	// Wait bounds the time that the head may take to begin to listen; 0: it does already.
	Wait time.Duration
}

// readAssignment returns that of this process.
func readAssignment() (*assignment, error) {
	text, given := os.LookupEnv(assignmentVariable)
	os.Unsetenv(assignmentVariable)
	a := new(assignment)
	var err error
	if given {
		err = json.Unmarshal([]byte(text), a)
	} else {
		err = json.NewDecoder(io.LimitReader(os.Stdin, 1<<16)).Decode(a)
	}
	if err != nil {
		return nil, fmt.Errorf("a worker is told by `ndklab ... --hosts` what to do, and this one was not (%w)", err)
	}
	if a.Name != "" {
		return a, nil
	}
	if a.Name = os.Getenv("SLURMD_NODENAME"); a.Name == "" {
		return nil, errors.New("the worker does not know which host it is on: SLURMD_NODENAME is not set, expected to be started by srun")
	}
	for name, value := range map[string]*int{"SLURM_PROCID": &a.Index, "SLURM_STEP_NUM_TASKS": &a.Count} {
		if *value, err = strconv.Atoi(os.Getenv(name)); err != nil {
			return nil, fmt.Errorf("host %s: %s is %q, expected a number: the worker is started by srun", a.Name, name, os.Getenv(name))
		}
	}
	return a, nil
}

// Become has this process be a worker, which takes the place of its program: whoever started this process sees how the worker ends.
// It returns only if it fails.
func Become(assignment string) error {
	err := unix.Exec("/proc/self/exe", []string{os.Args[0], workerCommand}, append(os.Environ(), assignmentVariable+"="+assignment))
	return fmt.Errorf("become a worker: %w", err)
}

// A worker passes what head and part say between them.
type worker struct {
	*assignment
	credentials *Credentials
	head        *control.Conn
	pulse       *pulse
	part        *control.Conn
	started     chan struct{} // closed when part is set
	told        chan struct{} // closed when the head says that the lab ends
	tellOnce    sync.Once
	listeners   listeners
}

// Work is a worker process: it returns when the lab is over, nil if the head said so. start starts the host's part of a lab,
// which inherits control, an end of a channel, and ends when the other end does. The part is killed, too, should this process
// be: start is called on a thread that lives as long as the process, so that SysProcAttr.Pdeathsig tells the part.
func Work(start func(lab, host string, control *os.File) (*exec.Cmd, error)) error {
	runtime.LockOSThread()
	told, err := readAssignment()
	if err != nil {
		return err
	}
	w := &worker{assignment: told, started: make(chan struct{}), told: make(chan struct{})}
	if w.credentials, err = ParseCredentials(told.Credentials); err != nil {
		return err
	}
	signal.Ignore(unix.SIGPIPE) // when the guardian is killed, nobody reads what is logged, and the lab goes on
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if err := w.dial(signals); err != nil {
		return fmt.Errorf("host %s: %w", w.Name, err)
	}
	defer w.head.Close()
	go beat(w.head)
	ctx, cancel := context.WithTimeout(context.Background(), comeTime)
	defer cancel()
	answer, err := methodHello.Call(ctx, w.head, hello{
		Name: w.Name, Index: w.Index, Count: w.Count, Build: build(), CPUs: cpus(), Memory: simulate.Available() / uint64(max(w.Sharers, 1)),
	})
	if err != nil {
		return fmt.Errorf("host %s: %w", w.Name, err)
	}
	conn, theirs, err := control.Pair(w.fromPart)
	if err != nil {
		return w.bid(err)
	}
	defer conn.Close()
	cmd, err := start(answer.Lab, w.Name, theirs)
	theirs.Close()
	if err != nil {
		return w.bid(fmt.Errorf("its part does not start: %w", err))
	}
	w.part = conn
	close(w.started)
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	reason := w.follow(over, signals)
	if errors.Is(reason, partStopped{}) {
		// It fails if the part has ended just now.
		_ = cmd.Process.Kill()
	}
	w.endPart(cmd, over)
	if reason == nil {
		return nil
	}
	return w.bid(reason)
}

// follow says to the head that the part is there, and waits for the end: it returns why, nil if the head has said so.
func (w *worker) follow(over chan error, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan struct{})
	go w.watchPart(ctx, stopped)
	ready := make(chan error, 1)
	go func() { ready <- methodReady.Call(ctx, w.head, nil) }()
	for {
		select {
		case err := <-ready:
			if err != nil && !errors.Is(err, control.ErrClosed) {
				return err
			}
		case err := <-over:
			over <- err // endPart looks, too
			if err == nil {
				return errors.New("its part has ended")
			}
			return fmt.Errorf("its part has ended: %w", err)
		case <-stopped:
			return partStopped{}
		case s := <-signals:
			return fmt.Errorf("its worker got %s", unix.SignalName(s.(unix.Signal)))
		case <-w.told:
			return nil
		case <-w.head.Done():
			select {
			case <-w.told: // just before
				return nil
			default:
			}
			reason, _ := w.pulse.reason()
			return fmt.Errorf("the head of the lab is gone: %s", reason)
		}
	}
}

// A partStopped is the end of a host whose part does not answer.
type partStopped struct{}

func (partStopped) Error() string {
	return fmt.Sprintf("its part has not answered for %v: its process was stopped", silenceLimit)
}

// watchPart asks the part for signs of life until ctx ends, and closes stopped if none comes.
func (w *worker) watchPart(ctx context.Context, stopped chan struct{}) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, silenceLimit)
		err := PartAlive.Call(within, w.part, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			close(stopped)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// bid tells the head why this host ends, if there is a head, and returns it as an error that names the host.
func (w *worker) bid(reason error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := methodFarewell.Call(ctx, w.head, reason.Error())
	if err != nil && !errors.Is(err, control.ErrClosed) {
		log.Printf("the head was not told: %v", err)
	}
	return fmt.Errorf("host %s: %w", w.Name, reason)
}

// endPart has the part end, and waits until it has. All of the part's processes end with it: it is process 1 of their
// namespace.
func (w *worker) endPart(cmd *exec.Cmd, over <-chan error) {
	w.part.Close()
	late := time.After(endTime)
	select {
	case <-over:
	case <-late:
		// It fails if the part has ended just now.
		_ = cmd.Process.Kill()
		<-over
	}
}

// dialTime bounds the time in which an address of the head answers.
const dialTime = 5 * time.Second

// redial is the time after which a head that may not listen yet is tried again.
const redial = 200 * time.Millisecond

// dial connects to the head, which may take some time to be there. A signal ends that.
func (w *worker) dial(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.dialAgain(ctx) }()
	select {
	case err := <-done:
		return err
	case s := <-signals:
		cancel()
		<-done
		return fmt.Errorf("its worker got %s before it was connected to the head at %s", unix.SignalName(s.(unix.Signal)), strings.Join(w.Addresses, ", "))
	}
}

// dialAgain tries to connect as long as the head may take, or until ctx ends.
func (w *worker) dialAgain(ctx context.Context) error {
	late := time.After(w.Wait)
	for {
		err := w.dialNow(ctx)
		if err == nil || w.Wait == 0 {
			return err
		}
		select {
		case <-time.After(redial):
		case <-late:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// dialNow connects to the head by the first of its addresses at which the lab's certificate is shown.
func (w *worker) dialNow(ctx context.Context) error {
	var problems []string
	for _, address := range w.Addresses {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			w.pulse = &pulse{Conn: c}
			stream := tls.Client(w.pulse, w.credentials.config())
			if err = stream.HandshakeContext(ctx); err == nil {
				cancel()
				w.head = control.OverStream(stream, w.fromHead)
				return nil
			}
			c.Close()
			err = fmt.Errorf("%s: %w", address, err)
		}
		cancel()
		problems = append(problems, err.Error())
	}
	return fmt.Errorf("the head of the lab is not reached (%s): a firewall between hosts has to let its port pass", strings.Join(problems, "; "))
}

// fromPart passes on to the head what the part asks.
func (w *worker) fromPart(ctx context.Context, r *control.Request) (any, error) {
	return control.Relay(ctx, r, w.head)
}

// fromHead answers the head, or passes on to the part what is for that.
func (w *worker) fromHead(ctx context.Context, r *control.Request) (any, error) {
	if strings.HasPrefix(r.Method, prefix) {
		return w.requests().Serve(ctx, r)
	}
	select {
	case <-w.started:
		return control.Relay(ctx, r, w.part)
	default:
		return nil, control.Errorf(control.Usage, "%s: host %s has no part yet", r.Method, w.Name)
	}
}

func (w *worker) requests() *control.Mux {
	mux := new(control.Mux)
	noticeBeat.Handle(mux, func(context.Context, *control.Request, control.None) error { return nil })
	methodTime.Handle(mux, func(context.Context, *control.Request, control.None) (int64, error) { return tell(w.Name), nil })
	methodEnd.Handle(mux, func(context.Context, *control.Request, control.None) error {
		w.tellOnce.Do(func() { close(w.told) })
		return nil
	})
	methodListen.Handle(mux, func(_ context.Context, _ *control.Request, peer string) (int, error) { return w.listeners.open(peer) })
	methodAccept.Handle(mux, func(ctx context.Context, _ *control.Request, peer string) error { return w.acceptTrunk(ctx, peer) })
	methodDial.Handle(mux, func(ctx context.Context, _ *control.Request, p trunkParams) error { return w.dialTrunk(ctx, p) })
	return mux
}
