package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// An end is a command that runs in a node.
type end struct {
	t       *testing.T
	lab     *labtest.Lab
	node    string
	command *labtest.Command
	output  output        // all that it prints, errors too
	read    chan struct{} // closed when that is complete
}

// start starts a pair's command in a node. It is ended when ctx ends.
func start(ctx context.Context, t *testing.T, l *labtest.Lab, node, command string) *end {
	t.Helper()
	c, err := l.Node(node).Command(ctx, "sh", "-c", "exec 2>&1; "+addressed(l, command))
	if err != nil {
		t.Fatal(err)
	}
	e := &end{t: t, lab: l, node: node, command: c, read: make(chan struct{})}
	go func() {
		defer close(e.read)
		_, _ = io.Copy(&e.output, c) // to the end of the command
	}()
	return e
}

// addressed is a pair's command with the addresses that the words in it stand for.
func addressed(l *labtest.Lab, command string) string {
	var words []string
	for _, name := range []string{"server", "client"} {
		if !strings.Contains(command, strings.ToUpper(name)) {
			continue // a lab may be without
		}
		all := l.Node(name).Addresses() // the first is of IPv4, the second of IPv6
		words = append(words, strings.ToUpper(name)+"6", all[1].String(), strings.ToUpper(name), all[0].String())
	}
	return strings.NewReplacer(words...).Replace(command)
}

// awaitReady waits until a server prints something, or, if that is "", until it listens.
func (e *end) awaitReady(printed string) {
	e.t.Helper()
	e.lab.Eventually(func() error {
		select {
		case <-e.read: // the command has ended; what its client prints tells more
			return nil
		default:
		}
		if printed == "" {
			return e.listens()
		}
		if !regexp.MustCompile(printed).MatchString(e.output.String()) {
			return fmt.Errorf("the server prints no %q, but %q", printed, e.output.String())
		}
		return nil
	})
}

// enoughTraffic is more bytes than programs exchange before they begin with what they are for.
const enoughTraffic = 1 << 20

// awaitTraffic waits until the adapter of the end's node has received that much more.
func (e *end) awaitTraffic() {
	e.t.Helper()
	e.awaitTrafficTo(e.node)
}

// awaitTrafficTo waits until the adapter of a node has received that much more.
func (e *end) awaitTrafficTo(name string) {
	e.t.Helper()
	node := e.lab.Node(name)
	received := func() uint64 { return node.Counters()["RDMAInOctets"] }
	before := received()
	e.lab.Eventually(func() error {
		select {
		case <-e.read: // the command has ended; what follows tells of it
			return nil
		default:
		}
		if n := received() - before; n < enoughTraffic {
			return fmt.Errorf("the %s has received %d bytes", name, n)
		}
		return nil
	})
}

// listens is nil if something listens in the node, where nothing but the command runs.
func (e *end) listens() error {
	if e.hasListener() == nil {
		return nil
	}
	sockets, err := e.lab.Node(e.node).Run(e.lab.Context(), "cat", "/proc/net/tcp", "/proc/net/tcp6")
	if err == nil && !regexp.MustCompile(`(?m)^ *\d+: [0-9A-F:]+ [0-9A-F:]+ 0A `).MatchString(sockets) { // TCP_LISTEN
		err = errors.New("the server does not listen")
	}
	return err
}

// hasListener is nil if the adapter of the node lists a listener.
func (e *end) hasListener() error {
	l, err := lab.Open(e.lab.Context(), e.lab.Name())
	if err != nil {
		return err
	}
	defer l.Close()
	all, err := l.Nodes.Connections(e.lab.Context(), e.node)
	if err == nil && !slices.ContainsFunc(all.Connections, func(c adapter.Connection) bool { return c.Type == "Listener" }) {
		err = fmt.Errorf("the %s does not listen", e.node)
	}
	return err
}

// makePipe makes a named pipe, open for as long as the test runs, so that neither reading nor writing ends with others.
func makePipe(t *testing.T, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	return pipe
}

// signal sends a signal to the command's processes.
func (e *end) signal(s syscall.Signal) {
	e.t.Helper()
	if err := e.command.Signal(s); err != nil {
		e.t.Error(err)
	}
}

// stop interrupts the command, unless it has ended, and waits for its end, which is no error.
func (e *end) stop() {
	select {
	case <-e.read:
	default:
		_ = e.command.Signal(syscall.SIGINT) // it may have ended now
	}
	_ = e.wait()
}

// wait waits for the command's end. It is an error if its status is not 0.
func (e *end) wait() error {
	<-e.read
	if err := e.command.Wait(); err != nil {
		return fmt.Errorf("%s: %w", e.node, err)
	}
	return nil
}

// An output collects what is printed.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is the text of it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
