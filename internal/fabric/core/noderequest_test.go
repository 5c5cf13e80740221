package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// This file tests what commands ask of nodes.

// While a node is down its links can be cut off by partitions and joined again, which count when it is back. A link that a
// command has taken down stays so.
func TestStoppedNode(t *testing.T) {
	w := built(t, square)
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	const down = "node b is down: it was stopped"
	w.refused(ChangeNode{Node: "b", Action: topology.KillNode, Signal: Kill}, down)
	w.refused(SetLink{Change: change(t, "delay=1ms")}, "link a:eth0: "+down)
	w.refused(SwitchLink{Link: 1}, "link b:eth1: "+down)
	if err := w.lab.Alive("b"); err == nil || err.Error() != down {
		t.Errorf("%v", err)
	}
	w.must(Partition{[][]string{{"b"}}})
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	w.wantConnected("cd da")
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	w.must(Heal{})
	w.wantConnected("cd da")
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	w.wantConnected("ab bc cd da")
	w.must(SwitchLink{Link: 1})
	w.must(ChangeNode{Node: "b", Action: topology.RestartNode})
	w.wantConnected("ab cd da")
}

// wantConnected says which links carry packets in a lab at rest, by the nodes at their ends.
func (w *world) wantConnected(want string) {
	w.t.Helper()
	w.rest()
	w.judge()
	var got []string
	for _, k := range w.lab.links {
		if w.link(k.spec).connected {
			got = append(got, k.spec.Endpoints[0].Node+k.spec.Endpoints[1].Node)
		}
	}
	if got := strings.Join(got, " "); got != want {
		w.t.Errorf("connected: %s, want %s", got, want)
	}
}

// Of many commands for nodes at once those for one node are done in turn, and those for others beside them.
func TestNodeCommandsAtOnce(t *testing.T) {
	w := built(t, square)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(StartAgent); ok {
			return time.Second
		}
		return 0
	}
	var asked []uint64
	at := w.now
	for i := range 8 {
		action := topology.RestartNode
		if i%4 == 0 {
			action = topology.StopNode
		}
		asked = append(asked, w.ask(ByHand, ChangeNode{Node: string(rune('a' + i%2)), Action: action}))
	}
	for i, id := range asked {
		if a := w.answer(id); a.Err != nil {
			t.Errorf("command %d: %v", i, a.Err)
		}
	}
	// Node b is started four times.
	if took := w.now - at; took < 4*time.Second || took > 4*time.Second+time.Second/2 {
		t.Errorf("they took %v", took)
	}
	w.wantConnected("ab bc cd da")
	if a, b := w.lab.Node("a"), w.lab.Node("b"); a.Restarts != 2 || b.Restarts != 4 {
		t.Errorf("restarts of a: %d, of b: %d", a.Restarts, b.Restarts)
	}
}

// Whenever a command is given up, the node is whole, up or down, and does what is asked of it next.
func TestNodeCommandIsGivenUp(t *testing.T) {
	for _, action := range []topology.NodeAction{topology.RestartNode, topology.StopNode, topology.StartNode, topology.PauseNode, topology.ResumeNode} {
		for at, over := 0, false; !over; at++ {
			w := built(t, square)
			switch action {
			case topology.StartNode:
				w.must(ChangeNode{Node: "b", Action: topology.StopNode})
			case topology.ResumeNode:
				w.must(ChangeNode{Node: "b", Action: topology.PauseNode})
			}
			id := w.ask(ByHand, ChangeNode{Node: "b", Action: action})
			for range at {
				w.step()
			}
			over = w.answers[id] != nil
			w.handle(Cancel{id, errors.New("gone")})
			if a := w.answer(id); a.Err != nil && !strings.HasSuffix(a.Err.Error(), "gone") {
				t.Errorf("%s after %d steps: %v", action, at, a.Err)
			}
			w.rest()
			w.judge()
			if s := w.lab.Node("b").State; s == NodeIsPaused {
				w.must(ChangeNode{Node: "b", Action: topology.ResumeNode})
			}
			w.must(ChangeNode{Node: "b", Action: topology.RestartNode})
			w.wantConnected("ab bc cd da")
			if t.Failed() {
				t.Fatalf("%s was given up after %d steps", action, at)
			}
		}
	}
}

