package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	whole.Dilation = 40
	remains := without(whole, keepNode, func(l *topology.Link) bool { return l.Endpoints[0].Node != "a" }, nil)
	if remains.Dilation != 40 {
		t.Errorf("a lab with dilation 40 has %d amid a change", remains.Dilation)
	}
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

// starFile is a lab of all kinds of nodes.
const starFile = `
name: star
seed: 1
topology:
  nodes: {a: , b: , s: {kind: switch}, r: {kind: router}, z: }
  links:
    - {endpoints: ["a:eth0", "s:1"]}
    - {endpoints: ["b:eth0", "s:2"], delay: 1ms}
    - {endpoints: ["s:3", "r:1"]}
    - {endpoints: ["r:2", "z:eth0"]}
`

// edited is a file with some of its text replaced: old and new alternately.
func edited(t testing.TB, file string, replace ...string) string {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(file, replace[i]) {
			t.Fatalf("no %q", replace[i])
		}
		file = strings.ReplaceAll(file, replace[i], replace[i+1])
	}
	return file
}

// status is all that can be told of the nodes and links of a lab, but for how often they were started.
func (w *world) status() (all []string) {
	for _, n := range w.lab.topo.Nodes {
		s := w.lab.Node(n.Name)
		s.Life, s.Restarts = 0, 0
		all = append(all, fmt.Sprintf("%s %+v", n.Name, s))
	}
	for i := range w.lab.topo.Links {
		k := w.lab.Link(i)
		all = append(all, fmt.Sprintf("%s %+v %q %q", linkTo(&w.lab.topo.Links[i]), k, k.Asked[0].Settings(), k.Asked[1].Settings()))
	}
	return all
}

// However a lab has come to be that of its file, it is as if it had been made of that, and what the file leaves alone goes on.
func TestApplyStartsWhatChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   string
		to     string
		others string // nodes that have other agents afterwards
	}{
		{"nothing", starFile, starFile, ""},
		{"a host at a switch", starFile, edited(t, starFile, "a: ,", "a: , c: ,", "  links:\n", "  links:\n    - {endpoints: [\"c:eth0\", \"s:4\"], loss: 1%}\n"), "c"},
		{"a host elsewhere", starFile, edited(t, starFile, ", z: ", ", y: ", `"z:eth0"`, `"y:eth0"`), "y"},
		{"a host behind another router", edited(t, starFile), edited(t, starFile, "z: }", "z: , q: {kind: router}, y: }") +
			"    - {endpoints: [\"r:3\", \"q:1\"]}\n    - {endpoints: [\"q:2\", \"y:eth0\"]}\n", "q y"},
		{"a switch more", starFile, edited(t, starFile, "z: }", "z: , u: {kind: switch}, y: }") + "    - {endpoints: [\"s:4\", \"u:1\"]}\n    - {endpoints: [\"u:2\", \"y:eth0\"]}\n", "y"},
		{"impairments", starFile, edited(t, starFile, "delay: 1ms", "delay: 2ms, loss: 1%", `"s:1"]}`, `"s:1"], delay: 100us}`), ""},
		{"no impairment", starFile, edited(t, starFile, ", delay: 1ms", ""), ""},
		{"MTU", starFile, edited(t, starFile, `"s:1"]`, `"s:1"], mtu: 1500`, `"s:2"]`, `"s:2"], mtu: 1500`, `"r:1"]`, `"r:1"], mtu: 1500`, `"z:eth0"]`, `"z:eth0"], mtu: 1500`), ""},
		{"how links are made", starFile, edited(t, starFile, `"s:1"]`, `"s:1"], offload: off`, `"s:2"]`, `"s:2"], offload: off`), ""},
		{"an adapter", starFile, edited(t, starFile, "b: ,", "b: {adapter: {max_cq_depth: 77}},"), "b"},
		{"a router in the place of a switch", starFile, edited(t, starFile, "s: {kind: switch}", "s: {kind: router}"), "b s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := built(t, c.from)
			before := map[string]int{}
			for name, life := range w.agents {
				before[name] = life
			}
			w.must(w.applied(c.to))
			w.rest()
			w.judge()
			var others []string
			for _, n := range w.lab.topo.Nodes {
				if life := w.agents[n.Name]; n.Kind != topology.Switch && (life == 0 || life != before[n.Name]) {
					others = append(others, n.Name)
				}
			}
			if got := strings.Join(others, " "); got != c.others {
				t.Errorf("other agents: %s, want %s", got, c.others)
			}
			fresh, topo := newWorld(t, c.to), *w.lab.Topology() // whose addresses are those of nodes that were there
			fresh.lab = New(&topo)
			fresh.must(Build{})
			if diff := cmp.Diff(fresh.status(), w.status()); diff != "" {
				t.Errorf("-made +changed:\n%s", diff)
			}
			for name, topo := range fresh.given {
				if got := w.given[name].FindNode(name); !cmp.Equal(topo.FindNode(name).Interfaces, got.Interfaces, cmpopts.EquateComparable(netip.Prefix{})) {
					t.Errorf("interfaces of %s: %+v, want %+v", name, got.Interfaces, topo.FindNode(name).Interfaces)
				}
			}
		})
	}
}

