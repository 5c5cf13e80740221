package lab

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file is how commands stop, start, kill and pause nodes, at both ends of the lab's
// channel. Of two at once for one node, the second waits for the first.

// An Action is what a command does to a node.
type Action string

// The actions.
const (
	StopNode    Action = "stop"    // switch it off
	StartNode   Action = "start"   // switch it on
	RestartNode Action = "restart" // both
	KillNode    Action = "kill"    // send its agent a signal: SIGKILL is what a crash is
	PauseNode   Action = "pause"   // stop all its processes where they are
	ResumeNode  Action = "resume"  // have them go on
)

// A NodeChange is what an action has done.
type NodeChange struct {
	Lab string `json:"lab"`
	Was string `json:"was"` // the state before
	report.NodeState
	Restarts int `json:"restarts"` // how often the node was started again
}

// Change does something to a node, a host or a router. It returns when that is done:
// a node that was started is ready, its links carry packets as they were last asked
// to. To stop a node that is down and to start one that is up changes nothing; to
// pause one that is paused, to resume one that is not, and to start one that is
// paused are errors.
func (l *Lab) Change(ctx context.Context, nodeName string, action Action) (*NodeChange, error) {
	return l.change(ctx, changeParams{Node: nodeName, Action: action})
}

// Kill sends a signal to a node's agent, whose end is the node's: SIGKILL is what a
// crash is, upon which it returns when the node is down. Whether it is started again
// says the topology. Of another signal it does not wait for what comes of it.
func (l *Lab) Kill(ctx context.Context, nodeName string, sig syscall.Signal) (*NodeChange, error) {
	return l.change(ctx, changeParams{Node: nodeName, Action: KillNode, Signal: sig})
}

func (l *Lab) change(ctx context.Context, params changeParams) (*NodeChange, error) {
	return call(ctx, l, methodChange, params)
}

// change answers methodChange.
func (s *Supervisor) change(ctx context.Context, _ *control.Request, params changeParams) (*NodeChange, error) {
	return s.changeNode(ctx, byHand, params)
}

// changeNode does an action to a node.
func (s *Supervisor) changeNode(ctx context.Context, by source, params changeParams) (*NodeChange, error) {
	s, n, err := s.hold(ctx, params.Node)
	if err != nil {
		return nil, err
	}
	change := &NodeChange{Lab: s.name, Was: n.status().State}
	// A command that is interrupted now must not leave half a node.
	err = s.act(context.WithoutCancel(ctx), n, params)
	if err == nil {
		n.noteAction(by, params)
	}
	n.unlock()
	if err == nil && (params.Action == StartNode || params.Action == RestartNode) {
		err = n.settled(ctx)
	}
	if err != nil {
		return nil, err
	}
	change.NodeState = n.status()
	n.mu.Lock()
	defer n.mu.Unlock()
	change.Restarts = n.restarts
	return change, nil
}

// stopped is the reason why a node is down that a command has stopped.
const stopped = "it was stopped"

// act does an action. The caller has the right to change the node.
func (s *Supervisor) act(ctx context.Context, n *labNode, params changeParams) error {
	state := n.status()
	switch params.Action {
	case StopNode:
		if state.State != nodeDown {
			s.stop(n, stopped)
		}
		n.reviver.Cancel() // also of a life that ended just before it was stopped
		return nil
	case StartNode:
		if state.State == nodeReady {
			return nil
		}
		if state.State == nodeDown {
			return s.startAgain(ctx, n)
		}
		_, err := n.alive()
		return err
	case RestartNode:
		if state.State != nodeDown {
			s.stop(n, stopped)
		}
		return s.startAgain(ctx, n)
	case KillNode:
		return s.kill(n, params.Signal)
	case PauseNode:
		return s.pause(ctx, n)
	case ResumeNode:
		return s.resume(ctx, n)
	}
	return control.Errorf(control.Usage, "unknown action %q", params.Action)
}

// kill sends a signal to the agent of a node. One that is paused takes SIGKILL alone.
func (s *Supervisor) kill(n *labNode, sig syscall.Signal) error {
	l := n.current()
	if _, err := n.alive(); err != nil && (isClosed(l.down) || sig != unix.SIGKILL) {
		return err
	}
	n.mu.Lock()
	l.signal = sig
	n.mu.Unlock()
	if err := l.agent.Send(sig); err != nil {
		return err
	}
	if sig == unix.SIGKILL {
		<-l.over
	}
	return nil
}

// pause stops the processes of a node. From its beginning requests are refused that
// nobody would answer.
func (s *Supervisor) pause(ctx context.Context, n *labNode) error {
	l, err := n.alive()
	if err != nil {
		return err
	}
	n.setPaused(true)
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := l.agent.Pause(ctx); err != nil {
		n.setPaused(false)
		return mute(err)
	}
	s.Publish(Event{Kind: NodePaused, Node: n.spec.Name, Text: fmt.Sprintf("node %s is paused", n.spec.Name)})
	return nil
}

// resume has the processes of a node that is paused go on.
func (s *Supervisor) resume(ctx context.Context, n *labNode) error {
	if _, err := n.alive(); err == nil {
		return control.Errorf(control.Usage, "node %s is not paused", n.spec.Name)
	} else if isClosed(n.current().down) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := n.current().agent.Resume(ctx); err != nil {
		return mute(err)
	}
	n.setPaused(false)
	s.Publish(Event{Kind: NodeResumed, Node: n.spec.Name, Text: fmt.Sprintf("node %s goes on", n.spec.Name)})
	return nil
}

// mute says of an agent that did not answer in time that this is so.
func mute(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("its agent does not answer within %v: %w", answerTime, err)
	}
	return err
}

func (n *labNode) setPaused(paused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = paused
}

// labNode is the host or router of that name, whatever its state.
func (s *Supervisor) labNode(name string) (*labNode, error) {
	n := s.byName[name]
	switch {
	case s.switches[name] != nil:
		return nil, control.Errorf(control.Usage, "%s is a %s: it has no processes", name, topology.Switch)
	case n == nil:
		return nil, control.Errorf(control.Usage, "lab %s has no node %q", s.name, name)
	}
	return n, nil
}
