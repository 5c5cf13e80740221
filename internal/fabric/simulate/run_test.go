package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/topology"
)

// read is a topology file.
func read(t testing.TB, file string) *topology.Topology {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	topo, err := topology.ParseWith(topology.Options{Read: func(name string) ([]byte, error) { return os.ReadFile(name) }}, file, text)
	if err != nil {
		t.Fatal(err)
	}
	if !topo.HasSeed {
		topo.Seed, topo.HasSeed = 1, true
	}
	return topo
}

// lines are a report as JSON, but for what may differ from run to run.
func lines(t testing.TB, r *report.Run) string {
	t.Helper()
	same := *r
	same.Started, same.Host, same.WallSeconds = "", "", 0
	text, err := json.MarshalIndent(same, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// suiteBaseline has the figures of the suite's examples.
const suiteBaseline = "../../../examples/suite/baseline.json"

// The examples that take no machine pass, and those of the suite have the same figures in
// each run, which are those of its baseline.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile(suiteBaseline)
	if err != nil {
		t.Fatal(err)
	}
	baseline, err := suite.ReadBaseline(suiteBaseline, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../../../examples/*.ndklab.yaml", "../../../examples/suite/*.ndklab.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				topo := read(t, file)
				if err := Refuse(topo); err != nil {
					t.Skip(err)
				}
				first := run(t, topo)
				if !first.Passed || !first.Simulated {
					t.Errorf("passed %v, simulated %v: %s", first.Passed, first.Simulated, lines(t, first))
				}
				if !strings.Contains(file, "suite") {
					return
				}
				if diff := cmp.Diff(lines(t, first), lines(t, run(t, topo))); diff != "" {
					t.Errorf("again (-first +second):\n%s", diff)
				}
				checks := len(first.Checks)
				if err := baseline.Hold(first); err != nil {
					t.Fatal(err)
				}
				for _, c := range first.Checks[checks:] {
					if !c.Passed {
						t.Errorf("%s: %s: was %s, is %s (`make baseline` writes the present figures to %s)", file, c.Name, c.Expected, c.Got, suiteBaseline)
					}
				}
			})
		}
	}
}

// run runs a topology.
func run(t testing.TB, topo *topology.Topology) *report.Run {
	t.Helper()
	r, err := Run(t.Context(), topo, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mesh is eight hosts in two racks, of which the spines between them are ways of equal
// length, with every kind of workload and much that happens to them.
func mesh(t testing.TB) *topology.Topology {
	topo := parsed(t, meshFile)
	ms := time.Millisecond
	loss, delay := topology.Loss{Rate: 0.05}, 2*ms
	topo.Timeline = []topology.Event{
		{At: 20 * ms, Link: 0, Set: topology.Change{Loss: &loss}, From: "a1"},
		{At: 30 * ms, Node: "b2", NodeAction: topology.PauseNode},
		{At: 50 * ms, Node: "b2", NodeAction: topology.ResumeNode},
		{At: 60 * ms, Snapshot: "before"},
		{At: 60 * ms, Partition: [][]string{{"a2"}, {"a3", "a4"}}},
		{At: 100 * ms, Heal: true},
		{When: &topology.Trigger{Workload: "ring", State: topology.WorkloadStarted}, At: 40 * ms, Link: 9, Down: true},
		{At: 120 * ms, Node: "b3", NodeAction: topology.KillNode},
		{At: 200 * ms, Node: "b3", NodeAction: topology.StartNode},
		{At: 210 * ms, Link: 9, Up: true},
		{At: 220 * ms, Mark: "late"},
	}
	topo.Chaos = []topology.Chaos{
		{Start: 10 * ms, Until: 300 * ms, Kind: topology.ImpairLink, Every: 40 * ms, For: 20 * ms, Links: []int{0, 1, 2, 3, 4, 5, 6, 7}, Set: topology.Change{Delay: &delay}},
		{Start: 10 * ms, Until: 300 * ms, Kind: topology.DownLink, Every: 90 * ms, For: 5 * ms, Links: []int{8, 10, 11}},
		{Start: 100 * ms, Until: 300 * ms, Kind: topology.RestartAny, Every: 150 * ms, Nodes: []string{"a4", "b4"}},
	}
	return topo
}

const meshFile = `
name: mesh
seed: 11
topology:
  defaults: {link: {mtu: 4200, delay: 50us, jitter: 10us, loss: 0.1%, rate: 2gbit}}
  nodes:
    a1: {}
    a2: {}
    a3: {}
    a4: {}
    b1: {}
    b2: {}
    b3: {}
    b4: {}
    ra: {kind: router}
    rb: {kind: router}
    s1: {kind: router}
    s2: {kind: router}
  links:
    - {endpoints: ["a1:eth0", "ra:h1"]}
    - {endpoints: ["a2:eth0", "ra:h2"], reorder: 1%}
    - {endpoints: ["a3:eth0", "ra:h3"], duplicate: 1%}
    - {endpoints: ["a4:eth0", "ra:h4"], corrupt: 0.5%}
    - {endpoints: ["b1:eth0", "rb:h1"]}
    - {endpoints: ["b2:eth0", "rb:h2"]}
    - {endpoints: ["b3:eth0", "rb:h3"]}
    - {endpoints: ["b4:eth0", "rb:h4"]}
    - {endpoints: ["ra:up1", "s1:a"]}
    - {endpoints: ["ra:up2", "s2:a"]}
    - {endpoints: ["rb:up1", "s1:b"]}
    - {endpoints: ["rb:up2", "s2:b"]}
workloads:
  - {name: ring, operation: write, pattern: ring, nodes: ["a1", "a2", "b1", "b2"], size: 64KiB, depth: 4, duration: 300ms, verify: true, reconnect: true}
  - {name: permutation, operation: send, pattern: permutation, nodes: "*", size: 8KiB, depth: 4, duration: 300ms, verify: true, reconnect: true, qps: 2}
  - {name: incast, operation: read, pattern: incast, nodes: "b*", to: a1, size: {mix: [1KiB, 32KiB]}, depth: 2, duration: 200ms, reconnect: true}
  - {name: latency, operation: send, measure: latency, from: a1, to: b1, size: 64B, duration: 200ms}
  - {name: storage, operation: storage, from: a2, to: b1, size: 64KiB, depth: 4, count: 100, verify: true}
  - {name: sum, operation: allreduce, nodes: ["a1", "a2", "b1", "b2"], size: 64KiB, count: 10, verify: true}
  - {name: storm, operation: connect, from: a3, to: b4, count: 300, depth: 20, qps: 50}
`

// Two runs of one seed give the same report, to the last digit, and those of two seeds
// do not.
func TestRunsAreRepeated(t *testing.T) {
	first := run(t, mesh(t))
	if len(first.Events) < 20 {
		t.Errorf("events: %+v", first.Events)
	}
	for range 2 {
		if diff := cmp.Diff(lines(t, first), lines(t, run(t, mesh(t)))); diff != "" {
			t.Fatalf("again (-first +second):\n%s", diff)
		}
	}
	other := mesh(t)
	other.Seed++
	if lines(t, run(t, other)) == lines(t, first) {
		t.Error("another seed makes no difference")
	}
}

// A simulation takes no notice of dilation: its report is the same to the last byte, also where links go down and routes
// converge.
func TestDilationIsIgnored(t *testing.T) {
	converging := func(t testing.TB) *topology.Topology {
		return parsed(t, strings.Replace(fatTree, "CONVERGENCE", "50ms", 1))
	}
	for name, lab := range map[string]func(testing.TB) *topology.Topology{"mesh": mesh, "converging": converging} {
		dilated := lab(t)
		dilated.Dilation = 40
		if diff := cmp.Diff(lines(t, run(t, lab(t))), lines(t, run(t, dilated))); diff != "" {
			t.Errorf("%s with dilation (-without +with):\n%s", name, diff)
		}
		if dilated.Dilation != 40 {
			t.Error("the caller's topology has changed")
		}
	}
}

// A run that would go on for ever ends when it is interrupted, with the reason and what
// was measured until then.
func TestInterrupt(t *testing.T) {
	topo := parsed(t, pair("delay: 1ms")+`
workloads:
  - {name: w, operation: send, from: a, to: b, size: 64B, duration: 24h}
`)
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := Run(ctx, topo, Options{Events: func(e event.Event) {
		if e.Kind == event.WorkloadProgress && e.At > 3*time.Second {
			cancel(stop)
		}
	}})
	if !errors.Is(err, stop) || r == nil || !r.Interrupted || r.Passed {
		t.Fatalf("%+v, %v", r, err)
	}
	// A message takes 2 ms and the time of its packets.
	if w := r.Workloads[0]; w.Messages < 1400 || w.Errors > 0 || r.Nodes[0].Counters["Connect"] != 1 || r.Links[0].Directions[0].Packets < w.Messages {
		t.Errorf("%+v, nodes %+v, links %+v", w, r.Nodes, r.Links)
	}
}

// A day in which nothing happens takes no longer than what happens before.
func TestQuietTimePasses(t *testing.T) {
	topo := parsed(t, pair("delay: 1ms")+`
workloads:
  - {name: early, operation: send, from: a, to: b, size: 64B, count: 10}
  - {name: late, operation: send, from: a, to: b, size: 64B, count: 10, start: 24h}
checks:
  - {workload: late, errors: 0}
`)
	if r := run(t, topo); !r.Passed || r.Seconds < 24*3600 {
		t.Errorf("passed %v after %v s", r.Passed, r.Seconds)
	}
}
