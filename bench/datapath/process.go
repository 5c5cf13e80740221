package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A command is a program and how it is to run.
type command struct {
	args []string
	env  []string // in addition
	// cpu is the processor that it has to itself, counted from 1; 0: any.
	cpu int
	// port names the port that it listens on when it is ready, such as "tcp:5201"; "" if
	// it says so by a line of output.
	port string
}

// ours returns this program, as one of programs.
func ours(program string, args ...string) command {
	return command{args: append([]string{self, program}, args...)}
}

// self is this program, whose file may have been replaced since.
const self = "/proc/self/exe"

const (
	// killPatience bounds the wait for a process that was killed.
	killPatience = 10 * time.Second
	// readyPatience bounds the time that a server may take until it listens.
	readyPatience = 30 * time.Second
	// maxOutput bounds what is kept of what a process prints, bytes.
	maxOutput = 1 << 20
)

// A process runs in a place.
type process struct {
	name   string
	cancel context.CancelFunc // kills it
	stdin  *os.File           // nil if it has none
	stdout output
	stderr output
	pid    int
	ended  chan struct{}
	err    error // when it has ended
}

// An output holds what a process has printed.
type output struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	lines chan struct{} // has an element for each line, as far as there is room
}

// Write takes output of the process.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len()+len(b) > maxOutput {
		return 0, fmt.Errorf("it prints more than %d bytes", maxOutput)
	}
	for range bytes.Count(b, []byte("\n")) {
		select {
		case o.lines <- struct{}{}:
		default:
		}
	}
	return o.text.Write(b)
}

// String returns all of it so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a process in the place. It is killed, with all of its process group,
// when ctx ends, and when this process does.
func (p *place) start(ctx context.Context, c command) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &process{name: filepath.Base(c.args[0]), cancel: cancel, ended: make(chan struct{})}
	if c.args[0] == self {
		r.name = c.args[1]
	}
	r.stdout.lines, r.stderr.lines = make(chan struct{}, 8), make(chan struct{}, 8)
	theirs, stdin, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, err
	}
	r.stdin = stdin
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, &r.stdout, &r.stderr
	cmd.WaitDelay = killPatience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started := make(chan error)
	go func() {
		// The process is in the namespace of the thread that starts it, and has its
		// affinity. The thread ends with the goroutine: after the process, for which its
		// end would be the parent's.
		runtime.LockOSThread()
		err := enter(p.ns, c.cpu)
		if err == nil {
			err = cmd.Start()
		}
		theirs.Close()
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.ended)
		}
	}()
	if err := <-started; err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("%s: %w", r.name, err), stdin.Close())
	}
	r.pid = cmd.Process.Pid
	go func() {
		select {
		case <-r.ended:
		case <-ctx.Done():
			// It fails for a group that has just ended.
			_ = unix.Kill(-r.pid, unix.SIGKILL)
			<-r.ended
		}
		stdin.Close()
		cancel()
	}()
	return r, nil
}

// enter has the calling thread be in a namespace, and on one processor if cpu is not 0.
func enter(ns netns.NsHandle, cpu int) error {
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	if cpu == 0 {
		return nil
	}
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	for n, i := 0, 0; ; i++ {
		if allowed.IsSet(i) {
			n++
		}
		if n > (cpu-1)%allowed.Count() {
			one.Set(i)
			return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &one))
		}
	}
}

// ready waits until a server listens.
func (r *process) ready(ctx context.Context, port string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("%s is not ready after %v", r.name, readyPatience))
	defer cancel()
	if port == "" {
		return r.line(ctx)
	}
	for {
		listens, err := r.listens(port)
		if listens {
			return nil
		}
		select {
		case <-r.ended:
			return r.failure()
		default:
		}
		if pauseErr := pause(ctx, 5*time.Millisecond); pauseErr != nil {
			return errors.Join(pauseErr, err)
		}
	}
}

// line waits until the process has said one more line.
func (r *process) line(ctx context.Context) error {
	select {
	case <-r.stdout.lines:
		return nil
	case <-r.ended:
		return r.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listens reports whether a socket of the process's namespace is bound to a port, and
// if it is of TCP, listens (proc_net_tcp.rst: the local address, then the state).
func (r *process) listens(port string) (bool, error) {
	protocol, number, _ := strings.Cut(port, ":")
	var n int
	if _, err := fmt.Sscan(number, &n); err != nil {
		return false, fmt.Errorf("port %q: %w", port, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.pid, protocol))
	if err != nil {
		return false, err
	}
	state := map[string]string{"tcp": "0A", "udp": "07"}[protocol]
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", n)) && fields[3] == state {
			return true, nil
		}
	}
	return false, nil
}

// wait waits until the process ends, by itself or with ctx.
func (r *process) wait(ctx context.Context) error {
	select {
	case <-r.ended:
		return r.failure()
	case <-ctx.Done():
		r.stop()
		return fmt.Errorf("%s: %w", r.name, context.Cause(ctx))
	}
}

// stop kills the process if it has not ended.
func (r *process) stop() {
	r.cancel()
	<-r.ended
}

// failure returns why a process that has ended failed; nil if it did not.
func (r *process) failure() error {
	if r.err == nil {
		return nil
	}
	said := strings.TrimSpace(r.stderr.String())
	if said == "" {
		said = strings.TrimSpace(r.stdout.String())
	}
	lines := strings.Split(said, "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%s: %w: %s", r.name, r.err, last)
	}
	return fmt.Errorf("%s: %w", r.name, r.err)
}

// between runs a server in the second place and a client in the first, and gives
// what they print. The client ends by itself.
func between(ctx context.Context, places [2]*place, server, client command) (fromClient, fromServer string, err error) {
	s, err := places[1].start(ctx, server)
	if err != nil {
		return "", "", err
	}
	defer s.stop()
	if err := s.ready(ctx, server.port); err != nil {
		return "", "", err
	}
	c, err := places[0].start(ctx, client)
	if err != nil {
		return "", "", err
	}
	defer c.stop()
	if err := c.wait(ctx); err != nil {
		// The server may know more.
		select {
		case <-s.ended:
			err = errors.Join(err, s.failure())
		default:
		}
		return "", "", err
	}
	err = endServer(ctx, s, server)
	fromServer = s.stdout.String()
	if server.port == "" {
		_, fromServer, _ = strings.Cut(fromServer, "\n") // that it was ready
	}
	return c.stdout.String(), fromServer, err
}

// serverPatience bounds the time that a server may go on after its client.
const serverPatience = 30 * time.Second

// endServer waits for a server of ours. One of a peer's may serve for ever: it is
// killed.
func endServer(ctx context.Context, s *process, c command) error {
	if c.port != "" {
		s.stop()
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, serverPatience, errors.New("goes on without its client"))
	defer cancel()
	return s.wait(ctx)
}
