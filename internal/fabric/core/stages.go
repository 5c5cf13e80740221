package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// This file takes nodes through their stages: their files, their commands, whom they wait for, and their health.

// Stages are how far a life has come.
type stages struct {
	steps   []step         // that are still to be taken
	reached topology.Stage // "" if none is
	doing   string         // what the node is at, for people; "" is nothing
	running string         // the command that runs; "" is none
	settled bool           // no step is left, or one has failed
	err     error          // that failed
}

// A step is one thing to do: the only field that is not zero says what.
type step struct {
	place     bool           // put the files in place
	run       string         // run a command
	configure bool           // have the node configured, which its phase does
	wait      *topology.Wait // wait for another node
	check     bool           // wait for the healthcheck
	reach     topology.Stage
}

func newStages(s *topology.Setup) stages {
	var all []step
	run := func(stage topology.Stage) {
		for _, e := range s.Exec {
			if e.Stage == stage {
				all = append(all, step{run: e.Command})
			}
		}
	}
	if len(s.Files) > 0 {
		all = append(all, step{place: true})
	}
	run(topology.Created)
	all = append(all, step{reach: topology.Created}, step{configure: true}, step{reach: topology.Configured})
	for i := range s.WaitFor {
		all = append(all, step{wait: &s.WaitFor[i]})
	}
	run(topology.Configured)
	all = append(all, step{reach: topology.Executed})
	if s.Healthcheck != nil {
		all = append(all, step{check: true})
	}
	run(topology.Healthy)
	return stages{steps: append(all, step{reach: topology.Healthy})}
}

// has reports whether a stage is reached.
func (s *stages) has(stage topology.Stage) bool {
	return s.reached != "" && slices.Index(topology.Stages, s.reached) >= slices.Index(topology.Stages, stage)
}

// advanceStages takes the steps of a node that can be taken, and reports whether it is to be configured now.
func (n *node) advanceStages() (configure bool) {
	s := &n.stages
	for !n.busy && !s.settled {
		if len(s.steps) == 0 {
			n.finishStages(nil)
			return false
		}
		switch next := s.steps[0]; {
		case next.place:
			s.doing = "puts its files in place"
			n.work(PlaceFiles{n.of()}, func(Done) { s.take() })
		case next.run != "":
			n.execute(next.run)
		case next.configure && n.phase == furnishing:
			return true
		case next.configure:
			s.take()
		case next.reach != "":
			s.take()
			s.reached = next.reach
			n.lab.wake()
		case next.wait != nil:
			if !n.waited(next.wait) {
				return false
			}
		case next.check:
			if !n.checked() {
				return false
			}
		}
	}
	return false
}

// take notes that a step was taken.
func (s *stages) take() { s.steps, s.doing, s.running = s.steps[1:], "", "" }

// execute runs a command of a node.
func (n *node) execute(command string) {
	s := &n.stages
	s.doing, s.running = "runs "+brief(command), command
	n.busy = true
	in := n.phase
	n.doIn(Execute{n.of(), command}, func(d Done) {
		if n.phase != in {
			return // its end came first
		}
		n.busy = d.Agent // AgentEnded is about to come
		var err error
		switch {
		case d.Agent:
			return
		case d.Err != nil:
			err = fmt.Errorf("%s: %w", brief(command), d.Err)
		case d.Status != 0:
			text := fmt.Sprintf("node %s: %s ended with status %d", n.spec.Name, brief(command), d.Status)
			if len(d.Output) > 0 {
				text += ", having written:\n  " + strings.Join(d.Output, "\n  ")
			}
			err = failure.Errorf(failure.Unmet, "%s", text)
		}
		switch {
		case err == nil:
			s.take()
		case in == furnishing:
			n.abortStart(err)
		default:
			n.finishStages(err)
		}
	})
}

// waited takes the step of waiting for another node, if that has come far enough.
func (n *node) waited(w *topology.Wait) bool {
	n.stages.doing = fmt.Sprintf("waits for %s to be %s", w.Node, w.Stage)
	other := n.lab.byName[w.Node]
	if other == nil { // an Apply has removed it
		n.stages.take()
		return true
	}
	var never error
	switch s := &other.stages; {
	case other.down() && !other.due && !other.owed && other.reason != notStarted:
		never = failure.Errorf(failure.Unmet, "node %s is down: %s", w.Node, other.reason)
	case other.down():
	case s.has(w.Stage):
		n.stages.take()
		return true
	case s.settled:
		never = s.err
	}
	if never != nil {
		n.finishStages(fmt.Errorf("node %s waits for %s: %w", n.spec.Name, w.Node, never))
	}
	return false
}

// wake has the nodes looked at that wait for others.
func (l *Lab) wake() {
	for _, n := range l.nodes {
		if !n.stages.settled && len(n.stages.steps) > 0 && n.stages.steps[0].wait != nil {
			n.schedule()
		}
	}
}

// finishStages ends the way of a node through its stages. A lab that is being built comes to nothing by an error; else it goes on
// without the node, and says so.
func (n *node) finishStages(err error) {
	s := &n.stages
	if s.settled {
		return
	}
	s.settled, s.err = true, err
	s.doing, s.running = "", ""
	n.lab.wake()
	if err != nil && n.lab.building != nil {
		n.lab.buildFailed(notReady, err)
		return
	}
	if err != nil && !n.down() {
		n.lab.tell(Tell{Kind: Warning, Node: n.spec.Name, Text: err.Error()})
	}
	for _, r := range n.waiting {
		r.done(r, err)
	}
	n.waiting = nil
}

// brief is a command for messages: its first line, if that is not long.
func brief(command string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(command), "\n")
	const most = 60 // characters
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most])
	}
	if line != strings.TrimSpace(command) {
		line += "..."
	}
	return fmt.Sprintf("%q", line)
}
