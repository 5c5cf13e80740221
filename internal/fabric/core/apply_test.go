package core

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// applied parses what the lab of a world is to become.
func (w *world) applied(text string) Apply {
	w.t.Helper()
	s := w.lab.Standing()
	to, err := topology.ParseWith(topology.Options{Running: s.Topology}, "test.ndklab.yaml", []byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return Apply{to, s.Generation}
}

const changedSquare = `
name: square
seed: 1
topology:
  nodes: {a: {}, b: {restart: always}, c: {env: {X: "1"}}, e: {}, s: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], loss: 1%}
    - {endpoints: ["b:eth1", "c:eth0"], mtu: 1500}
    - {endpoints: ["a:eth1", "s:eth0"]}
    - {endpoints: ["e:eth0", "s:eth1"]}
`

// A lab becomes what another file says: what goes, goes first, what stays is not disturbed.
func TestApply(t *testing.T) {
	w := built(t, square)
	told, done := len(w.told), len(w.done)
	w.must(w.applied(changedSquare))
	w.wantTold(told,
		"link c:eth1 to d:eth0 is removed", "link d:eth1 to a:eth1 is removed", "node d is down: it was removed", "node d is removed",
		"link a:eth0 - b:eth0 loss none -> 1%", "link b:eth1 - c:eth0 mtu 4200 -> 1500",
		"node a is down: it starts again with other settings", "node c is down: it starts again with other settings",
		"node e is up", "node c is up again", "node a is up again",
		"link a:eth1 to s:eth0 is there", "link e:eth0 to s:eth1 is there", "lab square is as its file says: nodes: 5, links: 4")
	for _, d := range w.done[done:] {
		if d == "KillAgent b" || d == "Configure b" {
			t.Errorf("%s", d)
		}
	}
	w.judge()
	done = len(w.done)
	w.must(w.applied(changedSquare))
	for _, d := range w.done[done:] {
		if !strings.HasPrefix(d, "Reconfigure") && d != "RenewNames" {
			t.Errorf("nothing changes, and %s", d)
		}
	}
	w.must(w.applied(square))
	w.judge()
}

// An Apply that fails or is interrupted leaves the rest to the next.
func TestApplyUnfinished(t *testing.T) {
	for _, action := range []string{"ResizeLink", "Impair link a:eth0", "MakeSwitch", "MakeEnds link a:eth1", "StartAgent e", "Reconfigure", "Configure", "Connect link e"} {
		t.Run(action, func(t *testing.T) {
			w := built(t, square)
			w.failing(action, Done{Err: errors.New("no")})
			a := w.answer(w.ask(ByHand, w.applied(changedSquare)))
			w.fail = nil
			if s := w.lab.Standing(); a.Err == nil || !strings.HasSuffix(s.Unfinished, "no") || s.Applying {
				t.Errorf("unfinished: %q", s.Unfinished)
			}
			w.rest()
			w.refused(BeginRun{}, "lab square is changed in part ("+w.lab.Standing().Unfinished+"): `ndklab apply` does the rest")
			w.must(w.applied(changedSquare))
			w.rest()
			w.judge()
			if s := w.lab.Standing(); s.Unfinished != "" || len(s.Topology.Nodes) != 5 {
				t.Errorf("%+v", s)
			}
			for _, n := range w.lab.nodes {
				if n.down() {
					t.Errorf("node %s is down: %s", n.spec.Name, n.reason)
				}
			}
		})
	}
}

// Wherever an Apply is interrupted, another one does the rest, whether or not what has begun has come to its end.
func TestApplyInterrupted(t *testing.T) {
	for at, over := 0, false; !over; at++ {
		interruptedAt(t, at, true)
		over = interruptedAt(t, at, false)
		if over && at < 20 {
			t.Errorf("done after %d steps", at)
		}
		if t.Failed() {
			t.Fatalf("interrupted after %d steps", at)
		}
	}
}

// interruptedAt interrupts an Apply after some steps, and has another one do the rest; false if it was over by then.
func interruptedAt(t *testing.T, at int, rest bool) (over bool) {
	w := built(t, square)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(StartAgent); ok {
			return 10 * time.Millisecond // after all that is done with others
		}
		return 0
	}
	id := w.ask(ByHand, w.applied(changedSquare))
	for range at {
		w.step()
	}
	if w.answers[id] != nil {
		return true
	}
	w.handle(Cancel{id, errors.New("gone")})
	a := w.answer(id)
	if a.Err != nil && a.Err.Error() != "lab square is changed in part: it was interrupted" {
		t.Errorf("%v", a.Err)
	}
	if rest {
		w.rest()
		w.judge()
	}
	w.must(w.applied(changedSquare))
	for _, n := range w.lab.nodes {
		if n.down() {
			t.Errorf("node %s is down: %s", n.spec.Name, n.reason)
		}
	}
	w.rest()
	w.judge()
	return false
}

