package lab

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// untidy is a scenario whose timeline leaves nothing as it was, in a lab of four nodes in
// a star. A packet is lost by its place, and another by a fault that strikes once.
func untidy(t testing.TB) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("test.ndklab.yaml", []byte(`
name: `+strings.ToLower(uniqueName(t))+`
seed: 42
topology:
  nodes: {client: , server: , x: , y: , sw: {kind: switch}}
  links:
    - endpoints: ["client:eth0", "sw:p1"]
      overrun: allow
      delay: 100us
      loss: {packets: [12]}
      faults: [{match: {opcode: write_middle, count: 1}, action: drop, from: client}]
    - {endpoints: ["server:eth0", "sw:p2"]}
    - {endpoints: ["x:eth0", "sw:p3"]}
    - {endpoints: ["y:eth0", "sw:p4"]}
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 4, count: 50, verify: true}
timeline:
  - {name: a, when: {workload: w, state: done}, link: "client:eth0", set: {delay: 30ms, loss: 100%, cut: true}}
  - {name: b, after: a, link: "server:eth0", set: {duplicate: 50%}, from: server}
  - {name: c, after: b, link: "x:eth0", down: true}
  - {name: d, after: c, partition: [[client], [server, sw]]}
  - {name: e, after: d, kill: x}
  - {name: f, after: e, pause: y}
checks:
  - {counter: Connect, node: client, value: 1}
  - {counter: Accept, node: server, value: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// A remainder holds the figures that two runs of one file share on any machine.
type remainder struct {
	Messages, Bytes, Errors uint64
	Verified                bool
	Connects, Accepts       uint64
	Dropped, Faulted        [2]uint64
	States                  []string
	Restarts                int
	Links                   []string
	Settings                [][]string
	Checks                  []report.Check
	Problems                []string
}

func remainderOf(r *report.Run) remainder {
	w := r.Workloads[0]
	m := remainder{
		Messages: w.Messages, Bytes: w.Bytes, Errors: w.Errors, Verified: w.Verified, Checks: r.Checks, Problems: r.Problems,
		Connects: r.Nodes[0].Counters["Connect"], Accepts: r.Nodes[1].Counters["Accept"],
	}
	for i, d := range r.Links[0].Directions {
		m.Dropped[i], m.Faulted[i] = d.Dropped, d.Faulted
	}
	for _, n := range r.Nodes {
		m.States = append(m.States, n.State)
		m.Restarts += n.Restarts
	}
	for _, l := range r.Links {
		m.Links = append(m.Links, l.State)
		for _, d := range l.Directions {
			m.Settings = append(m.Settings, d.Settings)
		}
	}
	return m
}

// A run begins with links and nodes as the file has them, and with figures of its own,
// whatever the run before has left, and however that has ended.
func TestRunAgain(t *testing.T) {
	l := start(t, untidy(t))
	first := runLab(t, l)
	want := remainderOf(first)
	if want.Messages != 50 || !want.Verified || want.Dropped[0] != 1 || want.Faulted[0] != 1 || !slices.Contains(want.States, nodeDown) || !slices.Contains(want.Links, "down") {
		t.Fatalf("the run is not what it should be: %+v", want)
	}
	for i, c := range first.Checks {
		if !c.Passed {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	packets, pings := first.Links[0].Directions[0].Packets, first.Nodes[0].Transport
	for _, interrupt := range []bool{false, true} {
		if interrupt {
			ctx, cancel := context.WithCancel(testContext(t))
			if err := l.Watch(testContext(t), func(e event.Event) {
				if e.Kind == event.LinkChanged {
					cancel() // amid what the timeline does
				}
			}); err != nil {
				t.Fatal(err)
			}
			_, _ = l.Run(ctx) // whose end does not matter
			cancel()
		}
		again := runLab(t, l)
		if diff := cmp.Diff(want, remainderOf(again)); diff != "" {
			t.Errorf("after an interrupted run: %v; another run (-first +another):\n%s", interrupt, diff)
		}
		if got := again.Links[0].Directions[0].Packets; got > packets*3/2 {
			t.Errorf("another run has sent %d packets, the first %d", got, packets)
		}
		if got, was := again.Nodes[0].Transport["packets_sent"], pings["packets_sent"]; got > was*3/2 {
			t.Errorf("another run has sent %d packets, the first %d", got, was)
		}
		if d := again.Links[0].Directions[0]; d.Asked.DelayUS == nil || *d.Asked.DelayUS > 1000 {
			t.Errorf("asked of another run: %+v", d.Asked)
		}
	}
	// To who looks at the lab, it has counted everything.
	links, err := l.Links.Inspect(testContext(t), "client:eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := links[0].Directions[0]; got.Packets < 3*packets/2 || got.Dropped < 3 {
		t.Errorf("of three runs and more, the link has counted %d packets and %d dropped, one has %d", got.Packets, got.Dropped, packets)
	}
}

// A run goes on without nodes that commands have switched off or paused, and says how
// those come back that it needs.
func TestRunWithoutNodes(t *testing.T) {
	topo, err := topology.Parse("test.ndklab.yaml", []byte(`
name: `+strings.ToLower(uniqueName(t))+`
topology:
  nodes: {a: , b: , c: , d: , sw: {kind: switch}}
  links: [{endpoints: ["a:eth0", "sw:p*"]}, {endpoints: ["b:eth0", "sw:p*"]}, {endpoints: ["c:eth0", "sw:p*"]}, {endpoints: ["d:eth0", "sw:p*"]}]
workloads:
  - {name: w, from: a, to: b, operation: write, size: 4KiB, count: 5}
`))
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, topo)
	act(t, l, "c", StopNode, nodeDown)
	act(t, l, "d", PauseNode, nodePaused)
	r := runLab(t, l)
	if diff := cmp.Diff([]string{"c down", "d paused"}, r.SetByHand); !r.Passed || diff != "" {
		t.Errorf("passed: %v, problems: %q, set by hand (-want +got):\n%s", r.Passed, r.Problems, diff)
	}
	for _, tt := range []struct {
		action, back Action
		state, want  string
	}{
		{StopNode, StartNode, nodeDown, "node b is down: it was stopped: `ndklab start " + topo.Name + "/b` brings it back"},
		{PauseNode, ResumeNode, nodePaused, "node b is paused: `ndklab resume " + topo.Name + "/b` brings it back"},
	} {
		act(t, l, "b", tt.action, tt.state)
		if r := runLab(t, l); r.Passed || r.Workloads[0].Error != tt.want || len(r.Problems) > 0 {
			t.Errorf("passed: %v, error %q, want %q; problems: %q", r.Passed, r.Workloads[0].Error, tt.want, r.Problems)
		}
		act(t, l, "b", tt.back, nodeReady)
	}
}
