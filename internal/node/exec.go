package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// This file runs commands, at both ends of the control channel.

var (
	methodExec   = control.NewMethod[Command, int]("exec").WithFiles(0, 3) // returns the exit status
	methodSignal = control.NewProcedure[signalParams]("signal")
	// noticeStarted is the agent's: the command of that ID runs.
	noticeStarted = control.NewNotice[string]("started")
)

type signalParams struct {
	ID     string
	Signal syscall.Signal
}

// Exec runs a command in the node, with files as its standard input, output and
// error (/dev/null where there are fewer), and returns its exit status as shells
// do: 128 and the signal's number if one killed it; 127 if there is no such
// command and 126 if it cannot be executed, with the reason on its standard
// error. An error means that nothing is known of the command's end.
//
// The command leads a process group, and with cmd.Terminal a session. When ctx ends,
// Exec returns with its error and the group gets SIGTERM and, killDelay later, SIGKILL; likewise when the
// control channel ends. Processes that left the group, and those that the command
// leaves behind when it ends by itself, live on until the agent ends.
func (c *Client) Exec(ctx context.Context, cmd Command, files ...*os.File) (status int, err error) {
	if cmd.Env == nil {
		cmd.Env = Environment()
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, &cmd); err != nil {
			return 0, err
		}
	}
	started, err := c.commands.add(&cmd)
	if err != nil {
		return 0, c.named(err)
	}
	defer c.commands.remove(cmd.ID)
	if cmd.Started != nil {
		go func() {
			<-started.over
			cmd.Started()
		}()
	}
	if cmd.Terminal {
		ctx = control.Lend(ctx)
	}
	return call(ctx, c, methodExec, cmd, files...)
}

// prepareCommand has the node ready for commands, and a command have the node's own variables.
func (a *Agent) prepareCommand(ctx context.Context, cmd *Command) error {
	cmd.Env = withVariables(cmd.Env, a.cfg.Env)
	return a.Mount(ctx)
}

// Signal sends a signal to the process group of the command that Exec runs under
// id. It waits until the command has been started.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	if err := c.commands.awaitStarted(ctx, id); err != nil {
		return c.named(err)
	}
	return c.named(methodSignal.Call(ctx, c.conn, signalParams{id, sig}))
}

// commands are those that Exec runs, from its call to its return.
type commands struct {
	prefix string // of the IDs of commands that came without one

	mu      sync.Mutex               // guards what follows
	count   uint64                   // of those
	running map[string]*commandStart // by Command.ID
}

// add adds a command, which it gives an ID if it has none.
func (c *commands) add(cmd *Command) (*commandStart, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd.ID == "" {
		c.count++
		cmd.ID = c.prefix + strconv.FormatUint(c.count, 10)
	}
	if c.running[cmd.ID] != nil {
		return nil, errRunning(cmd.ID)
	}
	started := newCommandStart()
	c.running[cmd.ID] = started
	return started, nil
}

// remove removes a command. Callers that wait for its start wait no longer.
func (c *commands) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[id].end()
	delete(c.running, id)
}

// noteStarted handles noticeStarted.
func (c *commands) noteStarted(_ context.Context, _ *control.Request, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.running[id]; b != nil {
		b.end()
	}
	return nil
}