// A node that is paused can be stopped, killed and started again, and is not paused then.
func TestEndOfPausedNode(t *testing.T) {
	w := built(t, square)
	told := len(w.told)
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	w.refused(ChangeNode{Node: "a", Action: topology.ResumeNode}, "node a is down: it was stopped")
	w.must(ChangeNode{Node: "a", Action: topology.StartNode})
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	if a := w.must(ChangeNode{Node: "a", Action: topology.RestartNode}); a.Was != NodeIsPaused || a.Is.State != NodeIsReady {
		t.Errorf("it was %s, and is %+v", a.Was, a.Is)
	}
	w.wantTold(told, "node a is paused", "node a is down: it was stopped", "node a is up again", "node a is paused", "node a is down: it was stopped", "node a is up again")
	w.must(ChangeNode{Node: "b", Action: topology.PauseNode})
	w.crash("b")
	w.rest()
	if s := w.lab.Node("b"); s.State != NodeIsDown {
		t.Errorf("%+v", s)
	}
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	w.wantConnected("ab bc cd da")
}

// The cables of a node that is paused can be pulled and plugged, and nothing else can be asked of it.
func TestLinksOfAPausedNode(t *testing.T) {
	w := built(t, square)
	w.must(ChangeNode{Node: "b", Action: topology.PauseNode})
	told := len(w.told)
	w.must(Partition{[][]string{{"b"}}})
	w.wantConnected("cd da")
	w.must(Heal{})
	w.must(SwitchLink{})
	w.wantConnected("bc cd da")
	w.must(SwitchLink{Up: true})
	w.wantConnected("ab bc cd da")
	w.wantTold(told, "partition b: links that are down: 2", "the partition is over: links that are up again: 2", "link a:eth0 is down", "link a:eth0 is up")
	if err := w.lab.Alive("b"); err == nil || !strings.HasPrefix(err.Error(), "node b is paused") {
		t.Errorf("%v", err)
	}
	w.must(ChangeNode{Node: "b", Action: topology.ResumeNode})
	if err := w.lab.Alive("b"); err != nil {
		t.Error(err)
	}
}

const routedFabric = `
name: fabric
seed: 1
topology:
  nodes: {a: {}, b: {}, r: {kind: router}, q: {kind: router}, s: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "r:1"]}
    - {endpoints: ["r:2", "q:1"], delay: 1ms}
    - {endpoints: ["q:2", "s:1"]}
    - {endpoints: ["s:2", "b:eth0"], delay: 1ms}
    - {endpoints: ["b:eth1", "external:x"]}
`

// Hosts and routers come back at switches, routers and ends outside the lab, in whatever order.
func TestRestartInFabric(t *testing.T) {
	w := built(t, routedFabric)
	before := w.lab.Standing()
	for _, names := range [][]string{{"b"}, {"r"}, {"q"}, {"r", "q", "a", "b"}, {"b", "s", "q"}} {
		for _, name := range names {
			w.must(ChangeNode{Node: name, Action: topology.StopNode})
			w.judge()
		}
		for _, name := range names {
			w.must(ChangeNode{Node: name, Action: topology.StartNode})
			w.judge()
		}
		w.wantConnected("ar rq qs sb bexternal")
		if k := w.lab.Link(1); !k.Engine || k.Asked[0].Delay != time.Millisecond {
			t.Errorf("after restart of %s: %+v", names, k)
		}
	}
	if after := w.lab.Standing(); after != before {
		t.Errorf("%+v", after)
	}
}

