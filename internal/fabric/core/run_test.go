package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// by has a command done.
func (w *world) by(by Source, c Command) {
	w.t.Helper()
	if a := w.answer(w.ask(by, c)); a.Err != nil {
		w.t.Fatalf("%+v: %v", c, a.Err)
	}
}

// Changes that commands have made by hand stay, whatever runs do to them, and are listed. Changes that runs have made do not
// stay.
func TestSetByHand(t *testing.T) {
	w := built(t, square)
	for round := range 3 {
		w.must(BeginRun{})
		if round == 0 {
			w.must(SetLink{Change: change(t, "delay=200us")})
			w.must(SetLink{Link: 1, From: "c", Change: change(t, "duplicate=25%")})
			w.must(SwitchLink{Link: 2})
			w.must(ChangeNode{Node: "d", Action: topology.KillNode, Signal: Kill})
			w.must(ChangeNode{Node: "c", Action: topology.PauseNode})
		}
		want := []string{"a:eth0 delay=200us", "b:eth1 duplicate=25% from c", "c:eth1 down", "c paused", "d down"}
		if diff := cmp.Diff(want, w.lab.SetByHand()); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
		w.by(ByRun, SetLink{Change: change(t, "delay=30ms", "loss=100%")})
		w.by(ByRun, SetLink{Link: 1, Change: change(t, "duplicate=50%")})
		w.by(ByRun, ChangeNode{Node: "c", Action: topology.ResumeNode})
		w.by(ByRun, ChangeNode{Node: "d", Action: topology.StartNode})
		w.by(ByRun, SwitchLink{Link: 2, Up: true})
		w.by(ByRun, Partition{[][]string{{"a", "b"}}})
		w.must(EndRun{})
	}
	w.must(BeginRun{})
	w.must(EndRun{})
	if k := w.lab.Link(0); k.Asked[0].Delay != 200*time.Microsecond || k.Asked[0].Loss.Rate != 0 || k.Partitioned {
		t.Errorf("%+v", k)
	}
	if k := w.lab.Link(1); k.Asked[0].Duplicate != 0 || k.Asked[1].Duplicate != 0.25 {
		t.Errorf("%+v", k)
	}
	w.refused(SwitchLink{Link: 2, Up: true}, "link c:eth1: node d is down: it was stopped")
	w.must(ResetLink{})
	w.must(ChangeNode{Node: "c", Action: topology.ResumeNode})
	w.must(Partition{[][]string{{"a"}}})
	want := []string{"a:eth0 down by a partition", "b:eth1 duplicate=25% from c", "c:eth1 down", "d:eth1 down by a partition", "d down"}
	if diff := cmp.Diff(want, w.lab.SetByHand()); diff != "" {
		t.Errorf("at last (-want +got):\n%s", diff)
	}
}

// A link that the file has down, and a command has brought up, is listed as well, and a switch that a command has stopped.
func TestSetByHandUp(t *testing.T) {
	w := built(t, strings.Replace(behindSwitch, `"s:p0"]`, `"s:p0"], down: true`, 1))
	if words := w.lab.SetByHand(); len(words) > 0 {
		t.Errorf("%q", words)
	}
	w.must(SwitchLink{Up: true})
	w.must(ChangeNode{Node: "s", Action: topology.StopNode})
	if diff := cmp.Diff([]string{"a:eth0 up", "s down"}, w.lab.SetByHand()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The command that brings back what a command has stopped or paused is known; what a run has done needs none.
func TestStateByHand(t *testing.T) {
	w := built(t, behindSwitch)
	for _, node := range []string{"a", "s"} {
		for _, c := range []struct {
			by            Source
			action, back  topology.NodeAction
			state, remedy string
		}{
			{ByHand, topology.StopNode, topology.StartNode, NodeIsDown, "ndklab start switched/" + node},
			{ByHand, topology.KillNode, topology.RestartNode, NodeIsDown, "ndklab start switched/" + node},
			{ByHand, topology.PauseNode, topology.ResumeNode, NodeIsPaused, "ndklab resume switched/" + node},
			{ByRun, topology.StopNode, topology.StartNode, "", ""},
			{ByRun, topology.PauseNode, topology.ResumeNode, "", ""},
		} {
			w.by(c.by, ChangeNode{Node: node, Action: c.action, Signal: Kill})
			if state, remedy := w.lab.StateByHand(node); state != c.state || remedy != c.remedy {
				t.Errorf("%s %s: %q, %q, want %q, %q", c.action, node, state, remedy, c.state, c.remedy)
			}
			w.by(c.by, ChangeNode{Node: node, Action: c.back})
			if state, remedy := w.lab.StateByHand(node); state != "" || remedy != "" {
				t.Errorf("%s %s: %q, %q", c.back, node, state, remedy)
			}
		}
	}
}

// A run cannot begin, nor an Apply, while another one goes on, and either can afterwards.
func TestRunsTakeTurns(t *testing.T) {
	w := built(t, square)
	w.must(BeginRun{})
	for range 2 {
		w.refused(BeginRun{}, "lab square is running its workloads already")
	}
	w.must(EndRun{})
	w.by(ByRun, ChangeNode{Node: "a", Action: topology.StopNode})
	begin := w.ask(ByHand, BeginRun{}) // which starts a again
	w.refused(BeginRun{}, "lab square is running its workloads already")
	if a := w.answer(begin); a.Err != nil || !a.Restored {
		t.Errorf("%+v", a)
	}
	w.must(EndRun{})
	w.must(BeginRun{})
}

// A run begins without nodes that commands have stopped or paused, which stay so.
func TestRunWithoutNodes(t *testing.T) {
	w := built(t, square)
	w.must(BeginRun{})
	w.must(EndRun{})
	w.must(ChangeNode{Node: "c", Action: topology.StopNode})
	w.must(ChangeNode{Node: "d", Action: topology.PauseNode})
	done := len(w.done)
	for range 2 {
		if a := w.must(BeginRun{}); !a.Restored {
			t.Error("it is the first run")
		}
		w.must(EndRun{})
	}
	if len(w.done) > done {
		t.Errorf("done: %q", w.done[done:])
	}
	w.wantConnected("ab da")
}

// A run does not begin where nodes and links cannot be as they were, and says why. Another one tries again.
func TestRunCannotRestore(t *testing.T) {
	w := built(t, square)
	w.must(BeginRun{})
	w.by(ByRun, ChangeNode{Node: "a", Action: topology.StopNode})
	w.by(ByRun, SwitchLink{Link: 1})
	w.must(EndRun{})
	w.failing("StartAgent a", Done{Err: errors.New("no")})
	w.refused(BeginRun{}, "node a is not as it was before the last run: no")
	w.failing("Connect link b:eth1", Done{Err: errors.New("no")})
	w.must(SwitchLink{Link: 2})
	w.by(ByRun, SwitchLink{Link: 1})
	w.refused(BeginRun{}, "link b:eth1 is not as it was before the last run: link b:eth1: no")
	if w.lab.Standing().Running {
		t.Error("it runs")
	}
	w.fail = nil
	w.must(SwitchLink{Link: 2, Up: true})
	w.must(BeginRun{})
	w.must(EndRun{})
	w.wantConnected("ab bc cd da")
}
