package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

const staged = `
name: staged
seed: 1
topology:
  nodes:
    a:
      files: {/etc/x: {content: "1"}}
      exec: [{command: first, stage: created}, {command: second, stage: configured}, {command: fourth, stage: healthy}]
      wait_for: [{node: b, stage: healthy}]
      healthcheck: {command: third, interval: 1s, timeout: 1s, retries: 2}
    b:
      exec: [other]
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
`

// Nodes go through their stages in order, and wait for each other.
func TestStages(t *testing.T) {
	w := built(t, staged)
	var of []string
	for _, d := range w.done {
		if strings.HasSuffix(d, " a") || strings.HasSuffix(d, " b") || d == "BeginLinks" || d == "CheckHealth" {
			of = append(of, d)
		}
	}
	want := []string{"StartAgent a", "StartAgent b", "PlaceFiles a", "Configure b", "Execute a", "Configure a", "BeginLinks", "Execute b", "Execute a", "CheckHealth", "Execute a"}
	if diff := cmp.Diff(want, of); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.wantTold(0, "node a is healthy", "all nodes are ready")
}

// A step that fails ends a build, and of a node that is started again says so.
func TestStageFails(t *testing.T) {
	for _, c := range []struct {
		action string
		d      Done
		skip   int // how many go well before
		want   string
	}{
		{"PlaceFiles a", Done{Err: errors.New("no")}, 0, "no"},
		{"Execute a", Done{Status: 3, Output: []string{"one", "two"}}, 0, "node a: \"first\" ended with status 3, having written:\n  one\n  two"},
		{"Execute a", Done{Err: errors.New("no")}, 1, `"second": no`},
		{"Execute b", Done{Status: 1}, 0, `node b: "other" ended with status 1`},
	} {
		failing := func(w *world) {
			skip := c.skip
			w.fail = func(a Action) *Done {
				if name(a)+" "+subject(a) != c.action {
					return nil
				}
				if skip--; skip >= 0 {
					return nil
				}
				return &c.d
			}
		}
		w := newWorld(t, staged)
		failing(w)
		step := "the nodes are not ready"
		if c.action == "PlaceFiles a" || c.skip == 0 && c.action == "Execute a" {
			step = "link the nodes"
		}
		w.refused(Build{}, "lab staged: "+step+": "+c.want)

		w = built(t, staged)
		failing(w)
		node := c.action[len(c.action)-1:]
		w.refused(ChangeNode{Node: node, Action: topology.RestartNode}, c.want)
	}
}

// The end of the agent cuts a command short, and a wait for its node.
func TestStageCutShort(t *testing.T) {
	w := built(t, staged)
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	start := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.StartNode})
	for w.lab.byName["a"].stages.running != "first" {
		w.step()
	}
	w.crash("a")
	if err := w.answer(start).Err; err == nil || err.Error() != `node a: "first" was cut short: its agent was killed by SIGKILL` {
		t.Error(err)
	}
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	w.refused(ChangeNode{Node: "a", Action: topology.StartNode}, "node a waits for b: node b is down: it was stopped")
	if s := w.lab.Node("a"); s.State != NodeIsReady {
		t.Errorf("%+v", s)
	}
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	start = w.ask(ByHand, ChangeNode{Node: "a", Action: topology.StartNode})
	for w.lab.byName["a"].stages.running != "second" {
		w.step()
	}
	w.handle(Cancel{start, errors.New("gone")})
	if err := w.answer(start).Err; err == nil || err.Error() != "node a is up, but not ready: gone" {
		t.Error(err)
	}
	w.failing("Execute b", Done{Status: 1})
	w.refused(ChangeNode{Node: "b", Action: topology.RestartNode}, `node b: "other" ended with status 1`)
	w.refused(ChangeNode{Node: "a", Action: topology.RestartNode}, `node a waits for b: node b: "other" ended with status 1`)
	w.crash("a")
	w.rest()
	if s := w.lab.Node("a"); s.Reason != "its agent was killed by SIGKILL" {
		t.Errorf("%+v", s)
	}
}

// A node that waits for another has it said when that fails meanwhile.
func TestWaitInVain(t *testing.T) {
	w := built(t, staged)
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	w.slow = func(a Action) time.Duration {
		if e, ok := a.(Execute); ok && e.Node == "b" {
			return time.Minute
		}
		return 0
	}
	w.failing("Execute b", Done{Status: 1})
	w.ask(ByHand, ChangeNode{Node: "b", Action: topology.StartNode})
	w.run(time.Second)
	w.refused(ChangeNode{Node: "a", Action: topology.StartNode}, `node a waits for b: node b: "other" ended with status 1`)
}

