package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// flows gives a workload flows.
func flows(w topology.Workload, pairs ...string) topology.Workload {
	for _, p := range pairs {
		from, to, _ := strings.Cut(p, " ")
		w.Flows = append(w.Flows, topology.Flow{From: from, To: to})
	}
	return w
}

// Events at times, behind conditions and behind each other do to a lab what they say, in
// a run of several workloads with checks of all kinds.
func TestScenario(t *testing.T) {
	topo := star(uniqueName(t), 3).Topology
	incast := flows(topology.Workload{
		Name: "in", Operation: topology.Write, Pattern: topology.Incast, Nodes: []string{"h0", "h1", "h2"}, Size: 4096, Depth: 4, QPs: 1,
		Duration: 500 * time.Millisecond, Verify: true, Measure: topology.Bandwidth,
	}, "h1 h0", "h2 h0")
	manual := flows(topology.Workload{
		Name: "manual", Operation: topology.Send, Pattern: topology.Pair, From: "h0", To: "h1", Size: 64, Depth: 1, QPs: 1, Count: 20, Manual: true, Measure: topology.Bandwidth,
	}, "h0 h1")
	program := topology.Workload{
		Name: "program", Operation: topology.Program, Nodes: []string{"h1", "h2"},
		Command: []string{"sh", "-c", "echo $NDKLAB_NODE of $NDKLAB_LAB with $NDKLAB_PEERS at $NDKLAB_PEER_ADDRESSES; pwd"},
	}
	topo.Workloads = []topology.Workload{incast, manual, program}
	counter := func(name string, value float64) *topology.Trigger {
		return &topology.Trigger{Node: "h1", Counter: name, Bound: topology.Bound{Relation: ">=", Value: value}}
	}
	topo.Timeline = []topology.Event{
		{Name: "slow", When: counter("RDMAOutOctets", 1), Link: 0, Set: topology.Change{Delay: ref(time.Millisecond)}},
		{After: "slow", At: 100 * time.Millisecond, Link: 0, Reset: true},
		{When: &topology.Trigger{Workload: "in", State: topology.WorkloadDone}, Workload: "manual"},
		{Name: "kept", When: &topology.Trigger{Workload: "manual", State: topology.WorkloadDone}, Snapshot: "kept"},
		{After: "kept", Mark: "restarting h2"},
		{After: "kept", Node: "h2", NodeAction: topology.RestartNode},
		{At: 10 * time.Millisecond, Node: "h1", Command: []string{"true"}},
	}
	one := func(m topology.Metric, relation string, value float64) []topology.Bound {
		return []topology.Bound{{Metric: m, Relation: relation, Value: value}}
	}
	topo.Checks = []topology.Check{
		{Workload: "in", Verified: true, Bounds: one(topology.Fairness, ">=", 0.1)},
		{Workload: "manual", Bounds: one(topology.MessageCount, "==", 20)},
		{Counter: "Accept", Snapshot: "kept", Bounds: one("", "==", 3)},
		{Counter: "Accept", Node: "h2", Bounds: one("", "==", 0)},
		{Counter: "Connect", At: 50 * time.Millisecond, Bounds: one("", "<=", 2)},
		{OfLink: true, Link: 0, Bounds: one(topology.LinkDropped, "==", 0)},
		{Left: true, Bounds: append(one(topology.OpenConnections, "==", 0), one(topology.Leftovers, "==", 0)...)},
		{Command: []string{"cat", "/etc/hosts"}, Node: "h1", Output: `\sh2\s`},
		{Command: []string{"sh", "-c", "exit 3"}, Node: "h1", Status: 3},
		{Command: []string{"sleep", "60"}, Node: "h1", Timeout: 50 * time.Millisecond},
	}
	r := runLab(t, start(t, topo))
	if len(r.Problems) > 0 {
		t.Errorf("problems: %s", strings.Join(r.Problems, "; "))
	}
	for i, c := range r.Checks {
		if c.Passed == (i == len(r.Checks)-1) {
			t.Errorf("check %+v", c)
		}
	}
	if last := r.Checks[len(r.Checks)-1]; last.Got != "it did not end within 50ms" || r.Passed {
		t.Errorf("passed %v, %+v", r.Passed, last)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("h1 of %s with h2 at 10.7.0.3\n%s", topo.Name, dir),
		fmt.Sprintf("h2 of %s with h1 at 10.7.0.2\n%s", topo.Name, dir),
	}
	if p := r.Workloads[2]; p.ExitStatus == nil || *p.ExitStatus != 0 || p.Output != want[0] && p.Output != want[1] {
		t.Errorf("program %+v, want %q", p, want)
	}
	if in := r.Workloads[0]; len(in.Flows) != 2 || in.Flows[0].Messages == 0 || in.Messages != in.Flows[0].Messages+in.Flows[1].Messages || len(in.CDF) == 0 {
		t.Errorf("incast %+v", in)
	}
	// The condition on a counter may be seen late, but what depends on what keeps its order.
	for _, order := range [][]string{
		{"link sw:p0: delay 1ms", "link sw:p0: reset"},
		{"workload in done", "workload manual: ", "workload manual done", "snapshot kept", "restarting h2", "node h2 is down", "node h2 is up again"},
	} {
		happened := r.Events
		for _, text := range order {
			for len(happened) > 0 && !strings.Contains(happened[0].Text, text) {
				happened = happened[1:]
			}
			if len(happened) == 0 {
				t.Fatalf("%q did not happen in its turn: %+v", text, r.Events)
			}
		}
	}
	if r.Nodes[2].Restarts+r.Nodes[3].Restarts != 1 {
		t.Errorf("nodes %+v", r.Nodes)
	}
}

