package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	// promptness is how much later than asked one of ten packets may be, in microseconds. A
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

// Packets whose bits flip on the way, wherever behind the transport header, are
// refused by the receiver's ICRC, each of them, and the transfer is right.
func TestCorruptedPacketsAreRefused(t *testing.T) {
	l := start(t, runnable(t, "corrupt: {probability: 3%, bits: 3}", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 8, count: 100, verify: true}
  - {name: r, from: client, to: server, operation: read, size: 64KiB, depth: 8, count: 100, verify: true}
`))
	r := runLab(t, l)
	for _, w := range r.Workloads {
		if !w.Verified || w.Errors != 0 || w.Messages != 100 {
			t.Errorf("%+v", w)
		}
	}
	for d, receiver := range []report.Node{r.Nodes[1], r.Nodes[0]} {
		refused := receiver.Transport["icrc_errors"]
		// One may be on its way, and a receiver that gets no processor loses some of all.
		lost := receiver.Transport["receive_overflow"]
		if corrupted := r.Links[0].Directions[d].Corrupted; corrupted < 5 || refused > corrupted || refused+lost+1 < corrupted {
			t.Errorf("%s refused %d of %d packets that were corrupted, and has lost %d", receiver.Name, refused, corrupted, lost)
		}
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

// Faults are done to just those packets of a workload that they choose, and the
// transfer is right all the same.
func TestFaultsOfAWorkload(t *testing.T) {
	l := start(t, runnable(t, `
       faults: [
         {match: {cm: REQ, nth: 1}, action: drop, from: client},
         {match: {opcode: write, nth: 10}, action: drop, from: client},
         {match: {opcode: write, nth: [20, 21]}, action: corrupt, from: client},
         {match: {opcode: write, nth: 30}, action: duplicate, from: client},
         {match: {opcode: write, nth: 40}, action: delay, delay: 5ms, from: client},
         {match: {opcode: ack, nth: 3}, action: drop, from: server}]`, `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 4, count: 50, verify: true}
`))
	r := runLab(t, l)
	if w := r.Workloads[0]; !w.Verified || w.Errors != 0 || w.Messages != 50 {
		t.Errorf("%+v", w)
	}
	for d, want := range []report.Direction{
		{LostBy: report.LostBy{Fault: 2}, Faulted: 6, Corrupted: 2, Duplicated: 1},
		{LostBy: report.LostBy{Fault: 1}, Faulted: 1},
	} {
		m := r.Links[0].Directions[d]
		got := report.Direction{LostBy: m.LostBy, Faulted: m.Faulted, Corrupted: m.Corrupted, Duplicated: m.Duplicated}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("direction %d (-want +got):\n%s", d, diff)
		}
	}
	if refused := r.Nodes[1].Transport["icrc_errors"]; refused != 2 {
		t.Errorf("the server refused %d packets, want the 2 that were corrupted", refused)
	}
}

// TestTimeline has each kind of event change the link while a workload runs.
func TestTimeline(t *testing.T) {
	var mu sync.Mutex
	var events []string
	topo := runnable(t, "delay: 1ms", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 400ms}
timeline:
  - {at: 50ms, link: "client:eth0", set: {loss: 5%, delay: 2ms}}
  - {at: 100ms, link: "server:eth0", from: server, set: {loss: 0%}}
  - {at: 150ms, link: "client:eth0", down: true}
  - {at: 200ms, link: "client:eth0", up: true}
`)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == event.LinkChanged {
			events = append(events, e.Text)
		}
	}})
	r := runLab(t, l)
	if w := r.Workloads[0]; w.Errors != 0 || w.Messages == 0 || !r.Passed {
		t.Errorf("an outage of 50 ms broke the workload: %+v", w)
	}
	there, back := r.Links[0].Directions[0], r.Links[0].Directions[1]
	if there.Asked.Loss == nil || *there.Asked.Loss <= 0 || *there.Asked.Loss >= 0.05 {
		t.Errorf("asked loss is no mean of 0 and 5 %%: %v", there.Asked.Loss)
	}
	if back.Asked.Loss == nil || *back.Asked.Loss >= *there.Asked.Loss {
		t.Errorf("asked loss of the direction that was healed: %v", back.Asked.Loss)
	}
	if there.Achieved.DelayUS == nil || *there.Achieved.DelayUS < 1000 {
		t.Errorf("achieved delay: %v", there.Achieved.DelayUS)
	}
	eventually(t, testTime, func() string {
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(events, "; ")
		if want := "link client:eth0: delay 2ms, loss 5%; link client:eth0: loss 0% from server; link client:eth0 is down; link client:eth0 is up"; got != want {
			return fmt.Sprintf("events %q, want %q", got, want)
		}
		return ""
	})
}

// TestNodeDiesInRun has a run whose server is killed end with the reason, and
// not hang.
func TestNodeDiesInRun(t *testing.T) {
	for _, victim := range []int{0, 1} {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
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
				kill(t, inspection.Nodes[victim].PID)
			}()
			r := runLab(t, l)
			if r.Passed || r.Workloads[0].Errors == 0 || r.Workloads[0].Error == "" {
				t.Errorf("workload %+v", r.Workloads[0])
			}
			want := fmt.Sprintf("node %s is down: its agent was killed by SIGKILL", topo.Nodes[victim].Name)
			if len(r.Problems) != 1 || r.Problems[0] != want {
				t.Errorf("problems %q, want %q", r.Problems, want)
			}
			if r.Nodes[victim].State != "down" {
				t.Errorf("node %+v", r.Nodes[victim])
			}
		})
	}
}

// TestRestartInRun has either node switched off and on again amid a run, which ends
// with the reason, and the next one is as the first should have been.
func TestRestartInRun(t *testing.T) {
	for victim, name := range []string{"client", "server"} {
		t.Run(name, func(t *testing.T) {
			topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m, verify: true}
`)
			started := make(chan struct{}, 10)
			l := startWith(t, topo, Options{Events: func(e event.Event) {
				if e.Kind == event.WorkloadProgress {
					started <- struct{}{}
				}
			}})
			failed := make(chan error, 1)
			go func() {
				<-started
				_, err := l.Nodes.Change(testContext(t), name, RestartNode)
				failed <- err
			}()
			r := runLab(t, l)
			if err := <-failed; err != nil {
				t.Error(err)
			}
			if w := r.Workloads[0]; r.Passed || w.Errors == 0 || w.Error == "" || w.Verified {
				t.Errorf("passed %v, workload %+v", r.Passed, w)
			}
			w := topo.Workloads[0]
			w.Duration, w.Count = 0, 1000
			if r, err := l.RunWorkloads(testContext(t), w); err != nil || !r.Passed || !r.Workloads[0].Verified || r.Nodes[victim].Restarts != 0 {
				t.Errorf("after the restart: %+v, %v", r, err)
			}
		})
	}
}

// TestRunIsRefused while another one goes on.
func TestRunIsRefused(t *testing.T) {
	started := make(chan struct{})
	l := startWith(t, runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: send, size: 1B, duration: 10m}
`), Options{Events: func(e event.Event) {
		if e.Kind == event.WorkloadStarted {
			close(started)
		}
	}})
	ctx, interrupt := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := l.Run(ctx)
		done <- err
	}()
	<-started
	_, err := l.Run(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "is running its workloads already") {
		t.Errorf("second run: %v", err)
	}
	interrupt()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("first run: %v", err)
	}
}
