package labtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/node"
	"golang.org/x/sys/unix"
)

// A Command is a program that runs in a node.
type Command struct {
	node   *Node
	id     string
	args   []string
	stdout *os.File // the end that is read
	errors output
	cancel context.CancelFunc

	done   chan struct{} // closed when it has ended, and all that it wrote to its standard error is read
	status int           // valid once done is closed, as is err
	err    error         // why nothing is known of its end
}

// An ExitError is a command that ended with another status than 0.
type ExitError struct {
	Node   string
	Args   []string
	Status int    // as shells have it: 128 and the signal's number if one ended it; 127: there is no such command
	Stderr string // the last of its standard error
}

// Error has the end of what the command wrote to its standard error.
func (e *ExitError) Error() string {
	text := fmt.Sprintf("node %s: %s: exit status %d", e.Node, strings.Join(e.Args, " "), e.Status)
	if told := strings.TrimSpace(e.Stderr); told != "" {
		text += ": " + told
	}
	return text
}

// Run runs a command in the node until it ends, and returns its standard output. The
// error of one that ends with another status than 0 is an *ExitError. The command is in
// the node's network, PID, mount and UTS namespaces, has the environment and the folder
// of the test, and is ended when ctx ends.
func (n *Node) Run(ctx context.Context, args ...string) (stdout string, err error) {
	c, err := n.Command(ctx, args...)
	if err != nil {
		return "", err
	}
	out, readErr := io.ReadAll(c)
	return string(out), errors.Join(c.Wait(), readErr)
}

// Command starts a command in the node, as Run does, and returns when it is on its way. It
// is ended, if it has not by itself, when ctx ends or the lab. Its standard output is to be
// read from the Command.
func (n *Node) Command(ctx context.Context, args ...string) (*Command, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	c := &Command{node: n, id: n.lab.nextID(), args: args, done: make(chan struct{})}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	ours, stdout, err := os.Pipe()
	if err != nil {
		null.Close()
		return nil, err
	}
	told, stderr, err := os.Pipe()
	if err != nil {
		for _, f := range []*os.File{null, ours, stdout} {
			f.Close()
		}
		return nil, err
	}
	c.stdout = ours
	ctx, c.cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(n.lab.ctx, c.cancel)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(&c.errors, told) // to the file's end, or to its deadline
		_, _ = io.CopyN(&c.errors, rest{told}, pipeSize)
	}()
	go func() {
		defer close(c.done)
		defer stop()
		c.status, c.err = n.lab.lab.Nodes.Exec(ctx, n.name, node.Command{ID: c.id, Args: args, Env: os.Environ(), Dir: dir}, null, stdout, stderr)
		for _, f := range []*os.File{null, stdout, stderr} {
			f.Close()
		}
		// Processes that the command has left running may keep the files open.
		late := time.Now().Add(outputTime)
		_ = errors.Join(ours.SetReadDeadline(late), told.SetReadDeadline(late)) // of pipes it does not fail
		<-copied
		told.Close()
		c.cancel()
	}()
	return c, nil
}

// outputTime bounds the wait, after the end of a command, for output of processes that it
// has left running.
const outputTime = 500 * time.Millisecond

// Read implements io.Reader: the standard output of the command.
func (c *Command) Read(p []byte) (int, error) {
	n, err := c.stdout.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	return rest{c.stdout}.Read(p)
}

// A rest reads the bytes that are in a pipe when its deadline is over: the command has
// ended, and they are all that there are.
type rest struct{ pipe *os.File }

// pipeSize is the capacity of a pipe, in bytes.
const pipeSize = 64 << 10

func (r rest) Read(p []byte) (n int, err error) {
	raw, err := r.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), p) }); e != nil {
		return 0, e
	}
	if n <= 0 || err != nil {
		return 0, io.EOF
	}
	return n, nil
}

// Signal sends a signal to the command's process group.
func (c *Command) Signal(sig syscall.Signal) error {
	return c.node.lab.lab.Nodes.Signal(c.node.lab.ctx, c.node.name, c.id, sig)
}

// Wait waits for the command to end. Its standard output is closed then: it is to be read
// before.
func (c *Command) Wait() error {
	<-c.done
	c.stdout.Close()
	if c.err != nil {
		return fmt.Errorf("lab %s: %s: %w", c.node.lab.topo.Name, strings.Join(c.args, " "), c.node.lab.because(c.err))
	}
	if c.status != 0 {
		return &ExitError{Node: c.node.name, Args: c.args, Status: c.status, Stderr: c.errors.String()}
	}
	return nil
}

// Stop ends the command and waits for its end, which is no error.
func (c *Command) Stop() {
	c.cancel()
	<-c.done
	c.stdout.Close()
}

// mostOutput bounds the end of a command's standard error that is kept, in bytes.
const mostOutput = 16 << 10

// An output is the end of what was written to it.
type output struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	if n := len(o.buf) - mostOutput; n > 0 {
		o.buf = bytes.Clone(o.buf[n:])
	}
	return len(p), nil
}

// String returns the output that is kept.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf)
}
