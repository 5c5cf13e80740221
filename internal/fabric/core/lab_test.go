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

const pair = `
name: pair
seed: 1
topology:
  nodes:
    a: {}
    b: {}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], delay: 1ms}
`

// wantTold says what should have been told since there were n.
func (w *world) wantTold(n int, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, slices.Clip(w.told[n:])); diff != "" {
		w.t.Errorf("told (-want +got):\n%s", diff)
	}
}

// wantDone likewise says which actions should have been done.
func (w *world) wantDone(n int, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, slices.Clip(w.done[n:])); diff != "" {
		w.t.Errorf("done (-want +got):\n%s", diff)
	}
}

// failing has actions fail whose text has a beginning, as wantDone has it, with an error.
func (w *world) failing(text string, d Done) {
	w.fail = func(a Action) *Done {
		if strings.HasPrefix(name(a)+" "+subject(a), text) {
			return &d
		}
		return nil
	}
}

const theLink = "link a:eth0 to b:eth0"

// A link that is to do what its engine cannot keeps a lab from being built, before anything is made.
func TestBuildRefused(t *testing.T) {
	w := newWorld(t, pair)
	w.lab.links[0].asked.impairments[0].Loss.Rate = 2
	a := w.answer(w.ask(ByHand, Build{}))
	if a.Err == nil || !strings.HasPrefix(a.Err.Error(), "lab pair: link the nodes: "+theLink+": link a:eth0: ") || w.ended == nil || len(w.done) > 0 {
		t.Errorf("%v, ended: %v, done: %v", a.Err, w.ended, w.done)
	}
}

// A lab comes up in the order that agents, links and adapters need.
func TestBuild(t *testing.T) {
	w := built(t, pair)
	w.wantDone(0, "StartAgent a", "StartAgent b", "MakeEnds "+theLink, "Configure a", "Configure b", "BeginLinks", "Impair "+theLink, "Connect "+theLink)
	w.wantTold(0, "all nodes are ready")
	if s := w.lab.Node("a"); s.State != NodeIsReady || s.Restarts != 0 {
		t.Errorf("node a: %+v", s)
	}
	w.judge()
}

// All nodes are started at once, and all links are made at once.
func TestBuildIsParallel(t *testing.T) {
	const n = 50
	text := "name: many\nseed: 1\ntopology:\n  nodes:\n    s: {kind: switch}\n"
	links := "  links:\n"
	for i := range n {
		node := "n" + strings.Repeat("x", i/26) + string(rune('a'+i%26))
		text += "    " + node + ": {}\n"
		links += "    - {endpoints: [\"" + node + ":eth0\", \"s:eth" + itoa(i) + "\"]}\n"
	}
	w := built(t, text+links)
	if w.most < n {
		t.Errorf("%d actions at once, at most", w.most)
	}
	w.judge()
}

// A failure in a build ends the lab, and the error names the step.
func TestBuildFails(t *testing.T) {
	for _, c := range []struct{ action, want string }{
		{"StartAgent b", "lab pair: start the nodes: no"},
		{"MakeEnds", "lab pair: link the nodes: " + theLink + ": no"},
		{"Configure", "lab pair: link the nodes: no"},
		{"BeginLinks", "lab pair: no"},
		{"Impair", "lab pair: connect the links: " + theLink + ": no"},
		{"Connect", "lab pair: connect the links: " + theLink + ": no"},
	} {
		w := newWorld(t, pair)
		w.failing(c.action, Done{Err: errors.New("no")})
		w.refused(Build{}, c.want)
		if w.ended == nil || w.ended.Error() != c.want {
			t.Errorf("%s: the lab ends by %v", c.action, w.ended)
		}
	}
}

// A node that dies while the lab is built ends the lab.
func TestBuildLosesNode(t *testing.T) {
	w := newWorld(t, pair)
	w.after(1500*time.Microsecond, func() { w.crash("a") })
	w.refused(Build{}, "lab pair: link the nodes: node a: its agent was killed by SIGKILL")

	w = newWorld(t, staged)
	w.healthy = func(string) string { return "ill" }
	w.after(500*time.Millisecond, func() { w.crash("a") })
	w.refused(Build{}, "lab staged: the nodes are not ready: node a is down: its agent was killed by SIGKILL")
}

