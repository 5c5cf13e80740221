package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
)

// Our end of rping, in a node:
//
//	rping-server ADDRESS:PORT SIZE          says "listening" and serves one client
//	rping-client ADDRESS:PORT SIZE ROUNDS [tell]     "tell" has it print the texts
func init() {
	programs["rping-server"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, size, err := parseRping(args)
		if err != nil {
			return err
		}
		return rping.Serve(ctx, adapter, at, rping.Options{Size: size}, func() { fmt.Println("listening") })
	}
	programs["rping-client"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, size, err := parseRping(args)
		if err != nil {
			return err
		}
		rounds, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		o := rping.Options{Size: size}
		if len(args) > 3 {
			o.Verbose = os.Stdout
		}
		return rping.Call(ctx, adapter, at, rounds, o)
	}
}

func parseRping(args []string) (at netip.AddrPort, size int, err error) {
	if at, err = netip.ParseAddrPort(args[0]); err == nil {
		size, err = strconv.Atoi(args[1])
	}
	return at, size, err
}

// rounds is the number of times that text of each size is sent there and back.
const rounds = 1000

// sizes are those of the text: of one packet, and about where there is one more,
// which is every 1024 bytes on a link with an MTU of 1500; odd ones and round
// ones, up to rping's largest.
var sizes = []int{64, 1000, 1023, 1024, 1025, 4096, 4097, 16381, 65535}

// rping has text of every size go there and back, in both directions over both
// IP versions, at the same time. Where packets are lost much of that is waiting,
// so there the sizes are not one after the other either.
func (s *setting) rping(t *testing.T) {
	all, n := sizes, rounds
	if s.short {
		all, n = []int{64, 1025, 65535}, rounds/20
	}
	if !s.lossy {
		for _, size := range all {
			t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) { s.exchange(t, size, n) })
		}
		return
	}
	var each sync.WaitGroup
	for _, size := range all {
		each.Go(func() {
			t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) { s.exchange(t, size, n) })
		})
	}
	each.Wait()
}

// exchange runs rping with text of one size.
func (s *setting) exchange(t *testing.T, size, rounds int) {
	var each sync.WaitGroup
	for _, p := range s.pairs {
		each.Go(func() {
			t.Run("to the node, "+p.node.String(), func(t *testing.T) { s.rpingToNode(t, p.node, size, rounds) })
		})
		each.Go(func() {
			t.Run("to the guest, "+p.guest.String(), func(t *testing.T) { s.rpingToGuest(t, p.guest, size, rounds) })
		})
	}
	each.Wait()
}

func (s *setting) rpingToNode(t *testing.T, node netip.Addr, size, rounds int) {
	at := netip.AddrPortFrom(node, s.nextPort())
	server := s.ours(t, fmt.Sprintf("rping-server %v %d", at, size))
	server.says(t, "listening")
	if err := s.guest.rping(fmt.Sprintf("-c -a %v -p %d -S %d -C %d -V", node, at.Port(), size, rounds))(); err != nil {
		t.Fatal(err)
	}
	if s.lossy {
		// The client's DREQ may be lost, which the kernel does not send again
		// once the client has exited: then our server cannot know that it is over.
		server.kill()
		_ = server.wait() // it may have ended before
	} else if err := server.wait(); err != nil {
		t.Error(err)
	}
}

func (s *setting) rpingToGuest(t *testing.T, guest netip.Addr, size, rounds int) {
	at := netip.AddrPortFrom(guest, s.nextPort())
	server := s.guest.rping(fmt.Sprintf("-s -a %v -p %d -S %d -C %d -V", guest, at.Port(), size, rounds))
	s.guest.listens(t, at)
	if err := s.ours(t, fmt.Sprintf("rping-client %v %d %d", at, size, rounds)).wait(); err != nil {
		t.Error(err)
	}
	if err := server(); err != nil {
		t.Error(err)
	}
}

// rping starts rping in the guest, with arguments that have it print nothing but
// what goes wrong. wait returns how it ended.
func (g guest) rping(args string) (wait func() error) {
	ended := g.start("rping " + args)
	return func() error {
		if _, err := ended(); err != nil && !endedTwice(err) {
			return err
		}
		return nil
	}
}

// Texts that rping prints at the end of either end, and if it then fails only because
// it is ended twice. A server always waits for one more round, in vain; 10 is the
// state of being disconnected.
const (
	clientEnds = "client DISCONNECT EVENT...\n"
	serverEnds = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n"
	endsTwice  = "rdma_get_cm_event: Bad file descriptor\n"
)

// endedTwice reports whether rping has failed only because two of its threads ended
// it, which says nothing about what was exchanged. When everything is over the main
// thread closes the channel of rdma_cm's events and exits with 0, but leaves the
// thread running that takes the events. Should that come so late that it asks for
// another one when the channel is closed already, it exits with -1 first. (Before
// rdma-core 61: commit f3ae6534ad93, "rping: terminate CM event thread before
// exiting".) If anything else was wrong, rping has printed that as well.
func endedTwice(err error) bool {
	var f *failedScript
	return errors.As(err, &f) && f.status == 255 && (f.printed == clientEnds+endsTwice || f.printed == serverEnds+endsTwice)
}

// TestEndedTwice: no other failure passes for that.
func TestEndedTwice(t *testing.T) {
	for _, c := range []struct {
		status  int
		printed string
		want    bool
	}{
		{255, clientEnds + endsTwice, true},
		{255, serverEnds + endsTwice, true},
		{1, clientEnds + endsTwice, false},
		{255, endsTwice, false}, // in the middle
		{255, clientEnds, false},
		{255, "data mismatch!\nrping client failed: -1\n" + clientEnds + endsTwice, false},
		{255, clientEnds + "wait for RDMA_WRITE_ADV state 10\n" + endsTwice, false}, // the server disconnected
		{255, "cq completion failed status 12\n" + serverEnds + endsTwice, false},
	} {
		err := fmt.Errorf("guest: %w", &failedScript{"run", errors.New("exit status"), c.status, c.printed})
		if got := endedTwice(err); got != c.want {
			t.Errorf("status %d, %q: %t, want %t", c.status, c.printed, got, c.want)
		}
	}
}