// A lab that has become one and another is always as if it had just been made.
func TestApplyChain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := built(t, randomTopology(r))
	for step := range 100 {
		file := randomTopology(r)
		w.must(w.applied(file))
		w.run(time.Minute) // restarts and checks of health have come to rest
		w.judge()
		fresh := newWorld(t, file)
		fresh.must(Build{})
		fresh.run(time.Minute)
		if diff := cmp.Diff(fresh.status(), w.status()); diff != "" {
			t.Fatalf("step %d (-made +changed):\n%s\n%s", step, diff, file)
		}
	}
}

// A setting that a command has made stays unless the file changes the same.
func TestApplyKeepsWhatIsSet(t *testing.T) {
	w := built(t, starFile)
	w.must(SetLink{Change: change(t, "delay=3ms")})
	w.must(SetLink{Link: 1, Change: change(t, "delay=3ms", "loss=1%")})
	w.must(SetLink{Link: 3, Change: change(t, "loss=1%")})
	w.must(SwitchLink{Link: 3})
	w.must(w.applied(edited(t, starFile, "delay: 1ms", "delay: 2ms", `"s:3", "r:1"]`, `"s:3", "r:1"], down: true`, `"z:eth0"]`, `"z:eth0"], mtu: 1500`)))
	w.rest()
	w.judge()
	got := func() (all []string) {
		for i := range w.lab.links {
			k := w.lab.Link(i)
			all = append(all, strings.Join(append(k.Asked[0].Settings(), fmt.Sprintf("down=%t", k.Down)), " "))
		}
		return all
	}
	if diff := cmp.Diff([]string{"delay=3ms down=false", "delay=2ms down=false", "down=true", "loss=1% down=true"}, got()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.must(w.applied(starFile))
	if diff := cmp.Diff([]string{"delay=3ms down=false", "delay=1ms down=false", "down=false", "loss=1% down=true"}, got()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A node that was stopped stays so, and comes back as the file has it by then.
func TestApplyWhileStopped(t *testing.T) {
	w := built(t, starFile)
	w.must(ChangeNode{Node: "b", Action: topology.StopNode})
	w.must(w.applied(edited(t, starFile, "b: ,", "b: {adapter: {max_cq_depth: 77}},", "delay: 1ms", "delay: 2ms")))
	if s := w.lab.Node("b"); s.State != NodeIsDown || s.Reason != "it was stopped" {
		t.Errorf("%+v", s)
	}
	w.must(ChangeNode{Node: "b", Action: topology.StartNode})
	if depth := w.given["b"].FindNode("b").Adapter.MaxCqDepth; depth == nil || *depth != 77 {
		t.Errorf("max_cq_depth: %v", depth)
	}
	if k := w.lab.Link(1); k.Asked[0].Delay != 2*time.Millisecond || !k.Connected {
		t.Errorf("%+v", k)
	}
	w.judge()
}

// A change that a lab cannot make while it is up is refused, and nothing changes.
func TestApplyRefusesWhatCannotBe(t *testing.T) {
	w := built(t, starFile)
	done := len(w.done)
	seed := w.applied(starFile)
	seed.Topology.Seed = 7
	w.refused(seed, "the seed changes from 1 to 7, which a lab that is up cannot")
	w.refused(w.applied(starFile+"    - {endpoints: ['z:eth1', 'external:x']}\n"), "the link z:eth1 - external:x to outside of the lab is added, which a lab that is up cannot")
	if len(w.done) > done || w.lab.Standing().Unfinished != "" {
		t.Errorf("done: %q", w.done[done:])
	}
}

// Nodes that are added wait for each other, and an Apply for all of them.
func TestApplyWaits(t *testing.T) {
	w := built(t, starFile)
	w.slow = func(a Action) time.Duration {
		if _, ok := a.(Execute); ok {
			return time.Minute
		}
		return 0
	}
	at := w.now
	w.must(w.applied(edited(t, starFile, "a: ,", "c: {wait_for: [{node: d, stage: healthy}], exec: [last]}, d: {wait_for: [{node: e, stage: executed}], exec: [second]}, e: {exec: [first]}, a: ,") +
		"    - {endpoints: ['c:e', 's:c']}\n    - {endpoints: ['d:e', 's:d']}\n    - {endpoints: ['e:e', 's:e']}\n"))
	if took := w.now - at; took < 3*time.Minute || took > 3*time.Minute+time.Second {
		t.Errorf("it took %v", took)
	}
	for _, name := range []string{"c", "d", "e"} {
		if !w.lab.byName[name].stages.has(topology.Healthy) {
			t.Errorf("%s: %+v", name, w.lab.Node(name))
		}
	}
	w.judge()
}

// At every moment of an Apply the lab is whole to who looks at it: its links are between nodes that it has.
func TestLookAmidApply(t *testing.T) {
	w := built(t, square)
	for _, file := range []string{changedSquare, square, changedSquare} {
		id := w.ask(ByHand, w.applied(file))
		for w.answers[id] == nil {
			topo := w.lab.Topology()
			for i := range topo.Links {
				for end, e := range topo.Links[i].Endpoints {
					n := topo.FindNode(e.Node)
					if n == nil || !slices.ContainsFunc(n.Interfaces, func(f topology.Interface) bool { return f.Name == e.Interface && f.Link == i && f.End == end }) {
						t.Fatalf("%s has no interface at a node of %d", linkTo(&topo.Links[i]), len(topo.Nodes))
					}
				}
				w.lab.Link(i)
			}
			for _, n := range topo.Nodes {
				if s := w.lab.Node(n.Name); s.Reason == "it is not in the lab" {
					t.Fatalf("%s: %+v", n.Name, s)
				}
			}
			w.step()
		}
	}
}

// An Apply fails if a node that it adds does not become ready, and says so; a node that stays can be down meanwhile.
func TestApplyWaitsInVain(t *testing.T) {
	w := built(t, starFile)
	w.must(ChangeNode{Node: "a", Action: topology.StopNode})
	w.failing("Execute c", Done{Status: 3})
	more := edited(t, starFile, "a: ,", "c: {exec: [first]}, a: ,") + "    - {endpoints: ['c:e', 's:c']}\n"
	w.refused(w.applied(more), `lab star is changed in part: node c: "first" ended with status 3`)
	w.fail = nil
	w.rest()
	w.judge()
	if s := w.lab.Node("a"); s.State != NodeIsDown {
		t.Errorf("%+v", s)
	}
}

// A partition lasts beyond an Apply for the links that stay, and ends with the others.
func TestApplyAmidPartition(t *testing.T) {
	w := built(t, square)
	w.must(Partition{[][]string{{"a", "b"}, {"c", "d"}}})
	w.wantConnected("ab cd")
	w.must(w.applied(edited(t, square, "    - {endpoints: [\"d:eth1\", \"a:eth1\"]}\n", "", "d: {}", "d: {}, e: {}") + "    - {endpoints: [\"e:eth0\", \"a:eth1\"]}\n"))
	w.wantConnected("ab cd ea")
	if got := names(w.must(Heal{}).Links); !slices.Equal(got, []string{"b:eth1"}) {
		t.Errorf("up again: %q", got)
	}
	w.wantConnected("ab bc cd ea")
}