// Nothing else can be asked of a lab that is still being built.
func TestStillStarting(t *testing.T) {
	w := newWorld(t, pair)
	build := w.ask(ByHand, Build{})
	w.refused(ChangeNode{Node: "a", Action: topology.StopNode}, "lab pair is still starting")
	w.answer(build)
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
}

// A node that is stopped loses its interfaces before its agent, and is what it was when it is started again.
func TestStopAndStart(t *testing.T) {
	w := built(t, pair)
	told, done := len(w.told), len(w.done)
	if a := w.must(ChangeNode{Node: "a", Action: topology.StopNode}); a.Was != NodeIsReady {
		t.Errorf("it was %s", a.Was)
	}
	w.wantDone(done, "TakeApart "+theLink, "RemoveEnd "+theLink, "KillAgent a")
	w.judge()
	w.refused(SetLink{Change: change(t, "loss=1%")}, "link a:eth0: node a is down: it was stopped")
	w.refused(ChangeNode{Node: "a", Action: topology.PauseNode}, "node a is down: it was stopped")
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	done = len(w.done)
	if a := w.must(ChangeNode{Node: "a", Action: topology.StartNode}); a.Was != NodeIsDown {
		t.Errorf("it was %s", a.Was)
	}
	w.wantDone(done, "StartAgent a", "MakeEnds "+theLink, "Configure a", "Impair "+theLink, "Connect "+theLink)
	w.wantTold(told, "node a is down: it was stopped", "node a is up again")
	w.judge()
	w.must(ChangeNode{Node: "a", Action: topology.StartNode}) // it is up
	w.must(ChangeNode{Node: "a", Action: topology.RestartNode})
	w.wantTold(told+2, "node a is down: it was stopped", "node a is up again")
	if s := w.lab.Node("a"); s.Restarts != 2 {
		t.Errorf("%+v", s)
	}
	w.judge()
}

// Of two commands at once for one node the second waits for the first.
func TestTurns(t *testing.T) {
	w := built(t, pair)
	stop, start := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.StopNode}), w.ask(ByHand, ChangeNode{Node: "a", Action: topology.StartNode})
	late := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.PauseNode})
	w.handle(Cancel{late, errors.New("gone")})
	if a := w.answers[late]; a == nil || a.Err == nil || a.Err.Error() != "node a: gone" {
		t.Errorf("cancelled: %+v", a)
	}
	if a := w.answer(start); a.Err != nil || w.answers[stop] == nil {
		t.Errorf("start: %v, stop: %v", a.Err, w.answers[stop])
	}
	w.wantTold(1, "node a is down: it was stopped", "node a is up again")
	restart, stop := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.RestartNode}), w.ask(ByHand, ChangeNode{Node: "a", Action: topology.StopNode})
	if a := w.answer(stop); a.Err != nil || a.Is.State != NodeIsDown {
		t.Errorf("stop: %+v", a)
	}
	if a := w.answers[restart]; a == nil || a.Err != nil || a.Is.State != NodeIsReady {
		t.Errorf("restart: %+v", a)
	}
}

// A start that fails leaves nothing, and the node down for the same reason as before.
func TestStartFails(t *testing.T) {
	for _, c := range []struct{ action, want string }{
		{"StartAgent", "no"}, {"Configure", "no"}, {"MakeEnds", "node a: link a:eth0: no"}, {"Connect", "node a: link a:eth0: no"}, {"Impair", "node a: link a:eth0: no"},
	} {
		t.Run(c.action, func(t *testing.T) {
			w := built(t, pair)
			w.must(ChangeNode{Node: "a", Action: topology.StopNode})
			w.failing(c.action, Done{Err: errors.New("no")})
			w.refused(ChangeNode{Node: "a", Action: topology.StartNode}, c.want)
			w.judge()
			w.wantTold(1, "node a is down: it was stopped")
			w.fail = nil
			w.must(ChangeNode{Node: "a", Action: topology.StartNode})
			w.judge()
		})
	}
}

