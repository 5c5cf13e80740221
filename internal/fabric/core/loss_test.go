package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// overTwo is a lab whose nodes c, t and the switch s are on a host that tests lose.
const overTwo = `hosts: {on_loss: continue}
topology:
  nodes: {a: , b: , c: {restart: always}, t: {kind: switch}, s: {kind: switch}}
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - {endpoints: ["a:eth1", "c:eth0"], delay: 1ms}
    - endpoints: ["t:p0", "s:p0"]
    - endpoints: ["b:eth1", "s:p1"]
`

var (
	errHost2 = errors.New("host host2 is gone: its process has ended")
	onHost2  = []string{"c", "t"}
)

// loseHost has the host go with the nodes that are on it.
func (w *world) loseHost(nodes ...string) {
	for _, name := range nodes {
		w.agents[name] = 0
		delete(w.switches, name)
	}
	before := w.fail
	w.fail = func(a Action) *Done {
		switch of, node := agentOf(a); {
		case node && slices.Contains(nodes, of.Node):
			return &Done{Err: errHost2}
		case before != nil:
			return before(a)
		}
		if start, ok := a.(StartAgent); ok && slices.Contains(nodes, start.Node) {
			return &Done{Err: errHost2}
		}
		return nil
	}
	w.handle(HostLost{Host: "host2", Nodes: nodes, Reason: errHost2})
}

// A lab that goes on without a host has its nodes be down for that reason, and their links off at the ends that are left. Nothing
// starts the nodes again.
func TestHostLost(t *testing.T) {
	w := built(t, overTwo)
	w.told = nil
	w.loseHost(onHost2...)
	w.rest()
	want := []string{
		"host host2 is gone: its process has ended; the lab goes on without the nodes there: 2",
		"node t is down: its host host2 is lost",
		"node c is down: its host host2 is lost",
	}
	if !slices.Equal(w.told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(w.told, "\n"), strings.Join(want, "\n"))
	}
	w.judge()
	if w.ended != nil {
		t.Fatalf("the lab has ended: %v", w.ended)
	}
	for name, state := range map[string]string{"a": NodeIsReady, "b": NodeIsReady, "c": NodeIsDown, "s": NodeIsReady, "t": NodeIsDown} {
		if got := w.lab.Node(name); got.State != state || (got.Reason == "its host host2 is lost") != (state == NodeIsDown) {
			t.Errorf("node %s is %s: %q", name, got.State, got.Reason)
		}
	}
	for i, up := range []bool{true, false, false, true} {
		if s := w.lab.Link(i); s.Off() == up || s.Connected != up {
			t.Errorf("link %d: %+v", i, s)
		}
	}
	for _, name := range onHost2 {
		for _, action := range []topology.NodeAction{topology.StartNode, topology.RestartNode} {
			w.refused(ChangeNode{Node: name, Action: action}, "node "+name+" does not start again: its host host2 is lost")
		}
		w.refused(ChangeNode{Node: name, Action: topology.PauseNode}, "node "+name+" is down: its host host2 is lost")
	}
	w.refused(SwitchLink{Link: 1, Up: true}, "link a:eth1: node c is down: its host host2 is lost")
	w.must(ChangeNode{Node: "a", Action: topology.RestartNode}) // its link to c has one end
	w.must(BeginRun{})
	w.must(EndRun{})
	w.must(BeginRun{})
	w.must(EndRun{})
	w.run(time.Hour)
	w.judge()
	if s := w.lab.Node("c"); s.Life != 1 {
		t.Errorf("node c was started again: %+v", s)
	}
}

// A host that is lost ends the lab if its file does not say otherwise, if the lab is not up, or if no node with processes is left.
func TestHostLostEnds(t *testing.T) {
	for name, lose := range map[string]func() *world{
		"by the file": func() *world {
			w := built(t, strings.Replace(overTwo, "continue", "end", 1))
			w.loseHost(onHost2...)
			return w
		},
		"while it is built": func() *world {
			w := newWorld(t, overTwo)
			w.ask(ByHand, Build{})
			w.run(2 * time.Millisecond)
			w.loseHost(onHost2...)
			return w
		},
		"with all nodes": func() *world {
			w := built(t, overTwo)
			w.loseHost(onHost2...)
			if w.ended != nil {
				t.Errorf("ended by the loss of one: %v", w.ended)
			}
			w.loseHost("a", "b", "s")
			return w
		},
	} {
		if w := lose(); !errors.Is(w.ended, errHost2) {
			t.Errorf("%s: ended with %v", name, w.ended)
		}
	}
}

// A lab that loses a host amid whatever goes on comes to rest: every command is answered, and what is left does what is asked of it.
func TestHostLostAmid(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			w := built(t, overTwo)
			w.rand = rand.New(rand.NewPCG(seed, 8))
			act := func() {
				names := []string{"a", "b", "c", "t", "s"}
				actions := []topology.NodeAction{topology.StartNode, topology.StopNode, topology.RestartNode, topology.KillNode, topology.PauseNode, topology.ResumeNode}
				switch r.IntN(4) {
				case 0:
					w.ask(Source(r.IntN(2)), SwitchLink{Link: r.IntN(4), Up: r.IntN(2) == 0})
				case 1:
					w.ask(ByHand, Partition{Sets: [][]string{{"a", "b"}, {"c", "t"}}})
				case 2:
					w.ask(ByHand, Heal{})
				default:
					w.ask(Source(r.IntN(2)), ChangeNode{Node: names[r.IntN(len(names))], Action: actions[r.IntN(len(actions))], Signal: Kill})
				}
				for range r.IntN(6) {
					w.step()
				}
			}
			for range r.IntN(8) {
				act()
			}
			w.loseHost(onHost2...)
			for range r.IntN(8) {
				act()
			}
			w.must(BeginRun{})
			w.must(EndRun{})
			w.settle()
			w.run(time.Hour)
			w.judge()
			for _, name := range onHost2 {
				if s := w.lab.Node(name); s.State != NodeIsDown || s.Reason != "its host host2 is lost" {
					t.Errorf("node %s is %s: %q", name, s.State, s.Reason)
				}
			}
			if w.ended != nil {
				t.Errorf("the lab has ended: %v", w.ended)
			}
		})
	}
}
