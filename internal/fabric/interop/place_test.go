package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// A place runs an end of an exchange: the node, over ndklab's libraries, or the guest, over rdma-core's and rxe.
type place struct {
	name              string
	address, address6 netip.Addr
	gid, gid6         string // the indexes of their GIDs
	folder            string // for files
	cases             string // the program of testdata/verbs
	start             func(t *testing.T, command string) *process
	listens           func(port uint16) string // a command that succeeds when something listens there
	hasListener       func(port uint16) bool   // by librdmacm, where no command tells
}

// A process is a command of a shell in a place.
type process struct {
	stop  func()        // ends it
	ended chan struct{} // closed when it has ended
	out   string        // then what it printed, errors last
	err   error         // then a failedScript, if its status was not 0
}

// node is the node as a place.
func (s *setting) node(t *testing.T) *place {
	p := &place{name: "node", address: s.pairs[0].node, address6: s.pairs[1].node, folder: t.TempDir(), start: s.shell}
	p.listens = func(port uint16) string { return fmt.Sprintf("ss -Hltn sport = :%d | grep -q .", port) }
	p.hasListener = s.hasListener
	p.find(t, "ndk0")
	return p
}

// foreign is the guest as a place.
func (s *setting) foreign(t *testing.T) *place {
	p := &place{name: "guest", address: s.pairs[0].guest, address6: s.pairs[1].guest, folder: "/tmp", start: s.foreignShell}
	p.listens = func(port uint16) string {
		return fmt.Sprintf("ss -Hltn sport = :%d | grep -q . || rdma resource show cm_id | grep -F 'state LISTEN' | grep -qF ':%[1]d '", port)
	}
	p.hasListener = func(uint16) bool { return false }
	p.find(t, "rxe0")
	return p
}

// find finds the place's GIDs.
func (p *place) find(t *testing.T, device string) {
	t.Helper()
	for _, of := range []struct {
		address netip.Addr
		index   *string
	}{{p.address, &p.gid}, {p.address6, &p.gid6}} {
		out, err := p.run(t, findGID(device, of.address))
		if err != nil {
			t.Fatalf("the %s has no GID of %v: %v", p.name, of.address, err)
		}
		*of.index = strings.TrimSpace(out)
	}
}

// run runs a command to its end.
func (p *place) run(t *testing.T, command string) (string, error) {
	t.Helper()
	c := p.start(t, command)
	<-c.ended
	return c.out, c.err
}

// readyTime bounds the time of a server to be ready.
const readyTime = 2 * time.Minute

// await waits until a command succeeds, or, if that is "", until something listens at a port, or until a process has
// ended.
func (p *place) await(t *testing.T, command string, port uint16, server *process) error {
	t.Helper()
	listens := command == ""
	if listens {
		command = p.listens(port)
	}
	for deadline := time.Now().Add(readyTime); ; {
		if _, err := p.run(t, command); err == nil || listens && p.hasListener(port) {
			return nil
		}
		select {
		case <-server.ended:
			return nil // what its client prints tells more
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server in the %s is not ready after %v", p.name, readyTime)
		}
	}
}

// shell starts a command in the node.
func (s *setting) shell(t *testing.T, command string) *process {
	t.Helper()
	r := s.inNode(t, node.Command{Args: []string{"sh", "-c", command}})
	p := &process{ended: make(chan struct{})}
	p.stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.lab.Nodes.Signal(ctx, "us", r.id, syscall.SIGTERM) // it may have ended
	}
	go func() {
		defer close(p.ended)
		out, _ := io.ReadAll(r.out) // to the command's end
		err := r.wait()
		p.out = string(out) + r.stderr.String()
		if err != nil {
			status := -1
			_, _ = fmt.Sscanf(err.Error(), "status %d", &status)
			p.err = fmt.Errorf("node: %s: %w", command, &failedScript{"exec", err, status, p.out})
		}
	}()
	return p
}

// hasListener reports whether something listens at a port of the node's adapter.
func (s *setting) hasListener(port uint16) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := s.lab.Nodes.Connections(ctx, "us")
	return err == nil && slices.ContainsFunc(all.Connections, func(c adapter.Connection) bool {
		return c.Type == "Listener" && strings.HasSuffix(c.Local, fmt.Sprintf(":%d", port))
	})
}

// foreignShell starts a command in the guest.
func (s *setting) foreignShell(t *testing.T, command string) *process {
	t.Helper()
	file := fmt.Sprintf("/tmp/program-%d", s.programs.Add(1)) // which has the process group's number
	wait := s.guest.start(fmt.Sprintf("ps -o pgid= -p $$ >%s; { %s; } 2>%s.stderr; status=$?; cat %[1]s.stderr; exit $status", file, command, file))
	p := &process{ended: make(chan struct{})}
	p.stop = func() {
		_, _ = s.guest.start(fmt.Sprintf("kill -TERM -- -$(tr -d ' ' <%s)", file))() // it may have ended
	}
	go func() {
		defer close(p.ended)
		p.out, p.err = wait()
		if f := (*failedScript)(nil); errors.As(p.err, &f) {
			p.out = f.printed
		}
	}()
	return p
}