// A run of the caller's workloads leaves those of the topology, its timeline and its
// checks alone.
func TestRunWorkloads(t *testing.T) {
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, count: 10}
timeline:
  - {at: 1ms, link: "client:eth0", down: true}
checks:
  - {workload: w, errors: ">= 1"}
`)
	l := start(t, topo)
	other := topo.Workloads[0]
	other.Name, other.Count = "other", 20
	r, err := l.RunWorkloads(testContext(t), other)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Workloads) != 1 || r.Workloads[0].Name != "other" || r.Workloads[0].Messages != 20 || !r.Passed || len(r.Checks) > 0 || r.Links[0].State != "up" {
		t.Errorf("%+v", r)
	}
}

// A client on a node that is paused for good, with nothing to come that would resume it,
// does not hold a run that is interrupted, nor does its server.
func TestInterruptedRunWithPausedNodes(t *testing.T) {
	for _, paused := range []string{"client", "server"} {
		t.Run(paused, func(t *testing.T) {
			topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m}
`)
			topo.Timeline = []topology.Event{{At: 100 * time.Millisecond, Node: paused, NodeAction: topology.PauseNode}}
			events := make(chan string, 1000)
			l := startWith(t, topo, Options{Events: func(e event.Event) { events <- e.Kind }})
			ctx, cancel := context.WithCancel(testContext(t))
			ended := make(chan error, 1)
			go func() {
				_, err := l.Run(ctx)
				ended <- err
			}()
			for kind := ""; kind != event.NodePaused; {
				kind = <-events
			}
			cancel()
			<-ended
			// The next run begins when the last is over.
			if _, err := l.Nodes.Change(testContext(t), paused, ResumeNode); err != nil {
				t.Fatal(err)
			}
			w := topo.Workloads[0]
			w.Name, w.Duration, w.Count = "next", 0, 10
			if r, err := l.RunWorkloads(testContext(t), w); err != nil || r.Workloads[0].Messages != 10 {
				t.Errorf("the next run: %v, %+v", err, r)
			}
		})
	}
}

// An agent that does not answer any more does not hold a run that is interrupted.
func TestInterruptedRunWithMuteAgent(t *testing.T) {
	t.Setenv(envHasty, "1")
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m}
`)
	progress := make(chan string, 1000)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind == event.WorkloadProgress {
			progress <- e.Text
		}
	}})
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		_, err := l.Run(ctx)
		ended <- err
	}()
	<-progress
	stop(t, in.Nodes[0].PID)
	t.Cleanup(func() { _ = unix.Kill(in.Nodes[0].PID, unix.SIGCONT) }) // it may be gone
	cancel()
	<-ended
	// A run without workloads begins when the other is over.
	if _, err := l.RunWorkloads(testContext(t)); err != nil {
		t.Error(err)
	}
}

// Marks of the timeline are in the captures of the topology.
func TestMarksInCaptures(t *testing.T) {
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 300ms, rate: 10mbit}
`)
	file := filepath.Join(t.TempDir(), "x.pcapng")
	topo.Captures = []topology.Capture{{Interfaces: topo.Links[0].Endpoints[:1], File: file}}
	topo.Timeline = []topology.Event{{At: 100 * time.Millisecond, Mark: "half way"}}
	l := start(t, topo)
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(recorded, []byte("mark: half way")); got != 1 {
		t.Errorf("%d marks in %d bytes", got, len(recorded))
	}
}

// A client begins when its server listens, though that takes the server a while, and the
// server that is not needed any more is ended.
func TestServerAndClient(t *testing.T) {
	topo := runnable(t, "mtu: 4200", "")
	server := `import socket, time
time.sleep(0.2)
s = socket.socket()
s.bind(("", 5201))
s.listen()
while True: s.accept()[0].close()`
	client := `import socket; socket.create_connection(("server", 5201), 10).recv(1); print("8192000 bytes in 0.25 seconds = 262.14 Mbit/sec\n1000 iters in 0.25 seconds = 250.00 usec/iter")`
	topo.Workloads = []topology.Workload{{
		Name: "p", Operation: topology.Program, Nodes: []string{"server", "client"}, Timeout: 20 * time.Second,
		Commands: [][]string{{"python3", "-c", server}, {"python3", "-c", client}},
	}}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	topo.Checks = []topology.Check{{Workload: "p", Bounds: []topology.Bound{{Metric: topology.Throughput, Relation: ">=", Value: 1e6}}}}
	r := runLab(t, start(t, topo))
	w := r.Workloads[0]
	if !r.Passed || w.Messages != 1000 || w.Programs[0].Ended == "" || *w.Programs[1].ExitStatus != 0 {
		t.Errorf("%+v", w)
	}
}

// A program of a scenario is found in the folder in which the lab was started.
func TestProgramOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("#!/bin/sh\necho hello $1; echo trouble >&2; exit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	topo := runnable(t, "mtu: 4200", "")
	topo.Workloads = []topology.Workload{{Name: "p", Operation: topology.Program, Nodes: []string{"client"}, Command: []string{"./hello", "world"}}}
	r := runLab(t, start(t, topo))
	if w := r.Workloads[0]; r.Passed || w.ExitStatus == nil || *w.ExitStatus != 4 || w.Output != "hello world" || w.Error != "node client: exit status 4: trouble" {
		t.Errorf("%+v", w)
	}
}
