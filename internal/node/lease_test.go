package node

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/lease"
)

// envProgram makes the test binary a program that uses the node's adapter.
const envProgram = "NDKLAB_TEST_PROGRAM"

// self is the test binary, which agents run, too.
const self = "/proc/self/exe"

// A program is one that runs in a node.
type program struct {
	agent  *Agent
	id     string
	lines  *bufio.Scanner
	begun  chan struct{} // closed when it runs
	ended  chan struct{} // closed when it has
	status int           // its exit status then
}

func runIn(t *testing.T, a *Agent, args ...string) *program {
	t.Helper()
	r, w := pipe(t)
	p := &program{agent: a, id: strings.Join(args, " "), lines: bufio.NewScanner(r), begun: make(chan struct{}), ended: make(chan struct{})}
	cmd := Command{ID: p.id, Args: append([]string{self}, args...), Env: append(env, envProgram+"=1"), Started: func() { close(p.begun) }}
	ctx, cancel := context.WithCancel(context.Background())
	null := devNull(t)
	go func() {
		defer close(p.ended)
		defer w.Close()
		var err error
		p.status, err = a.Exec(ctx, cmd, null, w, os.Stderr)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// says waits for the next line of the program, which must begin with want, and
// returns the rest of it.
func (p *program) says(t *testing.T, want string) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("%s: no %q comes: %v", p.id, want, p.lines.Err())
	}
	rest, ok := strings.CutPrefix(p.lines.Text(), want)
	if !ok {
		t.Fatalf("%s: %q, want %q", p.id, p.lines.Text(), want)
	}
	return rest
}

// TestPrograms runs programs in nodes that open the node's adapter: they connect
// with each other, within a node and across the link, and are told when one is
// killed.
func TestPrograms(t *testing.T) {
	a, b := linked(t)
	for _, test := range []struct {
		name           string
		client, server *Agent
	}{
		{"two nodes", a, b},
		{"one node", a, a},
	} {
		for family := range 2 {
			t.Run(fmt.Sprintf("%s, address %d", test.name, family), func(t *testing.T) {
				server := runIn(t, test.server, "listen", test.server.cfg.addresses()[family].Address.String())
				at := server.says(t, "listening at ")
				client := runIn(t, test.client, "dial", test.client.cfg.addresses()[family].Address.String(), at)
				server.says(t, "received hello")
				client.says(t, "sent")
				if c, err := test.client.Counters(t.Context()); err != nil || c.NDK["ActiveConnection"] == 0 {
					t.Errorf("counters %v, %v", c, err)
				}
				killed := time.Now()
				if err := test.client.Signal(t.Context(), client.id, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				server.says(t, "disconnected")
				t.Logf("told after %v", time.Since(killed))
				if <-server.ended; server.status != 0 {
					t.Errorf("the server's status: %d", server.status)
				}
			})
		}
	}
}

// TestProgramOutside: the error says what to do where there is no adapter.
func TestProgramOutside(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	status, _, stderr := run(t, a, Command{Args: []string{self, "listen", "10.0.0.1"}, Env: append(env, envProgram+"=1")}, "")
	if status != 1 || !strings.Contains(stderr, "ndklab exec LAB/NODE -- PROGRAM") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// runProgram runs a program: those of runListener; "listen ADDRESS", which ends when its peer
// does, and "dial ADDRESS PEER", which waits to be killed.
func runProgram(args []string) error {
	if args[0] == listenOnSignal {
		return runListener(args[1:])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	device, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return status
	}
	cq, err := await.NewCQ(adapter, 4)
	if err != nil {
		return err
	}
	pd, status := adapter.CreatePD(nil, nil)
	if status != provider.StatusSuccess {
		return status
	}
	qp, status := pd.CreateQP(cq.CQ, cq.CQ, nil, 4, 4, 1, 1, 64, nil, nil)
	if status != provider.StatusSuccess {
		return status
	}
	memory := []byte("hello")
	mr, status := pd.CreateMR(false, nil, nil)
	if status != provider.StatusSuccess {
		return status
	}
	status = mr.Register(&provider.MDL{Bytes: memory}, uint64(len(memory)), provider.MRAllowLocalWrite, nil, nil)
	if status != provider.StatusSuccess {
		return status
	}
	sgl := []provider.SGE{{Length: uint32(len(memory)), MemoryRegionToken: mr.LocalToken()}}
	local := netip.MustParseAddr(args[1])
	if args[0] == "dial" {
		if _, err := await.Dial(ctx, adapter, qp, local, netip.MustParseAddrPort(args[2]), await.Options{}); err != nil {
			return err
		}
		if status := qp.Send(nil, sgl, 0); status != provider.StatusSuccess {
			return status
		}
		if _, err := cq.One(ctx); err != nil {
			return err
		}
		fmt.Println("sent")
		<-ctx.Done()
		return ctx.Err()
	}
	clear(memory)
	if status := qp.Receive(nil, sgl); status != provider.StatusSuccess {
		return status
	}
	l, err := await.Listen(ctx, adapter, netip.AddrPortFrom(local, 0))
	if err != nil {
		return err
	}
	at, err := l.Address()
	if err != nil {
		return err
	}
	fmt.Println("listening at", at)
	c, err := l.Next(ctx)
	if err != nil {
		return err
	}
	disconnected := make(chan struct{})
	if err := await.Accept(ctx, c, qp, await.Options{Disconnected: func() { close(disconnected) }}); err != nil {
		return err
	}
	if _, err := cq.One(ctx); err != nil {
		return err
	}
	fmt.Printf("received %s\n", memory)
	select {
	case <-disconnected:
		fmt.Println("disconnected")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
