package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// stages take a node through one life: its files, its commands, the nodes it waits for, and its health.
type stages struct {
	node     *node
	steps    []step         // still to be taken
	reached  topology.Stage // "" if none is
	doing    string         // what the node is doing, for people; "" is nothing
	running  string         // the command that runs; "" is none
	finished bool           // no step is left, or one has failed
	err      error          // why it has failed
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

func newStages(n *node) stages {
	s := &n.spec.Setup
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
	return stages{node: n, steps: append(all, step{reach: topology.Healthy})}
}

// has reports whether a stage is reached.
func (s *stages) has(stage topology.Stage) bool {
	return s.reached != "" && slices.Index(topology.Stages, s.reached) >= slices.Index(topology.Stages, stage)
}

// advance takes the steps that can be taken, and reports whether the node is to be configured now.
func (s *stages) advance() (configure bool) {
	n := s.node
	for !n.busy && !s.finished {
		if len(s.steps) == 0 {
			s.finish(nil)
			return false
		}
		switch next := s.steps[0]; {
		case next.place:
			s.doing = "puts its files in place"
			n.work(PlaceFiles{n.of()}, func(Done) { s.taken() })
		case next.run != "":
			s.execute(next.run)
		case next.configure && n.phase == preparing:
			return true
		case next.configure:
			s.taken()
		case next.reach != "":
			s.taken()
			s.reached = next.reach
			n.lab.scheduleWaiting()
		case next.wait != nil:
			if !s.waited(next.wait) {
				return false
			}
		case next.check:
			if !s.checked() {
				return false
			}
		}
	}
	return false
}

// taken notes that the first step was taken.
func (s *stages) taken() { s.steps, s.doing, s.running = s.steps[1:], "", "" }

// execute runs a command of the node.
func (s *stages) execute(command string) {
	n := s.node
	s.doing, s.running = "runs "+firstLine(command), command
	n.busy = true
	in := n.phase
	n.do(Execute{n.of(), command}, func(d Done) {
		if n.phase != in {
			return // the life has ended before
		}
		n.busy = d.Agent // AgentEnded is about to come
		var err error
		switch {
		case d.Agent:
			return
		case d.Err != nil:
			err = fmt.Errorf("%s: %w", firstLine(command), d.Err)
		case d.Status != 0:
			text := fmt.Sprintf("node %s: %s ended with status %d", n.spec.Name, firstLine(command), d.Status)
			if len(d.Output) > 0 {
				text += ", having written:\n  " + strings.Join(d.Output, "\n  ")
			}
			err = failure.Errorf(failure.Unmet, "%s", text)
		}
		switch {
		case err == nil:
			s.taken()
		case in == preparing:
			n.abort(err)
		default:
			s.finish(err)
		}
	})
}

// waited takes the step of waiting for another node if that node has come far enough, and reports whether it has. The
// stages finish with an error if it never will.
func (s *stages) waited(w *topology.Wait) bool {
	s.doing = fmt.Sprintf("waits for %s to be %s", w.Node, w.Stage)
	other := s.node.lab.byName[w.Node]
	if other == nil { // an Apply has removed it
		s.taken()
		return true
	}
	var never error
	switch {
	case other.down() && !other.startPending && !other.required && other.reason != notStarted:
		never = failure.Errorf(failure.Unmet, "node %s is down: %s", w.Node, other.reason)
	case other.down():
	case other.stages.has(w.Stage):
		s.taken()
		return true
	case other.stages.finished:
		never = other.stages.err
	}
	if never != nil {
		s.finish(fmt.Errorf("node %s waits for %s: %w", s.node.spec.Name, w.Node, never))
	}
	return false
}

// checked takes the step of waiting for the healthcheck if the node is healthy, and reports whether it is. The stages
// finish with an error if it is unhealthy. The checks go on to the end of its life.
func (s *stages) checked() bool {
	switch h := &s.node.health; h.state {
	case "":
		s.doing = "is checked by its healthcheck"
		h.begin()
	case Unhealthy:
		s.finish(failure.Errorf(failure.Unmet, "node %s is unhealthy: %s", s.node.spec.Name, h.output))
	case Healthy:
		s.taken()
		return true
	}
	return false
}

// finish ends the stages. An error ends a lab that is being built. A lab that is up goes on without the node, and warns
// everyone.
func (s *stages) finish(err error) {
	n := s.node
	if s.finished {
		return
	}
	s.finished, s.err = true, err
	s.doing, s.running = "", ""
	n.lab.scheduleWaiting()
	if b := n.lab.building; err != nil && b != nil {
		b.fail(notReady, err)
		return
	}
	if err != nil && !n.down() {
		n.notify(event.Warning, "%v", err)
	}
	for _, r := range n.waiting {
		r.done(r, err)
	}
	n.waiting = nil
}

// scheduleWaiting adds the nodes that wait for others to the worklist.
func (l *Lab) scheduleWaiting() {
	for _, n := range l.nodes {
		if s := &n.stages; !s.finished && len(s.steps) > 0 && s.steps[0].wait != nil {
			n.schedule()
		}
	}
}

// firstLine formats a command for messages: its first line, of which it shows no more than 60 characters.
func firstLine(command string) string {
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