// A request that needs a process says that a switch has none, and that a name is no node's.
func TestKinds(t *testing.T) {
	w := built(t, routedFabric)
	for name, want := range map[string]string{"s": "s is a switch: it has no processes", "x": `lab fabric has no node "x"`} {
		if err := w.lab.Alive(name); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, name := range []string{"a", "r"} {
		if err := w.lab.Alive(name); err != nil {
			t.Error(err)
		}
	}
	if spec, err := w.lab.Spec("s"); err != nil || spec.Kind != topology.Switch {
		t.Errorf("%+v, %v", spec, err)
	}
	if _, err := w.lab.Spec("x"); err == nil {
		t.Error("there is a node x")
	}
}

// A node comes up again with all that it had, its stages included, and its links only when it can carry packets.
func TestNextLife(t *testing.T) {
	w := built(t, staged)
	done := len(w.done)
	w.must(ChangeNode{Node: "a", Action: topology.RestartNode})
	for _, c := range []struct {
		of   string
		want []string
	}{
		{" a", []string{"KillAgent", "StartAgent", "PlaceFiles", "Execute", "Configure", "Execute", "Execute"}},
		{" " + theLink, []string{"TakeApart", "RemoveEnd", "MakeEnds", "Connect"}},
	} {
		var got []string
		for _, d := range w.done[done:] {
			if action, ok := strings.CutSuffix(d, c.of); ok {
				got = append(got, action)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of%s is done %q, want %q", c.of, got, c.want)
		}
	}
	if at := slices.Index(w.done[done:], "Configure a"); at < slices.Index(w.done[done:], "MakeEnds "+theLink) || at > slices.Index(w.done[done:], "Connect "+theLink) {
		t.Errorf("node and link are not in step: %q", w.done[done:])
	}
	if s := w.lab.Node("a"); s.Health != Healthy || s.Restarts != 1 || s.Life != 2 {
		t.Errorf("%+v", s)
	}
}

// A signal that ends the agent counts as a crash, upon which the restart policy starts the node again; a command calls that
// off, also while the start is waited for.
func TestKilledNodeIsStartedAgain(t *testing.T) {
	w := built(t, strings.Replace(square, "b: {}", "b: {restart: always}", 1))
	for i, delay := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
		told, at := len(w.told), w.now
		if a := w.must(ChangeNode{Node: "b", Action: topology.KillNode, Signal: Kill}); a.Is.State != NodeIsDown {
			t.Errorf("%+v", a.Is)
		}
		for w.lab.byName["b"].down() {
			w.step()
		}
		w.wantTold(told, "node b is down: its agent was killed by SIGKILL; it is started again in "+delay.String(), "node b is up again")
		if took := w.now - at; took < delay || took > delay+20*time.Millisecond {
			t.Errorf("up again after %v, want %v", took, delay)
		}
		w.wantConnected("ab bc cd da")
		if s := w.lab.Node("b"); s.Restarts != i+1 {
			t.Errorf("%+v", s)
		}
	}
	told := len(w.told)
	w.must(ChangeNode{Node: "b", Action: topology.KillNode, Signal: Kill})
	if a := w.must(ChangeNode{Node: "b", Action: topology.StopNode}); a.Was != NodeIsDown {
		t.Errorf("it was %s", a.Was)
	}
	w.run(time.Hour)
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	w.run(time.Second)
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	w.run(time.Hour)
	w.wantTold(told, "node b is down: its agent was killed by SIGKILL; it is started again in 400ms", "node b is up again", "node b is down: it was stopped")
}

// A node whose agent does not do as it is told is not paused, and can be paused later.
func TestPauseFails(t *testing.T) {
	w := built(t, square)
	told := len(w.told)
	w.failing("PauseAgent", Done{Err: errors.New("no answer")})
	w.refused(ChangeNode{Node: "a", Action: topology.PauseNode}, "no answer")
	w.fail = nil
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	w.failing("ResumeAgent", Done{Err: errors.New("no answer")})
	w.refused(ChangeNode{Node: "a", Action: topology.ResumeNode}, "no answer")
	if s := w.lab.Node("a"); s.State != NodeIsPaused {
		t.Errorf("%+v", s)
	}
	w.fail = nil
	w.must(ChangeNode{Node: "a", Action: topology.ResumeNode})
	w.wantTold(told, "node a is paused", "node a goes on")
	w.wantConnected("ab bc cd da")
}

// The death of a node is told once, with the reason, and the others go on.
func TestNodeDies(t *testing.T) {
	w := built(t, square)
	told := len(w.told)
	w.crash("b")
	w.crash("b") // it has no agent any more
	w.wantConnected("cd da")
	w.wantTold(told, "node b is down: its agent was killed by SIGKILL")
	for name, want := range map[string]string{"a": NodeIsReady, "b": NodeIsDown, "c": NodeIsReady, "d": NodeIsReady} {
		if s := w.lab.Node(name); s.State != want {
			t.Errorf("%s: %+v", name, s)
		}
	}
	w.run(time.Hour)
	w.wantTold(told, "node b is down: its agent was killed by SIGKILL")
}
