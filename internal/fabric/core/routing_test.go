package core

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// spines is two leaves with a host each, and two spines. Links 2 and 4 are those of s0.
const spines = `
name: spines
seed: 1
topology:
  convergence: 50ms
  nodes: {a: , b: , l0: {kind: router}, l1: {kind: router}, s0: {kind: router}, s1: {kind: router}}
  links:
    - endpoints: ["a:eth0", "l0:down"]
    - endpoints: ["b:eth0", "l1:down"]
    - endpoints: ["l0:up0", "s0:l0"]
    - endpoints: ["l0:up1", "s1:l0"]
    - endpoints: ["l1:up0", "s0:l1"]
    - endpoints: ["l1:up1", "s1:l1"]
`

// wantRoutes says over which links the routes of the nodes that are up should be.
func (w *world) wantRoutes(without ...int) {
	w.t.Helper()
	want := w.lab.topo.RoutesOver(func(link int) bool { return !slices.Contains(without, link) })
	for i, n := range w.lab.topo.Nodes {
		if got := w.routes[n.Name]; w.agents[n.Name] != 0 && (len(got)+len(want[i]) > 0 && !reflect.DeepEqual(got, want[i])) {
			w.t.Errorf("at %v: routes of %s: %v, want %v", w.now, n.Name, got, want[i])
		}
	}
}

// quiet runs the world for some time, in which nobody is to be told that routes have converged.
func (w *world) quiet(d time.Duration) {
	w.t.Helper()
	n := len(w.told)
	w.run(d)
	for _, text := range w.told[n:] {
		if strings.HasPrefix(text, "routes have converged") {
			w.t.Errorf("too early, at %v", w.now)
		}
	}
}

const (
	settles  = 50 * time.Millisecond // convergence of spines
	instant  = time.Nanosecond
	anAction = time.Millisecond // what one takes in a world
)

// Routes follow a link that is down, or up again, after the time that the file gives, at once in all nodes.
func TestRoutesConverge(t *testing.T) {
	w := built(t, spines)
	w.wantRoutes()
	told, done := len(w.told), len(w.done)
	w.must(SwitchLink{Link: 4})
	w.quiet(settles - instant)
	w.wantRoutes()
	w.quiet(anAction)
	w.wantRoutes(4)
	w.run(instant)
	w.wantTold(told, "link l1:up0 is down", "routes have converged: nodes with other routes: 4, hosts out of reach: 0")
	w.wantDone(done, "Disconnect link l1:up0 to s0:l1", "SetRoutes l0", "SetRoutes l1", "SetRoutes s0", "SetRoutes s1")
	w.must(SwitchLink{Link: 4, Up: true})
	w.quiet(settles - instant)
	w.wantRoutes(4)
	w.run(anAction + instant)
	w.wantRoutes()
	w.judge()
	if _, ok := w.lab.Deadline(); ok {
		t.Error("the lab waits for something")
	}
}

// A time of the fabric takes as many times longer by the machine, which is the core's, as the file says.
func TestRoutesConvergeDilated(t *testing.T) {
	const dilation = 40
	w := built(t, "dilation: 40"+spines)
	w.must(SwitchLink{Link: 4})
	w.quiet(dilation*settles - instant)
	w.wantRoutes()
	w.run(anAction + 2*instant)
	w.wantRoutes(4)
}

// Each change of a link starts the time anew. One that is undone before changes no routes.
func TestRoutesAwaitTheLastChange(t *testing.T) {
	w := built(t, spines)
	told, done := len(w.told), len(w.done)
	for range 5 {
		w.must(SwitchLink{Link: 4})
		w.quiet(settles - 2*anAction)
		w.must(SwitchLink{Link: 4, Up: true})
		w.quiet(settles - 2*anAction)
	}
	w.run(2*anAction + instant)
	w.wantRoutes()
	if got := len(w.told) - told; got != 11 || !w.saw("routes have converged: nodes with other routes: 0, hosts out of reach: 0") {
		t.Errorf("told %q", w.told[told:])
	}
	for _, a := range w.done[done:] {
		if strings.HasPrefix(a, "SetRoutes") {
			t.Errorf("done: %s", a)
		}
	}
}

// A host whose link is down is out of reach, and a spine that is stopped is not a host.
func TestRoutesOfNodesThatFail(t *testing.T) {
	w := built(t, spines)
	w.must(ChangeNode{Node: "s0", Action: topology.StopNode})
	w.run(settles + 2*anAction)
	w.wantRoutes(2, 4)
	if !w.saw("routes have converged: nodes with other routes: 3, hosts out of reach: 0") {
		t.Errorf("told %q", w.told)
	}
	// It starts with its routes over its own links, and the others take them later.
	w.must(ChangeNode{Node: "s0", Action: topology.StartNode})
	if got, want := w.routes["s0"], w.lab.topo.FindNode("s0").Routes; !reflect.DeepEqual(got, want) {
		t.Errorf("s0 starts with %v, want %v", got, want)
	}
	w.run(settles + 2*anAction)
	w.wantRoutes()
	w.crash("b")
	w.run(settles + 10*anAction)
	w.wantRoutes(1)
	if !strings.HasSuffix(w.told[len(w.told)-1], "hosts out of reach: 1") {
		t.Errorf("told %q", w.told)
	}
	w.judge()
}

