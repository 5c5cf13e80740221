package lab

import (
	"context"
	"syscall"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file is how commands stop, start, kill and pause nodes, at both ends of the lab's
// channel. Of two at once for one node, the second waits for the first.

// An Action is what a command does to a node.
type Action = topology.NodeAction

// The actions.
const (
	StopNode    = topology.StopNode    // switch it off
	StartNode   = topology.StartNode   // switch it on
	RestartNode = topology.RestartNode // both
	KillNode    = topology.KillNode    // send its agent a signal: SIGKILL is what a crash is
	PauseNode   = topology.PauseNode   // stop all its processes where they are
	ResumeNode  = topology.ResumeNode  // have them go on
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
func (a *nodeAPI) change(ctx context.Context, _ *control.Request, params changeParams) (*NodeChange, error) {
	answer, err := a.ask(ctx, core.ByHand, core.ChangeNode{Node: params.Node, Action: params.Action, Signal: core.Signal(params.Signal)})
	if err != nil {
		return nil, err
	}
	return &NodeChange{Lab: a.lab, Was: answer.Was, NodeState: stateOfNode(params.Node, answer.Is), Restarts: answer.Is.Restarts}, nil
}