// A node becomes unhealthy when as many checks fail as it may, and healthy by one.
func TestHealth(t *testing.T) {
	w := built(t, staged)
	at := w.now
	w.healthy = func(string) string { return "ill" }
	for !w.saw("node a is unhealthy: ill") {
		w.step()
	}
	if took := w.now - at; took < time.Second || took > 2100*time.Millisecond {
		t.Errorf("unhealthy after %v", took)
	}
	if s := w.lab.Node("a"); s.Health != Unhealthy || s.Failures != 2 || s.Output != "ill" {
		t.Errorf("%+v", s)
	}
	w.healthy = func(string) string { return "" }
	told := len(w.told)
	w.run(2 * time.Second)
	w.wantTold(told, "node a is healthy")
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	w.healthy = func(string) string { w.wrong("a node is checked that is paused"); return "" }
	w.run(5 * time.Second)
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	w.run(5 * time.Second)

	w = newWorld(t, staged)
	w.healthy = func(string) string { return "ill" }
	w.refused(Build{}, "lab staged: the nodes are not ready: node a is unhealthy: ill")
}

// The pauses between checks double in the start period, whose failures do not count.
func TestHealthCourse(t *testing.T) {
	s, ms := time.Second, time.Millisecond
	h := newHealth(nil, &topology.Healthcheck{Interval: 5 * s, Retries: 2, StartPeriod: time.Second})
	h.state = Starting
	for i, c := range []struct {
		ok    bool
		since time.Duration
		next  time.Duration
		state string
	}{
		{false, 0, 100 * ms, Starting}, {false, 100 * ms, 200 * ms, Starting}, {false, 300 * ms, 400 * ms, Starting},
		{false, s, 5 * s, Starting}, {false, 6 * s, 5 * s, Unhealthy}, {true, 11 * s, 5 * s, Healthy},
		{false, 12 * s, 5 * s, Healthy}, {true, 13 * s, 5 * s, Healthy}, {false, 14 * s, 5 * s, Healthy}, {false, 15 * s, 5 * s, Unhealthy},
	} {
		if next := h.result(c.ok, c.since); next != c.next || h.state != c.state {
			t.Errorf("check %d: %v and %s, want %v and %s", i, next, h.state, c.next, c.state)
		}
	}
}

// A lab whose nodes take long to be made says how far they are.
func TestNoticeOfNodes(t *testing.T) {
	w := newWorld(t, pair)
	w.slow = func(a Action) time.Duration {
		if start, ok := a.(StartAgent); ok && start.Node == "b" {
			return firstNotice + waitingPeriod
		}
		return 0
	}
	w.must(Build{})
	w.wantTold(0, "waiting: of 2 nodes 1 are started, 0 are linked", "waiting: of 2 nodes 1 are started, 0 are linked", "all nodes are ready")
}

// A lab that is being built says from time to time whom it waits for.
func TestNotices(t *testing.T) {
	w := newWorld(t, staged)
	w.healthy = func(string) string {
		if w.now < 20*time.Second {
			return "ill"
		}
		return ""
	}
	w.lab.byName["a"].spec.Setup.Healthcheck.Retries = 100
	w.must(Build{})
	w.wantTold(0, "waiting: a is checked by its healthcheck", "waiting: a is checked by its healthcheck", "node a is healthy", "all nodes are ready")
}

const switched = `
name: switched
seed: 1
topology:
  nodes:
    s: {kind: switch, stp: true}
    t: {kind: switch}
    a: {}
    b: {}
  links:
    - {endpoints: ["a:eth0", "s:eth0"]}
    - {endpoints: ["s:eth1", "t:eth0"]}
    - {endpoints: ["b:eth0", "t:eth1"]}
`

