package hosts

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// Requests of a head to the Launch of its guardian.
var (
	methodLaunch = control.NewMethod[control.None, settings]("launch")
	methodAwait  = control.NewProcedure[control.None]("await") // lasts as long as the launcher, and fails with the reason of its end
	// methodPatience says how long the launcher's processes are given to end, now that workers are over: one may wait for a host
	// that is gone, or for a daemon of Slurm there.
	methodPatience = control.NewProcedure[time.Duration]("patience")
)

// settings tell a head of its hosts.
type settings struct {
	Lab         string
	Credentials string
	Names       []string      // of the hosts, in order; none if they are not known before they come
	Addresses   []string      // by which the hosts reach the head
	Waits       bool          // the hosts may take any time to be granted
	Come        time.Duration // within which all come
	Continues   bool          // the lab goes on without a host that is lost
	Apart       bool          // each host has a process of the launcher's of its own
	Announce    bool          // workers that others have started are to be told of the head
}

// A Launch starts the workers of a lab. It belongs to the lab's guardian, which is in the network and the namespaces
// of the user. It starts them when the head asks, and ends them when the head is gone.
type Launch struct {
	settings settings
	plan     plan
	listener *os.File
	theirs   *os.File // the head's end of conn
	conn     *control.Conn
	log      io.Writer

	begin   sync.Once
	failure error         // that the workers do not start; set by begin
	over    chan struct{} // closed when a process of the launcher has ended by itself, or all
	rest    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	running  []*exec.Cmd
	said     []io.Closer   // what their standard error is read from
	reason   error         // of over
	ending   bool          // what the launcher says is no news any more
	patience time.Duration // that its processes are given to end, and again after they were told to
}

// A plan says how the workers of a Spec are started.
type plan struct {
	names    []string  // of the hosts, in order; none if they are not known before
	loopback bool      // all of them are on this machine, and share its memory
	ports    portRange // at one of which the head listens; none: any
	announce bool      // see settings
	waits    bool      // see settings
	commands []command
	come     time.Duration // within which all hosts come; 0: comeTime

	credentials *Credentials // nil: new ones
	giveBack    []string     // a command that gives back what was allocated; none if nothing was
}

// A command starts the worker of one host, or of all.
type command struct {
	what    string // for errors: "host a", or the launcher's name
	args    []string
	argv0   string   // "": args[0]
	dropped []string // begin the variables of this process's environment that it does not have
	input   bool     // the assignment goes to standard input, not into the environment
	index   int      // of the host; -1: Slurm says
	// remedy returns what can be done about its end, by its exit status and what it said last; "" if nothing is known. nil
	// is the same.
	remedy func(status int, said string) string
}