// A node that dies is down for that reason; one that is to come back does, later each time.
func TestRestartPolicy(t *testing.T) {
	w := built(t, strings.Replace(pair, "a: {}", "a: {restart: always}", 1))
	for _, delay := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		told, at := len(w.told), w.now
		w.crash("a")
		for !w.saw("node a is up again") || len(w.told) < told+2 {
			w.step()
		}
		w.wantTold(told, "node a is down: its agent was killed by SIGKILL; it is started again in "+delay.String(), "node a is up again")
		if took := w.now - at; took < delay || took > delay+20*time.Millisecond {
			t.Errorf("after %v, not %v", took, delay)
		}
		w.rest()
		w.judge()
	}
	w.run(recovered) // it has lived for long
	told := len(w.told)
	w.crash("a")
	w.run(time.Second)
	w.wantTold(told, "node a is down: its agent was killed by SIGKILL; it is started again in 100ms", "node a is up again")
	told = len(w.told)
	w.crash("a")
	w.must(ChangeNode{Node: "a", Action: topology.StopNode}) // which calls the start off
	w.run(time.Minute)
	w.wantTold(told, "node a is down: its agent was killed by SIGKILL; it is started again in 200ms")
	told = len(w.told)
	w.failing("Configure", Done{Err: errors.New("no")})
	w.refused(ChangeNode{Node: "a", Action: topology.StartNode}, "no")
	w.fail = nil
	w.must(ChangeNode{Node: "a", Action: topology.StartNode})
	w.failing("Configure", Done{Err: errors.New("no")})
	w.crash("a")
	w.run(500 * time.Millisecond)
	w.wantTold(told, "node a is up again", "node a is down: its agent was killed by SIGKILL; it is started again in 400ms",
		"node a does not start as it should: no; it is started again in 800ms")
}

// A signal that ends the agent is waited for, and what kills a node that is paused.
func TestKillAndPause(t *testing.T) {
	w := built(t, pair)
	w.refused(ChangeNode{Node: "a", Action: topology.ResumeNode}, "node a is not paused")
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	for _, action := range []topology.NodeAction{topology.PauseNode, topology.StartNode} {
		w.refused(ChangeNode{Node: "a", Action: action}, "node a is paused")
	}
	w.refused(ChangeNode{Node: "a", Action: topology.KillNode, Signal: 15}, "node a is paused")
	w.must(ChangeNode{Node: "a", Action: topology.ResumeNode})
	w.must(ChangeNode{Node: "a", Action: topology.KillNode, Signal: 15})
	w.must(ChangeNode{Node: "a", Action: topology.PauseNode})
	if a := w.must(ChangeNode{Node: "a", Action: topology.KillNode, Signal: Kill}); a.Was != NodeIsPaused {
		t.Errorf("it was %s", a.Was)
	}
	w.wantTold(1, "node a is paused", "node a goes on", "node a is paused", "node a is down: its agent was killed by SIGKILL")
	w.judge()
	w.failing("PauseAgent", Done{Err: errors.New("no")})
	w.refused(ChangeNode{Node: "b", Action: topology.PauseNode}, "no")
	if s := w.lab.Node("b"); s.State != NodeIsReady {
		t.Errorf("%+v", s)
	}
	w.refused(ChangeNode{Node: "x", Action: topology.StopNode}, `lab pair has no node "x"`)
	w.refused(ChangeNode{Node: "a", Action: "dance"}, `unknown action "dance"`)
}

