package core

import (
	"errors"
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
