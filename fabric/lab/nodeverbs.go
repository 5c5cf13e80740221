package lab

import (
	"context"
	"syscall"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file is how commands stop, start and kill nodes, at both ends of the lab's
// channel. Of two at once for one node, the second waits for the first.

// An Action is what a command does to a node.
type Action string

// The actions.
const (
	StopNode    Action = "stop"    // switch it off
	StartNode   Action = "start"   // switch it on
	RestartNode Action = "restart" // both
	KillNode    Action = "kill"    // send its agent a signal, as a crash would
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
// to. To stop a node that is down and to start one that is up changes nothing.
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
	change := new(NodeChange)
	if err := l.call(ctx, methodChange, params, change); err != nil {
		return nil, err
	}
	return change, nil
}

// change answers methodChange.
func (s *Supervisor) change(ctx context.Context, r *control.Request) (*NodeChange, error) {
	var params changeParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	n, err := s.labNode(params.Node)
	if err != nil {
		return nil, err
	}
	if err := n.lock(ctx); err != nil {
		return nil, err
	}
	change := &NodeChange{Lab: s.name, Was: n.status().State}
	// A command that is interrupted now must not leave half a node.
	err = s.act(context.WithoutCancel(ctx), n, params)
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

// act does an action. The caller has the right to change the node.
func (s *Supervisor) act(ctx context.Context, n *labNode, params changeParams) error {
	const stopped = "it was stopped"
	l, down := n.alive()
	switch params.Action {
	case StopNode:
		if down == nil {
			s.stop(n, stopped)
		}
		return nil
	case StartNode:
		if down == nil {
			return nil
		}
		return s.startAgain(ctx, n)
	case RestartNode:
		if down == nil {
			s.stop(n, stopped)
		}
		return s.startAgain(ctx, n)
	case KillNode:
		if down != nil {
			return down
		}
		if err := l.agent.Send(params.Signal); err != nil {
			return err
		}
		if params.Signal == unix.SIGKILL {
			<-l.over
		}
		return nil
	}
	return control.Errorf(control.Usage, "unknown action %q", params.Action)
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
