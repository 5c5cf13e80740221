package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// runnable is a lab of two nodes, client and server, with an impaired link and
// the given rest of the file.
func runnable(t testing.TB, link, rest string) *topology.Topology {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	text := fmt.Sprintf(`
name: %s
seed: 42
topology:
  nodes: {client: , server: }
  links:
    - {endpoints: ["client:eth0", "server:eth0"], %s}
%s`, fmt.Sprintf("%s-%d", strings.ToLower(name), os.Getpid()), link, rest)
	topo, err := topology.Parse("test.ndklab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// runLab runs a lab's scenario, in which no link may be late with nine of ten packets.
func runLab(t testing.TB, l *Lab) *report.Run {
	t.Helper()
	r, err := l.Run(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Links {
		for _, d := range k.Directions {
			if d.Lateness != nil && d.Lateness.Packets >= fewest && d.Lateness.P10 > promptness {
				t.Errorf("nine of ten packets from %s leave more than %d us late: %+v", d.From, promptness, d.Lateness)
			}
		}
	}
	return r
}

const (
	// promptness bounds the lateness of the most punctual tenth of packets, in microseconds. A
	// busy machine makes packets late, but not nine of ten.
	promptness = 200
	fewest     = 100 // packets of which that can be told
)

// prompt reports whether the least of some delays is the one asked, in microseconds.
func prompt(least, asked float64) bool { return least >= asked && least <= asked+promptness }

func TestRun(t *testing.T) {
	for _, link := range []string{"mtu: 4200", "delay: 200us, jitter: 20us, loss: 1%, rate: 10gbit"} {
		t.Run(link, func(t *testing.T) {
			l := start(t, runnable(t, link, `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 8, count: 100, verify: true}
  - {name: r, from: server, to: client, operation: read, size: 64KiB, depth: 8, count: 100, verify: true}
  - {name: s, from: client, to: server, operation: send, size: 64B, count: 50}
checks:
  - {workload: w, errors: 0, latency_max: "<= 20s"}
  - {workload: s, latency_min: "<= 1us"}
`))
			r := runLab(t, l)
			for i, want := range []struct {
				messages, size uint64
				verified       bool
			}{{100, 65536, true}, {100, 65536, true}, {50, 64, false}} {
				w := r.Workloads[i]
				if w.Messages != want.messages || w.Bytes != want.messages*want.size || w.Errors != 0 || w.Error != "" ||
					w.Verified != want.verified || w.Gbps <= 0 || w.Seconds <= 0 {
					t.Errorf("workload %+v", w)
				}
			}
			if n := r.Nodes[0]; n.Counters["Connect"] != 2 || n.Counters["Accept"] != 1 || n.Counters["ActiveConnection"] != 0 ||
				n.Counters["RDMAOutOctets"] < 100*65536 || n.PID != 0 {
				t.Errorf("client %+v", n)
			}
			want := []report.Check{
				{Name: "w errors", Passed: true, Expected: "0", Got: "0"},
				{Name: "w latency_max", Passed: true, Expected: "<= 20s"},
				{Name: "s latency_min", Passed: false, Expected: "<= 1us"},
			}
			for i, c := range r.Checks {
				if c.Name != want[i].Name || c.Passed != want[i].Passed || c.Expected != want[i].Expected || c.Got == "" {
					t.Errorf("check %+v, want %+v", c, want[i])
				}
			}
			if r.Passed || len(r.Problems) != 0 || r.Seed != 42 || r.Host == "" || r.Started == "" {
				t.Errorf("run %+v", r)
			}
			// A lab that is up runs its workloads as often as one likes.
			if again := runLab(t, l); again.Workloads[0].Messages != 100 {
				t.Errorf("again: %+v", again.Workloads[0])
			}
		})
	}
}

// TestInterruptedRun interrupts a run of a lab that stays up, twice: the first
// leaves nothing that is in the way of the second.
func TestInterruptedRun(t *testing.T) {
	l := start(t, runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, duration: 10m, verify: true}
`))
	connected := func(want bool) {
		t.Helper()
		eventually(t, testTime, func() string {
			in, err := l.Inspect(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			n := in.Nodes[0].Counters["ActiveConnection"] + in.Nodes[1].Counters["ActiveConnection"]
			if n == 2 && want || n == 0 && !want {
				return ""
			}
			return fmt.Sprintf("%d connections", n)
		})
	}
	for range 2 {
		ctx, cancel := context.WithCancel(testContext(t))
		ended := make(chan error, 1)
		go func() {
			_, err := l.Run(ctx)
			ended <- err
		}()
		connected(true)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the run ended with %v", err)
		}
		connected(false)
	}
}

// Bits that flip anywhere in packets, headers included, spoil no transfer either.
func TestCorruptedHeaders(t *testing.T) {
	l := start(t, runnable(t, "corrupt: {probability: 5%, where: anywhere, bits: 2}", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 8KiB, depth: 8, count: 200, verify: true}
  - {name: s, from: server, to: client, operation: send, size: 64B, depth: 8, count: 200, verify: true}
`))
	r := runLab(t, l)
	for _, w := range r.Workloads {
		if !w.Verified || w.Errors != 0 || w.Messages != 200 {
			t.Errorf("%+v", w)
		}
	}
	for d, receiver := range []report.Node{r.Nodes[1], r.Nodes[0]} {
		// Of some the kernel has found that their headers are wrong.
		refused, corrupted := receiver.Transport["icrc_errors"], r.Links[0].Directions[d].Corrupted
		if corrupted < 5 || refused == 0 || refused > corrupted {
			t.Errorf("%s refused %d of %d packets that were corrupted", receiver.Name, refused, corrupted)
		}
	}
}

// TestNodeDiesInRun has a run whose server is killed end with the reason, and
// not hang.
func TestNodeDiesInRun(t *testing.T) {
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m}
`)
	started := make(chan struct{})
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind == event.WorkloadStarted {
			close(started)
		}
	}})
	inspection, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-started
		kill(t, inspection.Nodes[1].PID)
	}()
	r := runLab(t, l)
	if r.Passed || r.Workloads[0].Errors == 0 || r.Workloads[0].Error == "" {
		t.Errorf("workload %+v", r.Workloads[0])
	}
	want := "node server is down: its agent was killed by SIGKILL"
	if len(r.Problems) != 1 || r.Problems[0] != want {
		t.Errorf("problems %q, want %q", r.Problems, want)
	}
	if r.Nodes[1].State != "down" {
		t.Errorf("node %+v", r.Nodes[1])
	}
}