// NewLaunch prepares the hosts of a lab: it listens for the workers, and makes the credentials. The output of workers
// and launcher goes to log, which gets one line at a time.
func NewLaunch(spec Spec, lab string, log io.Writer) (_ *Launch, err error) {
	l := &Launch{log: log, over: make(chan struct{}), patience: silenceLimit + endTime} // by then a worker has noticed
	if l.plan, err = spec.plan(lab); err != nil {
		return nil, err
	}
	credentials := l.plan.credentials
	if credentials == nil {
		if credentials, err = NewCredentials(); err != nil {
			return nil, err
		}
	}
	if l.listener, l.settings.Addresses, err = l.plan.listen(spec.Network); err != nil {
		return nil, err
	}
	l.settings.Lab, l.settings.Credentials, l.settings.Names = lab, credentials.String(), l.plan.names
	l.settings.Announce, l.settings.Waits, l.settings.Come = l.plan.announce, l.plan.waits, cmp.Or(l.plan.come, comeTime)
	l.settings.Continues, l.settings.Apart = spec.Continues, slices.ContainsFunc(l.plan.commands, func(c command) bool { return c.index >= 0 })
	mux := new(control.Mux)
	methodLaunch.Handle(mux, func(context.Context, *control.Request, control.None) (settings, error) {
		l.begin.Do(l.start)
		return l.settings, l.failure
	})
	methodAwait.Handle(mux, func(ctx context.Context, _ *control.Request, _ control.None) error {
		select {
		case <-l.over:
			return l.reason
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	methodPatience.Handle(mux, func(_ context.Context, _ *control.Request, given time.Duration) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.plan.loopback { // else its processes are the workers
			l.patience = given
		}
		return nil
	})
	if l.conn, l.theirs, err = control.Pair(mux.Serve); err != nil {
		l.listener.Close()
		return nil, err
	}
	return l, nil
}

// Files returns what the head inherits, in the order of FromFiles. They are closed by Begun.
func (l *Launch) Files() [2]*os.File { return [2]*os.File{l.listener, l.theirs} }

// Begun says that the head's process was started, or could not be.
func (l *Launch) Begun() {
	l.listener.Close()
	l.theirs.Close()
}

// start starts the launcher's processes.
func (l *Launch) start() {
	var ran sync.WaitGroup
	for _, c := range l.plan.commands {
		if l.failure = l.run(c, &ran); l.failure != nil {
			l.stop(unix.SIGTERM)
			break
		}
	}
	l.rest.Go(func() {
		ran.Wait()
		if l.plan.giveBack != nil {
			// It says what is wrong, and nothing can be done about it here.
			ctx, cancel := context.WithTimeout(context.Background(), giveBackTime)
			defer cancel()
			cmd := exec.CommandContext(ctx, l.plan.giveBack[0], l.plan.giveBack[1:]...)
			cmd.WaitDelay = giveBackDelay
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(l.log, "%s: %v: %s\n", strings.Join(l.plan.giveBack, " "), err, out)
			}
		}
	})
}

// run starts one of the launcher's processes.
func (l *Launch) run(c command, ran *sync.WaitGroup) error {
	told, err := json.Marshal(l.assignment(c.index))
	if err != nil {
		return err
	}
	cmd := exec.Command(c.args[0], c.args[1:]...)
	if c.argv0 != "" {
		cmd.Args[0] = c.argv0
	}
	cmd.Env = without(os.Environ(), c.dropped)
	if c.input {
		cmd.Stdin = strings.NewReader(string(told) + "\n")
	} else {
		cmd.Env = append(cmd.Env, assignmentVariable+"="+string(told))
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return control.Errorf(control.Unable, "%s: %v: run ndklab where this program is installed, or name other hosts", c.what, err)
	}
	l.mu.Lock()
	l.running, l.said = append(l.running, cmd), append(l.said, said)
	l.mu.Unlock()
	ran.Go(func() {
		last := l.copyLines(said)
		l.ended(c, cmd.Wait(), last)
	})
	return nil
}

// without returns an environment without the variables whose names begin so.
func without(env, dropped []string) []string {
	return slices.DeleteFunc(env, func(variable string) bool {
		return slices.ContainsFunc(dropped, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}

// assignment returns that of the host of an index, or of all hosts if it is negative.
func (l *Launch) assignment(index int) assignment {
	a := assignment{Addresses: l.settings.Addresses, Credentials: l.settings.Credentials}
	if index >= 0 {
		a.Name, a.Index, a.Count = l.plan.names[index], index, len(l.plan.names)
		if l.plan.loopback {
			a.Sharers = len(l.plan.names)
		}
	}
	return a
}

const (
	// lastLines is the number of lines of a launcher's that an error has.
	lastLines = 3
	// longestLine bounds a line, bytes: what is longer is cut into several.
	longestLine = 4096
)

// copyLines passes lines on to the log, and returns the last when there are no more.
func (l *Launch) copyLines(said io.Reader) (last []string) {
	lines := bufio.NewReaderSize(said, longestLine)
	for {
		part, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		line := strings.TrimRight(string(part), "\r\n")
		if line != "" && !l.expected(line) {
			fmt.Fprintln(l.log, line)
			if last = append(last, line); len(last) > lastLines {
				last = last[1:]
			}
		}
		if err != nil {
			return last
		}
	}
}

// expected reports whether a line is no news: what srun says of an end that is ours, or of a cluster that could not keep workers
// from any processor anyway.
func (l *Launch) expected(line string) bool {
	if line == "srun: cluster configuration lacks support for cpu binding" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		return false
	}
	for _, begin := range []string{"srun: error:", "srun: Job step aborted", "srun: Force Terminated", "srun: launch/slurm:", "srun: Terminating", "slurmstepd: error: ***"} {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return false
}

// ended is the end of one of the launcher's processes, which is a loss unless it was to come.
func (l *Launch) ended(c command, err error, last []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return
	}
	text, status := "its worker has ended", 0
	if err != nil {
		text = err.Error()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	said := strings.Join(last, "; ")
	if said != "" {
		text += ": " + said
	}
	if c.remedy != nil {
		if remedy := c.remedy(status, said); remedy != "" {
			text += ": " + remedy
		}
	}
	l.reason = control.Errorf(control.Failed, "%s: %s", c.what, text)
	close(l.over)
}

// stop tells the launcher's processes to end.
func (l *Launch) stop(s unix.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	for _, cmd := range l.running {
		// It fails for one that has ended.
		_ = cmd.Process.Signal(s)
	}
}

// End waits until the workers have ended, as they do once the head has, and ends what does not. The guardian calls it when
// the head's process is gone.
func (l *Launch) End() {
	l.conn.Close()
	l.mu.Lock()
	l.ending = true
	patience := l.patience
	l.mu.Unlock()
	l.begin.Do(func() {}) // nothing is started from now on
	gone := make(chan struct{})
	go func() {
		l.rest.Wait()
		close(gone)
	}()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		select {
		case <-gone:
			return
		case <-time.After(patience):
			l.stop(s)
		}
	}
	select {
	case <-gone:
		return
	case <-time.After(patience):
	}
	// Something else has its standard error still, such as another host's process, and says nothing that matters any more.
	l.mu.Lock()
	for _, said := range l.said {
		said.Close()
	}
	l.mu.Unlock()
	<-gone
}

const (
	// giveBackTime bounds the time in which what was allocated is given back.
	giveBackTime = 30 * time.Second
	// giveBackDelay bounds the wait for the output of that when it has ended.
	giveBackDelay = time.Second
)

// The time that srun or ssh is given to end when all workers that are there have ended, and again after it was told to. After the
// loss of a host, for which it may wait for minutes, there is less of it.
const (
	overPatience = time.Second
	lossPatience = 200 * time.Millisecond
)

// plan says how the workers are started.
func (s Spec) plan(lab string) (plan, error) {
	switch s.Kind {
	case Slurm:
		return s.jobPlan(os.Getenv)
	case Allocate:
		return s.allocationPlan(lab)
	case SSH:
		return s.sshPlan(), nil
	case Kubernetes:
		pod, err := ThisPod()
		if err != nil {
			return plan{}, err
		}
		return pod.plan(lab), nil
	case Task:
		return taskPlan(lab, os.Getenv)
	}
	return s.localPlan(lab)
}

// localPlan starts all workers on this machine.
func (s Spec) localPlan(lab string) (plan, error) {
	names, err := s.Known(os.Getenv)
	p := plan{loopback: true, names: names}
	for i, name := range names {
		p.commands = append(p.commands, localWorker(lab, name, i))
	}
	return p, err
}

// localWorker starts a worker on this machine, of this very program.
func localWorker(lab, host string, index int) command {
	return command{what: "host " + host, args: []string{"/proc/self/exe", workerCommand}, argv0: "ndklab-worker " + lab + "/" + host, index: index}
}