func change(t *testing.T, settings ...string) topology.Change {
	t.Helper()
	c, err := topology.ParseChange(nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const plain = `
name: plain
seed: 1
topology:
  nodes:
    a: {}
    b: {}
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
`

// A link goes to its engine with the first impairment, and back when it has none and no packet is on its way.
func TestLinkChanges(t *testing.T) {
	w := built(t, plain)
	done, told := len(w.done), len(w.told)
	w.must(SetLink{Change: change(t, "loss=1%")})
	w.must(SetLink{Change: change(t, "loss=2%"), From: "b"})
	w.must(ResetLink{From: "a"})
	w.must(ResetLink{})
	w.rest()
	w.wantDone(done, "Impair "+theLink, "SetImpairment "+theLink, "SetImpairment "+theLink, "SetImpairment "+theLink, "AwaitIdle", "ReleaseLink "+theLink)
	w.wantTold(told, "link a:eth0: loss 1%", "link a:eth0: loss 2% from b", "link a:eth0: reset from a", "link a:eth0: reset")
	w.judge()
	w.refused(SetLink{Change: change(t, "loss=1%"), From: "c"}, `node "c" is at neither end of the link a:eth0 to b:eth0`)
	w.refused(SetLink{Link: 1}, "lab plain has no link 1")
	done = len(w.done)
	w.must(SwitchLink{})
	w.must(SwitchLink{})
	w.must(SwitchLink{Up: true})
	w.must(Partition{[][]string{{"a"}}})
	w.must(SwitchLink{Up: true}) // whatever took it down
	w.wantDone(done, "Disconnect "+theLink, "Connect "+theLink, "Disconnect "+theLink, "Connect "+theLink)
	w.judge()
}

// A change that an engine refuses leaves the link as it was.
func TestLinkChangeFails(t *testing.T) {
	w := built(t, pair)
	for _, c := range []struct {
		action  string
		command Command
	}{{"SetImpairment", SetLink{Change: change(t, "loss=1%")}}, {"Disconnect", SwitchLink{}}} {
		before := w.lab.Link(0)
		w.failing(c.action, Done{Err: errors.New("no")})
		w.refused(c.command, "link a:eth0: no")
		w.fail = nil
		w.rest()
		if diff := cmp.Diff(before, w.lab.Link(0), cmp.AllowUnexported(topology.Impairment{})); diff != "" {
			t.Errorf("%s: -before +after:\n%s", c.action, diff)
		}
		w.judge()
	}
}

// A command that makes a link plain waits for that, but not for long; a change meanwhile calls it off.
func TestLinkStaysBusy(t *testing.T) {
	w := built(t, pair)
	never := 0
	w.fail = func(a Action) *Done {
		if _, ok := a.(ReleaseLink); ok && never < 3 {
			never++
			return &Done{Late: true}
		}
		return nil
	}
	w.must(SetLink{Change: change(t, "delay=0ms")})
	w.rest()
	if never != 3 || w.lab.Link(0).Engine {
		t.Errorf("late %d times, with its engine: %t", never, w.lab.Link(0).Engine)
	}
	w.fail = nil
	w.must(SetLink{Change: change(t, "delay=1ms")})
	w.fail = func(a Action) *Done {
		if _, ok := a.(ReleaseLink); ok {
			return &Done{Late: true}
		}
		return nil
	}
	at := w.now
	w.must(SetLink{Change: change(t, "delay=0ms")})
	if took := w.now - at; took < plainTime || took > plainTime+10*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	told := len(w.told)
	w.failing("ReleaseLink", Done{Err: errors.New("no")})
	w.rest()
	w.wantTold(told, "link a:eth0 stays with linkem: no")
}

const square = `
name: square
seed: 1
topology:
  nodes: {a: {}, b: {}, c: {}, d: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
    - {endpoints: ["b:eth1", "c:eth0"]}
    - {endpoints: ["c:eth1", "d:eth0"]}
    - {endpoints: ["d:eth1", "a:eth1"]}
`

func names(links []*topology.Link) (all []string) {
	for _, l := range links {
		all = append(all, l.Endpoints[0].String())
	}
	return all
}

// A node is started though an interface of it cannot be made at first, since the node at the far end of the link has just
// died. It does not matter which is heard of first.
func TestStartMeetsEnd(t *testing.T) {
	for name, delay := range map[string]time.Duration{"then the end": 50 * time.Millisecond, "the end before": 0} {
		t.Run(name, func(t *testing.T) {
			w := built(t, square)
			lives := true
			w.fail = func(a Action) *Done {
				if m, ok := a.(MakeEnds); !ok || m.Link.Endpoints[0].String() != "c:eth1" || !lives {
					return nil
				}
				lives = false
				if delay == 0 {
					w.crash("c")
				} else {
					w.after(delay, func() { w.crash("c") })
				}
				return &Done{Err: errGone, Agent: delay > 0}
			}
			w.must(ChangeNode{Node: "d", Action: topology.RestartNode})
			if lives || w.lab.byName["d"].down() || !w.lab.byName["c"].down() {
				t.Error("c is up, or d is down")
			}
			w.must(ChangeNode{Node: "c", Action: topology.StartNode})
			w.rest()
			w.judge()
		})
	}
}

// A partition takes the place of the one before, and its end leaves down what was down by itself.
func TestPartition(t *testing.T) {
	w := built(t, square)
	w.must(SwitchLink{Link: 3})
	told := len(w.told)
	if got := names(w.must(Partition{[][]string{{"a", "b"}, {"c", "d"}}}).Links); !slices.Equal(got, []string{"b:eth1", "d:eth1"}) {
		t.Errorf("down: %v", got)
	}
	w.judge()
	if got := names(w.must(Partition{[][]string{{"a"}}}).Links); !slices.Equal(got, []string{"a:eth0", "d:eth1"}) {
		t.Errorf("down: %v", got)
	}
	w.judge()
	if got := names(w.must(Heal{}).Links); !slices.Equal(got, []string{"a:eth0"}) {
		t.Errorf("up again: %v", got)
	}
	w.judge()
	w.wantTold(told, "partition a,b c,d: links that are down: 2", "partition a: links that are down: 2", "the partition is over: links that are up again: 1")
	w.refused(Partition{[][]string{{"a", "b", "c", "d"}}}, "no link joins nodes of different sets")
	w.refused(Partition{[][]string{{"a"}, {"a", "b"}}}, `node "a" is in two sets of the partition`)
	w.refused(Partition{[][]string{{"x"}}}, `lab square has no node "x"`)
}

// A run's changes last until the next run begins, a command's do not end.
func TestRunRestores(t *testing.T) {
	w := built(t, square)
	w.must(BeginRun{})
	w.refused(BeginRun{}, "lab square is running its workloads already")
	do := func(by Source, c Command) {
		t.Helper()
		if a := w.answer(w.ask(by, c)); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	do(ByRun, SetLink{Change: change(t, "loss=1%")})
	do(ByHand, SetLink{Link: 1, Change: change(t, "loss=2%")})
	do(ByRun, SetLink{Change: change(t, "delay=2ms")})
	w.refused(SetLink{Change: change(t, "jitter=1ms")}, // the delay does not last
		"link a:eth0: jitter 1ms exceeds delay 0ms, expected at most the delay, which would be so in the next run")
	do(ByRun, SwitchLink{Link: 2})
	do(ByRun, ChangeNode{Node: "a", Action: topology.StopNode})
	do(ByRun, ChangeNode{Node: "b", Action: topology.PauseNode})
	do(ByHand, ChangeNode{Node: "c", Action: topology.PauseNode})
	do(ByRun, ChangeNode{Node: "c", Action: topology.KillNode, Signal: Kill})
	do(ByHand, ChangeNode{Node: "d", Action: topology.StopNode})
	do(ByRun, ChangeNode{Node: "d", Action: topology.StartNode})
	w.must(EndRun{})
	if diff := cmp.Diff([]string{"b:eth1 loss=2%", "c paused", "d down"}, w.lab.SetByHand()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if state, command := w.lab.StateByHand("c"); state != NodeIsPaused || command != "ndklab resume square/c" {
		t.Errorf("%s, %s", state, command)
	}
	if a := w.must(BeginRun{}); !a.Restored {
		t.Error("it is the first run")
	}
	states := map[string]string{}
	for _, n := range w.lab.nodes {
		states[n.spec.Name] = w.lab.Node(n.spec.Name).State
	}
	if diff := cmp.Diff(map[string]string{"a": NodeIsReady, "b": NodeIsReady, "c": NodeIsPaused, "d": NodeIsDown}, states); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i, want := range []bool{false, true, false, false} {
		if k := w.lab.links[i]; k.asked.impaired() != want || k.asked.down {
			t.Errorf("link %d: %+v", i, k.asked)
		}
	}
	w.must(EndRun{})
	w.rest()
	w.judge()
}

func itoa(i int) string { return string(rune('0'+i/10)) + string(rune('0'+i%10)) }
