package core

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

const behindSwitch = `
name: switched
seed: 1
topology:
  nodes:
    a: {}
    b: {}
    s: {kind: switch, stp: true}
  links:
    - {endpoints: ["a:eth0", "s:p0"]}
    - {endpoints: ["b:eth0", "s:p1"], delay: 1ms}
`

// While a switch is down its links carry nothing, and they are what they were when it is up again.
func TestSwitchStopsAndStarts(t *testing.T) {
	w := built(t, behindSwitch)
	told, done := len(w.told), len(w.done)
	a := w.must(ChangeNode{Node: "s", Action: topology.StopNode})
	if a.Was != NodeIsReady || a.Is.State != NodeIsDown || a.Is.Reason != "it was stopped" {
		t.Errorf("it was %s, and is %+v", a.Was, a.Is)
	}
	w.wantDone(done, "Disconnect link a:eth0 to s:p0", "Disconnect link b:eth0 to s:p1")
	w.wantTold(told, "node s is down: it was stopped")
	w.judge()
	if a := w.must(ChangeNode{Node: "s", Action: topology.StopNode}); a.Was != NodeIsDown {
		t.Errorf("it was %s", a.Was)
	}
	w.refused(ChangeNode{Node: "s", Action: topology.PauseNode}, "node s is down: it was stopped")
	w.refused(ChangeNode{Node: "s", Action: topology.KillNode, Signal: Kill}, "node s is down: it was stopped")
	// A link that is taken down meanwhile stays so, and what a link does to packets can be set.
	w.must(SwitchLink{Link: 0})
	told, done = len(w.told), len(w.done)
	if a := w.must(ChangeNode{Node: "s", Action: topology.StartNode}); a.Is.State != NodeIsReady || a.Is.Restarts != 1 {
		t.Errorf("%+v", a.Is)
	}
	w.wantDone(done, "Connect link b:eth0 to s:p1", "AwaitSpanningTree")
	w.wantTold(told, "node s is up again")
	w.must(SwitchLink{Link: 0, Up: true})
	w.judge()
}

// A switch that is paused forwards nothing until it is resumed. One that was killed is started by a command.
func TestSwitchPausesAndDies(t *testing.T) {
	w := built(t, behindSwitch)
	w.must(ChangeNode{Node: "s", Action: topology.PauseNode})
	w.judge()
	w.refused(ChangeNode{Node: "s", Action: topology.PauseNode}, "node s is paused")
	w.refused(ChangeNode{Node: "s", Action: topology.StartNode}, "node s is paused")
	w.must(ChangeNode{Node: "s", Action: topology.ResumeNode})
	w.judge()
	w.refused(ChangeNode{Node: "s", Action: topology.ResumeNode}, "node s is not paused")
	w.refused(ChangeNode{Node: "s", Action: topology.KillNode, Signal: 15}, "s is a switch: it has no processes, and takes no signal but SIGKILL")
	w.must(ChangeNode{Node: "s", Action: topology.KillNode, Signal: Kill})
	if is := w.lab.Node("s"); is.State != NodeIsDown || is.Reason != "it was killed by SIGKILL" {
		t.Errorf("%+v", is)
	}
	w.judge()
	w.must(ChangeNode{Node: "s", Action: topology.RestartNode})
	w.judge()
}

// A run begins with switches as commands by hand have left them.
func TestSwitchIsRestored(t *testing.T) {
	for _, byHand := range []topology.NodeAction{topology.StartNode, topology.StopNode, topology.PauseNode} {
		for _, byRun := range []topology.NodeAction{topology.StopNode, topology.RestartNode, topology.KillNode, topology.PauseNode} {
			w := built(t, behindSwitch)
			w.must(BeginRun{})
			w.must(EndRun{})
			w.must(ChangeNode{Node: "s", Action: byHand})
			wanted := w.lab.Node("s").State
			w.must(BeginRun{})
			w.answer(w.ask(ByRun, ChangeNode{Node: "s", Action: byRun, Signal: Kill})) // which may be refused
			w.must(EndRun{})
			w.must(BeginRun{})
			if got := w.lab.Node("s").State; got != wanted {
				t.Errorf("%s by hand, then %s by a run: it is %s, want %s", byHand, byRun, got, wanted)
			}
			w.judge()
		}
	}
}

// Of two commands for a switch the second waits for the first, and is not done if it was given up before.
func TestSwitchCommandsTakeTurns(t *testing.T) {
	w := built(t, behindSwitch)
	stop := w.ask(ByHand, ChangeNode{Node: "s", Action: topology.StopNode})
	start := w.ask(ByHand, ChangeNode{Node: "s", Action: topology.StartNode})
	again := w.ask(ByHand, ChangeNode{Node: "s", Action: topology.StopNode})
	w.handle(Cancel{again, errors.New("gone")})
	if a := w.answer(again); a.Err == nil || a.Err.Error() != "node s: gone" {
		t.Errorf("%v", a.Err)
	}
	if a := w.answer(stop); a.Err != nil || a.Is.State != NodeIsDown {
		t.Errorf("stop: %+v", a)
	}
	if a := w.answer(start); a.Err != nil || a.Was != NodeIsDown || a.Is.State != NodeIsReady {
		t.Errorf("start: %+v", a)
	}
	w.run(time.Second)
	w.judge()
}