// An Apply has no more than startsAtOnce agents started at once. Interrupted, it leaves those nodes down that it has not
// come to, and another one starts them.
func TestApplyStartsInTurn(t *testing.T) {
	const many = 3 * startsAtOnce
	var nodes strings.Builder
	for i := range many {
		fmt.Fprintf(&nodes, "    h%d: {}\n", i)
	}
	small := "name: crowd\nseed: 1\ntopology:\n  nodes:\n    a: {}\n"
	w := built(t, small)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(StartAgent); ok {
			return time.Second
		}
		return 0
	}
	large := small + nodes.String()
	phases := func() (begun, ready int) {
		atOnce := 0
		for _, n := range w.lab.nodes {
			if n.phase == starting {
				atOnce++
			}
			if n.number > 0 {
				begun++
			}
			if !n.down() {
				ready++
			}
		}
		if atOnce > startsAtOnce {
			t.Errorf("%d are being started at once", atOnce)
		}
		return begun, ready
	}
	id := w.ask(ByHand, w.applied(large))
	for _, ready := phases(); ready == 1; _, ready = phases() {
		if !w.step() {
			t.Fatal("none comes up")
		}
	}
	w.handle(Cancel{id, errors.New("gone")})
	w.rest()
	w.judge()
	begun, ready := phases()
	if begun != ready || begun < 1+startsAtOnce || begun > 1+2*startsAtOnce {
		t.Errorf("begun: %d, ready: %d of %d", begun, ready, many+1)
	}
	for _, n := range w.lab.nodes {
		if n.down() && n.reason != notStarted {
			t.Errorf("node %s is down: %s", n.spec.Name, n.reason)
		}
	}
	w.must(w.applied(large))
	w.rest()
	w.judge()
	if _, ready := phases(); ready != many+1 {
		t.Errorf("ready: %d of %d", ready, many+1)
	}
}

// An Apply that is cancelled begins no further step.
func TestApplyCancelled(t *testing.T) {
	w := built(t, square)
	told := len(w.told)
	id := w.ask(ByHand, w.applied(changedSquare))
	w.handle(Cancel{id, errors.New("gone")})
	if a := w.answer(id); a.Err == nil || a.Err.Error() != "lab square is changed in part: it was interrupted" {
		t.Errorf("%v", a.Err)
	}
	w.rest()
	w.wantTold(told, "link c:eth1 to d:eth0 is removed")
	w.judge()
}

// A node that has started with its new settings already is not started again for them.
func TestApplyFindsNodeStarted(t *testing.T) {
	w := built(t, square)
	w.slow = func(a Action) time.Duration {
		if s, ok := a.(StartAgent); ok && s.Node == "c" {
			return time.Minute
		}
		return 0
	}
	restart := w.ask(ByHand, ChangeNode{Node: "c", Action: topology.RestartNode})
	w.run(time.Second)
	w.must(w.applied(strings.Replace(square, "c: {}", `c: {env: {X: "1"}}`, 1)))
	w.answer(restart)
	if s := w.lab.Node("c"); s.Restarts != 2 { // the first was told of the old settings
		t.Errorf("%+v", s)
	}

	w = built(t, square)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(PauseAgent); ok {
			return time.Minute
		}
		return 0
	}
	w.ask(ByHand, ChangeNode{Node: "c", Action: topology.PauseNode})
	restart = w.ask(ByHand, ChangeNode{Node: "c", Action: topology.RestartNode})
	w.must(w.applied(strings.Replace(square, "c: {}", `c: {env: {X: "1"}}`, 1)))
	w.answer(restart)
	if s := w.lab.Node("c"); s.Restarts != 1 {
		t.Errorf("%+v", s)
	}
}

const routed = `
name: routed
seed: 1
topology:
  nodes: {r: {kind: router}, s: {kind: switch}, a: {}}
  links:
    - {endpoints: ["a:eth0", "r:eth0"]}
`