// Spanning trees are waited for where links end at a switch that has one.
func TestSpanningTree(t *testing.T) {
	w := newWorld(t, switched)
	var trees [][]string
	w.fail = func(a Action) *Done {
		if tree, ok := a.(AwaitSpanningTree); ok {
			trees = append(trees, names(tree.Links))
		}
		return nil
	}
	w.must(Build{})
	w.must(ChangeNode{Node: "a", Action: topology.RestartNode})
	w.must(ChangeNode{Node: "b", Action: topology.RestartNode})
	w.must(SwitchLink{Link: 1})
	w.must(SwitchLink{Link: 1, Up: true})
	w.must(Partition{[][]string{{"a", "s"}}})
	w.must(Heal{})
	if diff := cmp.Diff([][]string{{"a:eth0", "s:eth1"}, {"a:eth0"}, {"s:eth1"}, {"s:eth1"}}, trees); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.judge()
	w.failing("AwaitSpanningTree", Done{Err: errors.New("port a is still listening")})
	w.refused(ChangeNode{Node: "a", Action: topology.RestartNode}, "port a is still listening")
	if s := w.lab.Node("a"); s.State != NodeIsReady {
		t.Errorf("%+v", s)
	}
	w.judge()
}

// A lab that is being built can be looked at: a node says what it does, or whom it waits for, and so does everyone hear. A
// build that is given up ends the lab.
func TestLookWhileWaiting(t *testing.T) {
	w := newWorld(t, edited(t, staged, "exec: [other]", `exec: ["read line\nand more"]`, "  links:\n", "    c: {}\n  links:\n")+"    - {endpoints: [\"b:eth1\", \"c:eth0\"]}\n")
	if w.lab.Standing().Present {
		t.Error("it is there before it is built")
	}
	w.slow = func(a Action) time.Duration {
		if e, ok := a.(Execute); ok && e.Node == "b" {
			return 20 * time.Second
		}
		return 0
	}
	build := w.ask(ByHand, Build{})
	w.run(time.Second)
	for name, want := range map[string]NodeStatus{
		"a": {State: NodeIsStarting, Reason: "waits for b to be healthy", Life: 1, Health: Starting},
		"b": {State: NodeIsStarting, Reason: `runs "read line..."`, Life: 1},
		"c": {State: NodeIsReady, Life: 1},
	} {
		if diff := cmp.Diff(want, w.lab.Node(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if s := w.lab.Standing(); !s.Present || s.Ready {
		t.Errorf("%+v", s)
	}
	if err := w.lab.CheckReady(); err == nil || err.Error() != "lab staged is still starting" {
		t.Error(err)
	}
	w.refused(BeginRun{}, "lab staged is still starting")
	if err := w.lab.Alive("b"); err != nil { // who is waited for can be helped
		t.Error(err)
	}
	w.run(firstNotice)
	w.wantTold(0, `waiting: a waits for b to be healthy, b runs "read line..."`)
	if a := w.answer(build); a.Err != nil || !w.lab.Standing().Ready {
		t.Errorf("%v", a.Err)
	}
}

// A node that dies before all are ready ends the build, with what it was doing.
func TestDeathBeforeReady(t *testing.T) {
	const killed = "its agent was killed by SIGKILL"
	for doing, want := range map[string]string{
		"first":  `link the nodes: node a: "first" was cut short: ` + killed,
		"second": `the nodes are not ready: node a: "second" was cut short: ` + killed,
		"third":  "the nodes are not ready: node a is down: " + killed,
		"fourth": `the nodes are not ready: node a: "fourth" was cut short: ` + killed,
	} {
		w := newWorld(t, staged)
		checked := false
		w.healthy = func(string) string {
			checked = true
			return map[bool]string{true: "ill"}[doing == "third"]
		}
		build := w.ask(ByHand, Build{})
		for s := &w.lab.byName["a"].stages; s.running != doing && !(checked && doing == "third"); {
			w.step()
		}
		w.crash("a")
		if a := w.answer(build); a.Err == nil || a.Err.Error() != "lab staged: "+want || w.ended == nil {
			t.Errorf("%s: %v, ended by %v", doing, a.Err, w.ended)
		}
	}
}

// A change of health is told each time, and only then. A node that is down has none.
func TestHealthChanges(t *testing.T) {
	w := built(t, staged)
	told := len(w.told)
	for range 3 {
		w.healthy = func(string) string { return "gone" }
		w.run(10 * time.Second)
		if s := w.lab.Node("a"); s.State != NodeIsReady || s.Health != Unhealthy || s.Failures < 9 || s.Output != "gone" {
			t.Errorf("%+v", s)
		}
		w.healthy = func(string) string { return "" }
		w.run(10 * time.Second)
		if s := w.lab.Node("a"); s.Health != Healthy || s.Failures != 0 || s.Output != "" {
			t.Errorf("%+v", s)
		}
	}
	w.wantTold(told, "node a is unhealthy: gone", "node a is healthy", "node a is unhealthy: gone", "node a is healthy", "node a is unhealthy: gone", "node a is healthy")
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	checks := 0
	w.healthy = func(string) string { checks++; return "" }
	w.run(10 * time.Second)
	if s := w.lab.Node("a"); s.State != NodeIsDown || checks > 0 {
		t.Errorf("%+v, checks: %d", s, checks)
	}
	if s := w.lab.Node("b"); s.Health != "" {
		t.Errorf("a node without healthcheck: %+v", s)
	}
}

// slowTrees has spanning trees take four seconds.
func slowTrees(a Action) time.Duration {
	if _, ok := a.(AwaitSpanningTree); ok {
		return 4 * time.Second
	}
	return 0
}

// A lab whose node dies while its switches look for loops does not come up.
func TestDeathAmidSpanningTree(t *testing.T) {
	w := newWorld(t, behindSwitch)
	w.slow = slowTrees
	build := w.ask(ByHand, Build{})
	w.run(time.Second)
	w.crash("b")
	if a := w.answer(build); a.Err == nil || !strings.HasSuffix(a.Err.Error(), "node b: its agent was killed by SIGKILL") || w.ended == nil {
		t.Errorf("%v, ended by %v", a.Err, w.ended)
	}
}

// The result of a check during which its node was paused does not count: it could not pass.
func TestCheckOfPaused(t *testing.T) {
	w := built(t, staged)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(CheckHealth); ok {
			return 500 * time.Millisecond
		}
		return 0
	}
	w.healthy = func(string) string { return "ill" }
	for w.lab.Node("a").Failures == 0 {
		w.step()
	}
	w.run(1100 * time.Millisecond) // into the second check, by which the node would be unhealthy
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	w.run(5 * time.Second)
	w.healthy = func(string) string { return "" }
	w.must(ChangeNode{Node: "a", Action: topology.ResumeNode})
	w.run(5 * time.Second)
	if s := w.lab.Node("a"); s.Health != Healthy || w.saw("node a is unhealthy: ill") {
		t.Errorf("%+v, told %q", s, w.told)
	}
}

// A stage that comes while its node is paused begins when that goes on: a command would not begin, and the node could not be resumed.
func TestStageOfPaused(t *testing.T) {
	w := built(t, `
name: waits
seed: 1
topology:
  nodes:
    a: {exec: [{command: late, stage: healthy}], wait_for: [{node: b, stage: healthy}]}
    b: {healthcheck: {command: check, interval: 1s, timeout: 1s, retries: 9}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
`)
	ill := true
	w.healthy = func(string) string {
		if ill {
			return "ill"
		}
		return ""
	}
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(Execute); ok && w.lab.Node("a").State == NodeIsPaused {
			return time.Hour
		}
		return 0
	}
	w.ask(ByHand, ChangeNode{Node: "b", Action: topology.RestartNode})
	w.run(time.Second)
	restart := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.RestartNode})
	w.run(time.Second)
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	executed := len(w.done)
	ill = false
	w.run(5 * time.Second)
	asked := w.now
	w.must(ChangeNode{Node: "a", Action: topology.ResumeNode})
	if took := w.now - asked; took > time.Second {
		t.Errorf("resumed after %v", took)
	}
	w.run(5 * time.Second)
	if s := w.lab.Node("a"); s.State != NodeIsReady || !slices.Contains(w.done[executed:], "Execute a") || w.answers[restart] == nil || w.answers[restart].Err != nil {
		t.Errorf("%+v, restart answered: %+v", s, w.answers[restart])
	}
}

// A start whose node dies while the spanning trees at its links are awaited has failed.
func TestStartDiesAmidSpanningTree(t *testing.T) {
	w := built(t, behindSwitch)
	w.slow = slowTrees
	restart := w.ask(ByHand, ChangeNode{Node: "b", Action: topology.RestartNode})
	w.run(time.Second)
	w.crash("b")
	if a := w.answer(restart); a.Err == nil || !strings.HasSuffix(a.Err.Error(), "node b: its agent was killed by SIGKILL") {
		t.Errorf("%v", a.Err)
	}
}