// A router that is paused keeps its carrier and its routes, and gets those of by then when it goes on.
func TestRoutesOfPausedRouter(t *testing.T) {
	w := built(t, spines)
	w.must(ChangeNode{Node: "l0", Action: topology.PauseNode})
	w.quiet(2 * settles)
	before := w.routes["l0"]
	w.must(SwitchLink{Link: 4})
	w.run(settles + 2*anAction)
	if !w.saw("routes have converged: nodes with other routes: 4, hosts out of reach: 0") || !reflect.DeepEqual(before, w.routes["l0"]) {
		t.Errorf("told %q, and l0 has %v", w.told, w.routes["l0"])
	}
	w.must(ChangeNode{Node: "l0", Action: topology.ResumeNode})
	w.run(2 * anAction)
	w.wantRoutes(4)
	w.judge()
}

// A partition is seen as links that are down, and routes follow it and its end.
func TestRoutesFollowPartition(t *testing.T) {
	w := built(t, spines)
	w.must(Partition{[][]string{{"s0"}}})
	w.run(settles + 2*anAction)
	w.wantRoutes(2, 4)
	w.must(Heal{})
	w.run(settles + 2*anAction)
	w.wantRoutes()
}

// Links that are down from the start are in no routes. A run begins when routes are those of its links.
func TestRoutesAtTheBeginning(t *testing.T) {
	w := built(t, strings.Replace(spines, `endpoints: ["l1:up0", "s0:l1"]`, `{endpoints: ["l1:up0", "s0:l1"], down: true}`, 1))
	w.wantRoutes(4)
	w.quiet(2 * settles)
	w.must(BeginRun{})
	w.answer(w.ask(ByRun, SwitchLink{Link: 5}))
	w.must(EndRun{})
	w.run(2 * settles)
	w.wantRoutes(4, 5)
	w.must(BeginRun{})
	w.wantRoutes(4)
}

// An Apply sets the time, and takes it away: then routes are the file's.
func TestRoutesAfterApply(t *testing.T) {
	w := built(t, spines)
	w.must(SwitchLink{Link: 4})
	w.run(2 * settles)
	never := strings.Replace(spines, "50ms", "never", 1)
	w.must(w.applied(never))
	w.wantRoutes()
	w.quiet(2 * settles)
	w.must(w.applied(spines))
	w.run(2 * settles)
	w.wantRoutes(4)
	w.judge()
}

// Without a time, no route changes.
func TestRoutesNeverConverge(t *testing.T) {
	w := built(t, strings.Replace(spines, "  convergence: 50ms\n", "", 1))
	w.must(ChangeNode{Node: "s0", Action: topology.StopNode})
	w.quiet(time.Hour)
	w.must(ChangeNode{Node: "s0", Action: topology.StartNode})
	w.wantRoutes()
	for _, a := range w.done {
		if strings.HasPrefix(a, "SetRoutes") {
			t.Errorf("done: %s", a)
		}
	}
}

// Everyone is told of routes that cannot be set. A node that dies meanwhile is no such case.
func TestRoutesFail(t *testing.T) {
	w := built(t, spines)
	w.failing("SetRoutes l0", Done{Err: errors.New("no")})
	w.must(SwitchLink{Link: 4})
	w.run(2 * settles)
	if !w.saw("node l0 keeps its routes: no") {
		t.Errorf("told %q", w.told)
	}
	w.fail = nil
	w.must(SwitchLink{Link: 4, Up: true})
	w.after(settles+anAction/2, func() { w.crash("l1") })
	w.run(4 * settles)
	w.wantRoutes(1, 4, 5)
	w.judge()
}

// In the end every node that is up has the routes over the links that carry packets, whatever happens.
func TestRoutesSettle(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(t, spines)
		r := rand.New(rand.NewPCG(seed, 0))
		w.rand = rand.New(rand.NewPCG(seed, 1))
		w.must(Build{})
		for range 40 {
			node := w.lab.nodes[r.IntN(len(w.lab.nodes))].spec.Name
			switch r.IntN(6) {
			case 0, 1:
				actions := []topology.NodeAction{topology.StopNode, topology.StartNode, topology.RestartNode, topology.KillNode, topology.PauseNode, topology.ResumeNode}
				w.ask(ByHand, ChangeNode{node, actions[r.IntN(len(actions))], Kill})
			case 2, 3:
				w.ask(ByHand, SwitchLink{r.IntN(len(w.lab.links)), r.IntN(3) > 0})
			case 4:
				w.ask(ByHand, Partition{[][]string{{node}}})
			case 5:
				w.ask(ByHand, Heal{})
			}
			for range r.IntN(20) {
				w.step()
			}
		}
		for _, n := range w.lab.nodes {
			w.ask(ByHand, ChangeNode{Node: n.spec.Name, Action: topology.ResumeNode}) // which may be refused
		}
		w.run(10 * time.Second)
		w.judge()
		var down []int
		for i, k := range w.lab.links {
			if !k.connected {
				down = append(down, i)
			}
		}
		w.wantRoutes(down...)
		if w.lab.routing.underWay() {
			t.Error("routes have not converged")
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