// A link that could not be connected is tried again by the next Apply, also between nodes that go on.
func TestApplyTriesAgain(t *testing.T) {
	w := built(t, routed)
	more := routed + "    - {endpoints: [\"r:eth1\", \"s:eth0\"]}\n"
	w.failing("Connect", Done{Err: errors.New("no")})
	w.refused(w.applied(more), "lab routed is changed in part: link r:eth1: no")
	w.fail = nil
	w.must(w.applied(more))
	w.judge()
	if s := w.lab.Node("r"); s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// A topology without some of its nodes is consistent: its interfaces are at its links, and its routes lead over those.
func TestWithout(t *testing.T) {
	whole := parse(t, routed+"    - {endpoints: [\"r:eth1\", \"s:eth0\"]}\n")
	whole.Nodes[2].Routes = append(whole.Nodes[2].Routes, topology.Route{To: whole.Nodes[0].Interfaces[1].Addresses[0].Masked(), Via: []netip.Addr{whole.Nodes[0].Interfaces[0].Addresses[0].Addr()}})
	remains := without(whole, keepNode, func(l *topology.Link) bool { return l.Endpoints[0].Node != "a" }, nil)
	var got []string
	for _, n := range remains.Nodes {
		line := n.Name
		for _, f := range n.Interfaces {
			line += " " + remains.Links[f.Link].Endpoints[f.End].String()
		}
		got = append(got, line+strings.Repeat(" route", len(n.Routes)))
	}
	if got := strings.Join(got, "; "); got != "r r:eth1; s s:eth0; a" {
		t.Error(got)
	}
	if len(whole.Links) != 2 || len(whole.Nodes[0].Interfaces) != 2 || len(whole.Nodes[2].Routes) == 0 {
		t.Error("the whole was changed")
	}
}

// While some nodes have gone and the others are not yet as they are to be, nobody waits for those that have gone, nor has
// routes by way of them; what leads outside stays.
func TestWithoutForgets(t *testing.T) {
	whole := parse(t, `
name: part
seed: 1
topology:
  nodes:
    a: {wait_for: [{node: b, stage: healthy}, {node: c, stage: configured}]}
    r: {kind: router}
    b:
    c:
  links:
    - {endpoints: ["a:eth0", "r:1"]}
    - {endpoints: ["r:2", "b:eth0"]}
    - {endpoints: ["a:eth1", "c:eth0"]}
    - {endpoints: ["c:eth1", "external:x"]}
`)
	remains := without(whole, func(n *topology.Node) bool { return n.Name == "a" || n.Name == "c" },
		func(l *topology.Link) bool { return l.Endpoints[1].Node == "c" || l.Endpoints[0].Node == "c" }, nil)
	a := remains.FindNode("a")
	if waits := a.Setup.WaitFor; len(waits) != 1 || waits[0].Node != "c" {
		t.Errorf("a waits for %v", waits)
	}
	if len(whole.FindNode("a").Routes) == 0 || len(a.Routes) != 0 || len(a.Interfaces) != 1 || len(remains.Links) != 2 || a.Interfaces[0].Link != 0 {
		t.Errorf("%+v", remains)
	}
	if waits := whole.FindNode("a").Setup.WaitFor; len(waits) != 2 {
		t.Errorf("the whole was changed: %v", waits)
	}
	if x := remains.Externals; len(x) != 1 || x[0].Link != 1 || len(whole.Externals) != 1 || whole.Externals[0].Link != 3 {
		t.Errorf("externals %+v of %+v", x, whole.Externals)
	}
}

// The driver is told of nodes and links that have left the lab, and renews the names before an Apply is done.
func TestApplyForgets(t *testing.T) {
	w := built(t, square)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(RenewNames); ok {
			return time.Minute
		}
		return 0
	}
	began := w.now
	w.must(w.applied(changedSquare))
	if w.now-began < time.Minute {
		t.Error("names were not waited for")
	}
	if got, want := strings.Join(w.forgotten, ", "), "link c:eth1 to d:eth0, link d:eth1 to a:eth1, d"; got != want {
		t.Errorf("forgotten %s, want %s", got, want)
	}
}

// An Apply that is refused changes nothing.
func TestApplyRefused(t *testing.T) {
	w := built(t, square)
	stale := w.applied(changedSquare)
	w.must(BeginRun{})
	w.refused(stale, "lab square is running its workloads: apply when they are done")
	w.must(EndRun{})
	first := w.ask(ByHand, stale)
	w.refused(w.applied(changedSquare), "lab square is being changed already")
	w.refused(BeginRun{}, "lab square is being changed: run its workloads when that is done")
	w.answer(first)
	w.refused(stale, "lab square was changed meanwhile: apply again")
	other := w.applied(changedSquare)
	other.Topology.Name = "other"
	w.refused(other, "the name changes from square to other, which a lab that is up cannot")
}

// Commands for links that go meanwhile are refused, and those done that come to their turn before.
func TestApplyAmidCommands(t *testing.T) {
	w := built(t, square)
	apply := w.ask(ByHand, w.applied(changedSquare))
	gone := w.ask(ByHand, ChangeNode{Node: "d", Action: topology.RestartNode})
	link := w.ask(ByHand, SetLink{Link: 2, Change: change(t, "loss=1%")})
	stays := w.ask(ByHand, ChangeNode{Node: "a", Action: topology.RestartNode})
	for id, want := range map[uint64]string{apply: "", stays: "", gone: "", link: "link c:eth1 is in the lab no more"} {
		a := w.answer(id)
		if got := ""; a.Err != nil {
			got = a.Err.Error()
			if got != want {
				t.Errorf("command %d: %v, want %q", id, a.Err, want)
			}
		} else if want != "" {
			t.Errorf("command %d: no error, want %q", id, want)
		}
	}
	w.rest()
	w.judge()
}