// awaitStarted waits until a command has been started, or will not be.
func (c *commands) awaitStarted(ctx context.Context, id string) error {
	c.mu.Lock()
	started := c.running[id]
	c.mu.Unlock()
	if started == nil {
		return errNotRunning(id)
	}
	select {
	case <-started.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errRunning(id string) error {
	return control.Errorf(control.Usage, "command %q runs already", id)
}

func errNotRunning(id string) error { return control.Errorf(control.Usage, "no command %q runs", id) }

// A commandStart is the start of a command.
type commandStart struct {
	over <-chan struct{} // closed when the command has been started, or will not be
	end  func()          // closes it, the first time
}

func newCommandStart() *commandStart {
	over := make(chan struct{})
	return &commandStart{over, sync.OnceFunc(func() { close(over) })}
}

// killDelay is the time that a command has to end by itself after SIGTERM. Tests change it.
var killDelay = time.Second

// Statuses that shells return for a command that they cannot run (POSIX.1-2024,
// Shell Command Language, 2.8.2).
const (
	statusCannotExecute = 126
	statusNotFound      = 127
)

// exec answers Agent.Exec.
func (a *agent) exec(ctx context.Context, r *control.Request, cmd Command) (status int, err error) {
	if len(cmd.Args) == 0 {
		return 0, control.Errorf(control.Usage, "exec: no command")
	}
	if cmd.Dir != "" {
		// Starting the command would fail the same way as if it were not there.
		if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
			return 0, control.Errorf(control.Usage, "working directory %s: no such directory", cmd.Dir)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	stdio := [3]*os.File{null, null, null}
	copy(stdio[:], r.Files)

	a.preparePrograms(&cmd)
	p, err := a.startCommand(&cmd, stdio)
	var failed *cannotRun
	if errors.As(err, &failed) {
		// A standard error that cannot be written to is the caller's choice.
		_, _ = fmt.Fprintf(stdio[2], "%s: %v\n", a.name, failed)
		return failed.status, nil
	}
	if err != nil {
		return 0, err
	}
	// The command has its own now. Files that remained open here would keep the
	// other ends waiting for an end that has come.
	for i, f := range r.Files {
		f.Close()
		r.Files[i] = nil
	}
	// Where this fails the channel has ended, and so has ctx.
	_ = noticeStarted.Send(r.Conn, cmd.ID)

	go a.updateWhile(p)
	stop := context.AfterFunc(ctx, func() { p.terminate() })
	p.awaitEnd()
	if !stop() {
		// The caller gave up: what the command left running ends with it. Its pid
		// is still the group's, since it is not reaped.
		_ = p.signal(unix.SIGKILL, true)
	}
	p.reap()
	a.reaper.Collected(p.pid)
	a.mu.Lock()
	delete(a.commands, cmd.ID)
	a.mu.Unlock()
	return p.exit.Shell(), nil
}

// terminate ends the process group that p leads, by force after killDelay. Both
// signals fail only if it has ended.
func (p *process) terminate() {
	_ = p.signal(unix.SIGTERM, true)
	select {
	case <-p.done:
	case <-time.After(killDelay):
		_ = p.signal(unix.SIGKILL, true)
	}
}

// startCommand starts a command, in a process group of its own, and with a terminal
// in a session of its own.
func (a *agent) startCommand(cmd *Command, stdio [3]*os.File) (*process, error) {
	path, err := lookPath(cmd)
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Sys: &syscall.SysProcAttr{
		Setpgid: !cmd.Terminal, // a session's leader leads a group as it is
		Setsid:  cmd.Terminal,
		Setctty: cmd.Terminal, // the child's descriptor 0
	}}
	for _, f := range stdio {
		fd := f.Fd()
		if err := unix.SetNonblock(int(fd), false); err != nil { // commands expect it so
			return nil, fmt.Errorf("file for %s: %w", cmd.Args[0], err)
		}
		attr.Files = append(attr.Files, fd)
	}
	a.mu.Lock() // until the process is where end and signal find it
	defer a.mu.Unlock()
	if a.ending {
		return nil, errors.New("the node is ending")
	}
	if a.paused {
		return nil, control.Errorf(control.Usage, "the node is paused")
	}
	if a.commands[cmd.ID] != nil {
		return nil, errRunning(cmd.ID)
	}
	var p *process
	err = a.reaper.Start(func() (pid int, err error) {
		if p, err = startProcess(path, cmd.Args, attr); err != nil {
			return 0, err
		}
		return p.pid, nil
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, &cannotRun{statusNotFound, cmd.Args[0], err}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err) // not for want of an executable
	case err != nil:
		return nil, &cannotRun{statusCannotExecute, cmd.Args[0], err}
	}
	a.commands[cmd.ID] = p
	return p, nil
}

// A cannotRun is a command that is not there or cannot be executed.
type cannotRun struct {
	status int
	name   string
	reason error
}

func (e *cannotRun) Error() string { return fmt.Sprintf("%s: %v", e.name, e.reason) }

// lookPath returns the path of the command's program: the first executable one in
// PATH, or, with a slash in it, the name itself.
func lookPath(cmd *Command) (string, error) {
	name := cmd.Args[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	failed := &cannotRun{statusNotFound, name, errors.New("command not found")}
	for _, dir := range filepath.SplitList(variable(cmd.Env, "PATH")) {
		path := filepath.Join(cmd.Dir, dir, name)
		if filepath.IsAbs(dir) {
			path = filepath.Join(dir, name)
		}
		info, err := os.Stat(path)
		switch {
		case err != nil || info.IsDir():
		case unix.Access(path, unix.X_OK) != nil:
			failed = &cannotRun{statusCannotExecute, name, fs.ErrPermission}
		default:
			return filepath.Abs(path)
		}
	}
	return "", failed
}

// variable returns the value of a variable in env. The last one counts.
func variable(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// signal passes a signal on to a running command's process group.
func (a *agent) signal(_ context.Context, _ *control.Request, to signalParams) error {
	a.mu.Lock()
	p := a.commands[to.ID]
	a.mu.Unlock()
	if p == nil {
		return errNotRunning(to.ID)
	}
	if err := p.signal(to.Signal, true); err != nil {
		return fmt.Errorf("signal %d to command %q: %w", to.Signal, to.ID, err)
	}
	return nil
}
