package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/topology"
)

// A setting is a lab of a node and a guest.
type setting struct {
	lab   *lab.Lab
	guest guest
	pairs []pair // of addresses, one of each IP version
}

type pair struct{ node, guest netip.Addr }

// The guest is on a link that the kernel carries, by a tap, and on one that the
// engine delays, by sockets. In both cases nothing is to be lost or refused, until
// the guest itself loses packets.
func TestGuest(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	for _, attached := range []struct {
		name  string
		delay string
		boot  func(*testing.T, report.External) guest
	}{
		{"sockets", "delay: 1ms", bySockets},
		{"tap", "", byTap},
	} {
		t.Run(attached.name, func(t *testing.T) {
			s := newSetting(t, attached.delay, attached.boot)
			t.Run("ping", s.ping)
			t.Run("rping", s.rping)
			t.Run("counters", s.counters)
			t.Run("loss", s.loss)
		})
	}
}

func newSetting(t *testing.T, impairment string, boot func(*testing.T, report.External) guest) *setting {
	t.Helper()
	topo, err := topology.Parse("guest.yaml", fmt.Appendf(nil, `
name: interop-%d
seed: 1
topology:
  defaults: {link: {%s}}
  nodes: {us: }
  links:
    - {endpoints: ["us:eth0", "external:guest0"], mtu: 1500}
`, os.Getpid(), impairment))
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
	s.guest = boot(t, in.Externals[0])
	return s
}

func (s *setting) ping(t *testing.T) {
	for _, p := range s.pairs {
		s.guest.run(t, "ping -c 3 -i 0.2 -W 5 -q "+p.node.String())
	}
}

// rping in both directions, in messages of one packet and of many.
func (s *setting) rping(t *testing.T) {
	s.exchange(t, false, []exchange{{64, 20}, {3001, 5}, {65535, 3}})
}

// loss repeats that with what the guest sends lost and reordered: everything
// arrives all the same, and no retry limit is reached.
func (s *setting) loss(t *testing.T) {
	s.guest.run(t, "tc qdisc add dev eth0 root netem delay 2ms loss 1% reorder 0.5%")
	s.exchange(t, true, []exchange{{64, 50}, {65535, 10}})
	counters := s.counts(t)
	for _, name := range []string{"retry_exceeded_err", "retry_rnr_exceeded_err"} {
		if value, known := counters[name]; value != 0 || !known {
			t.Errorf("the guest counts %s: %d", name, value)
		}
	}
}

// An exchange is one run of rping: so many rounds with text of so many bytes.
type exchange struct{ size, rounds int }

// exchange does each in both directions, over both IP versions. Where packets of
// the guest are lost, so may its client's DREQ be, which the kernel does not send
// again once the client has exited: then our server cannot know that it is over.
func (s *setting) exchange(t *testing.T, lossy bool, all []exchange) {
	const port = 7174
	for _, p := range s.pairs {
		for _, c := range all {
			t.Run(fmt.Sprintf("to the node, %v, %d bytes", p.node, c.size), func(t *testing.T) {
				server := s.ours(t, fmt.Sprintf("server %v %d", netip.AddrPortFrom(p.node, port), c.size))
				if line, err := server.out.ReadString('\n'); line != "listening\n" {
					t.Fatal(line, err, server.wait())
				}
				s.guest.run(t, fmt.Sprintf("rping -c -a %v -p %d -S %d -C %d -V", p.node, port, c.size, c.rounds))
				if lossy {
					server.kill()
					_ = server.wait() // it may have ended before
				} else if err := server.wait(); err != nil {
					t.Error(err)
				}
			})
			t.Run(fmt.Sprintf("to the guest, %v, %d bytes", p.guest, c.size), func(t *testing.T) {
				server := s.guest.start(fmt.Sprintf("rping -s -a %v -p %d -S %d -C %d -V", p.guest, port, c.size, c.rounds))
				s.guest.run(t, "until rdma resource show cm_id | grep -q 'state LISTEN'; do sleep 0.1; done")
				client := s.ours(t, fmt.Sprintf("client %v %d %d", netip.AddrPortFrom(p.guest, port), c.size, c.rounds))
				if err := client.wait(); err != nil {
					t.Error(err)
				}
				if _, err := server(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// counts are rxe's counters.
func (s *setting) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	// link rxe0/1 NAME VALUE NAME VALUE...
	out := s.guest.run(t, "rdma statistic show link rxe0/1")
	words := strings.Fields(out)
	if len(words) < 4 || len(words)%2 != 0 {
		t.Fatalf("counters: %q", out)
	}
	counters := map[string]uint64{}
	for i := 2; i < len(words); i += 2 {
		value, err := strconv.ParseUint(words[i+1], 10, 64)
		if err != nil {
			t.Fatalf("counters: %q: %v", out, err)
		}
		counters[words[i]] = value
	}
	t.Logf("the guest counts %v", counters)
	return counters
}

// harmless are rxe's counters of what is no error. A duplicate is a packet of ours
// that was sent again though it had arrived: the emulated guest is slower at times
// than our timers expect (seen: READ requests sent again after 2 to 5 ms, and once
// 33 packets of a WRITE).
var harmless = []string{"sent_pkts", "rcvd_pkts", "rdma_sends", "rdma_recvs", "ack_deferred", "duplicate_request"}

// troubles are ours of what is one on a clean link. For what was sent again see
// harmless; the answers to that, which may come when the QP is gone, are none.
var troubles = []string{"icrc_errors", "malformed", "misdirected", "naks_sent", "naks_received",
	"send_dropped", "send_too_big", "receive_overflow"}

// counters makes sure that neither end has seen anything wrong.
func (s *setting) counters(t *testing.T) {
	for name, value := range s.counts(t) {
		if value != 0 && !slices.Contains(harmless, name) {
			t.Errorf("the guest counts %s: %d", name, value)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in, err := s.lab.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	us := in.Nodes[0]
	t.Logf("the node sent %d packets again, after %d timeouts", us.Transport["retransmitted"], us.Transport["timeouts"])
	for _, name := range troubles {
		if us.Transport[name] != 0 {
			t.Errorf("the node counts %s: %d", name, us.Transport[name])
		}
	}
	if us.Counters["Connect"] == 0 || us.Counters["Accept"] == 0 {
		t.Errorf("the node counts no connections: %v", us.Counters)
	}
	if l := in.Externals[0].Lost; l != 0 {
		t.Errorf("the relay lost %d frames", l)
	}
}

// A running is one of our programs in the node.
type running struct {
	out    *bufio.Reader
	kill   func()
	ended  chan error // then how it ended
	stderr bytes.Buffer
}

// ours starts a program of main_test.go in the node.
func (s *setting) ours(t *testing.T, program string) *running {
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
	p := &running{out: bufio.NewReader(files[2]), kill: cancel, ended: make(chan error, 1)}
	t.Cleanup(cancel)
	go func() {
		cmd := node.Command{Args: []string{"/proc/self/exe"}, Env: append(os.Environ(), "NDKLAB_TEST_PROGRAM="+program)}
		status, err := s.lab.Exec(ctx, "us", cmd, files[0], files[3], files[5])
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
