package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// A setting is a lab of a node and a guest.
type setting struct {
	lab   *lab.Lab
	guest guest
	boot  func(*testing.T) // another guest in its place
	pairs []pair           // of addresses, one of each IP version
	short bool             // less of everything
	plain bool             // the kernel carries the link, by a tap; see unsteady
	lossy bool             // the guest loses and reorders what crosses its network card

	ports, programs atomic.Uint32 // how many were given out
}

type pair struct{ node, guest netip.Addr }

// newSetting brings up a lab whose link has properties, and whose node an adapter block, and boots a guest.
func newSetting(t *testing.T, link, adapter string, boot func(*testing.T, report.External) guest) *setting {
	t.Helper()
	topo, err := topology.Parse("guest.yaml", fmt.Appendf(nil, `
name: interop-%d
seed: 1
topology:
  defaults: {link: {%s}}
  nodes: {us: {adapter: {%s}}}
  links:
    - {endpoints: ["us:eth0", "external:guest0"]}
`, os.Getpid(), link, adapter))
	if err != nil {
		t.Fatal(err)
	}
	s := &setting{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.lab, err = lab.Start(ctx, topo, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	in, err := s.lab.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range topo.Nodes[0].Interfaces[0].Addresses {
		s.pairs = append(s.pairs, pair{a.Addr(), topo.Externals[0].Addresses[i].Addr()})
	}
	s.boot = func(t *testing.T) { s.guest = boot(t, in.Externals[0]) }
	s.boot(t)
	return s
}

// nextPort is a port that nothing in the setting has used.
func (s *setting) nextPort() uint16 { return uint16(7000 + s.ports.Add(1)) }

// A running is a program in the node.
type running struct {
	id     string
	out    *bufio.Reader
	kill   func()
	ended  chan error // then how it ended
	stderr bytes.Buffer
}

// ours starts a program of main_test.go in the node.
func (s *setting) ours(t *testing.T, program string) *running {
	t.Helper()
	return s.inNode(t, node.Command{Args: []string{"/proc/self/exe"}, Env: append(os.Environ(), "NDKLAB_TEST_PROGRAM="+program)})
}

// inNode starts a command in the node, and names it.
func (s *setting) inNode(t *testing.T, cmd node.Command) *running {
	t.Helper()
	var files [6]*os.File // reading and writing ends of its input, output and error output
	for i := 0; i < len(files); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files[i], files[i+1] = r, w
		t.Cleanup(func() { r.Close(); w.Close() })
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	cmd.ID = fmt.Sprint("program ", s.programs.Add(1))
	p := &running{id: cmd.ID, out: bufio.NewReader(files[2]), kill: cancel, ended: make(chan error, 1)}
	t.Cleanup(cancel)
	go func() {
		status, err := s.lab.Nodes.Exec(ctx, "us", cmd, files[0], files[3], files[5])
		files[3].Close()
		files[5].Close()
		_, _ = p.stderr.ReadFrom(files[4])
		if err == nil && status != 0 {
			err = fmt.Errorf("status %d: %s", status, &p.stderr)
		}
		p.ended <- err
	}()
	return p
}

func (p *running) wait() error { return <-p.ended }

// says waits for the program's next line.
func (p *running) says(t *testing.T, want string) {
	t.Helper()
	if line, err := p.out.ReadString('\n'); line != want+"\n" {
		t.Fatalf("the program says %q (%v), want %q; it ended: %v", line, err, want, p.wait())
	}
}
