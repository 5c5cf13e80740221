package lab

import (
	"context"
	"os"
	"syscall"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// This file changes nodes and runs programs in them for commands, at both ends of the lab's channel.
// Of two changes to one node at once, the second waits for the first.

// An Action names an operation of a command on a node.
type Action = topology.NodeAction

// The actions.
const (
	StopNode    = topology.StopNode    // switch it off
	StartNode   = topology.StartNode   // switch it on
	RestartNode = topology.RestartNode // both
	KillNode    = topology.KillNode    // send its agent a signal: SIGKILL is a crash
	PauseNode   = topology.PauseNode   // stop all its processes where they are
	ResumeNode  = topology.ResumeNode  // have them go on
)

// A NodeChange tells what an action has done.
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
func (n Nodes) Change(ctx context.Context, nodeName string, action Action) (*NodeChange, error) {
	return call(ctx, n.session, methodChange, changeParams{Node: nodeName, Action: action})
}

// Kill sends a signal to a node's agent, whose end is the node's. SIGKILL is a crash: Kill
// returns when the node is down. The topology says whether it is started again. Of another
// signal Kill does not wait for the outcome.
func (n Nodes) Kill(ctx context.Context, nodeName string, sig syscall.Signal) (*NodeChange, error) {
	return call(ctx, n.session, methodChange, changeParams{Node: nodeName, Action: KillNode, Signal: sig})
}

// Exec runs a command in a node, with files as its standard input, output and
// error, and returns its exit status as shells do; see node.Agent.Exec. The
// command's process group is killed when ctx ends, or this process. cmd.ID, which
// may be empty, names the command for Signal and is the caller's to choose.
func (n Nodes) Exec(ctx context.Context, nodeName string, cmd node.Command, files ...*os.File) (status int, err error) {
	return call(ctx, n.session, methodExec, execParams{Node: nodeName, Command: cmd}, files...)
}

// Signal sends a signal to the process group of a command that Exec of this Lab
// runs.
func (n Nodes) Signal(ctx context.Context, nodeName, id string, sig syscall.Signal) error {
	return n.whyEnded(methodSignal.Call(ctx, n.conn, signalParams{Node: nodeName, ID: id, Signal: sig}))
}

// change answers methodChange.
func (a *nodeAPI) change(ctx context.Context, _ *control.Request, params changeParams) (*NodeChange, error) {
	answer, err := a.ask(ctx, core.ByHand, core.ChangeNode{Node: params.Node, Action: params.Action, Signal: core.Signal(params.Signal)})
	if err != nil {
		return nil, err
	}
	return &NodeChange{Lab: a.lab, Was: answer.Was, NodeState: stateOfNode(params.Node, answer.Is), Restarts: answer.Is.Restarts}, nil
}
