package core

import (
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// Nodes are asked for something by commands, by a run, by Apply, and by the restart policy. Of several requests for one node
// each waits for the one before.

// A nodeRequest is something that is to be done with a node.
type nodeRequest struct {
	node    *node
	id      uint64 // of the Ask; 0: there is none
	by      Source
	action  topology.NodeAction // of a command
	signal  Signal
	stop    string // why the node is to be stopped, if it is up; "": it is not to be
	start   bool   // the node is to be started, if it is down then
	policy  bool   // from the restart policy: only if the node is still down
	pending bool   // from an Apply: only if the start is still pending
	remove  bool   // the node leaves the lab
	restore bool   // the node takes one step towards what is lastingly asked of it
	was     string // the state in which the request found the node
	begun   bool
	acting  bool // an action is waited for
	ending  bool // the end of the node's life is waited for
	// done is called once, when the request is done and a node that it has started is ready.
	done func(r *nodeRequest, err error)
}

// Texts on nodes and switches that are paused: in events, and in errors of requests that they refuse.
const (
	nodePaused  = "node %s is paused"
	nodeResumed = "node %s goes on"
	notPaused   = "node %s is not paused"
)

func unknownAction(action topology.NodeAction) error {
	return failure.Errorf(failure.Usage, "unknown action %q", action)
}

// leftLab returns why nothing can be asked of a node that an Apply has removed.
func leftLab(name string) error {
	return failure.Errorf(failure.Usage, "node %s is in the lab no more", name)
}

// checkAlive returns an error if a node or switch is down, which has a reason, or paused.
func checkAlive(name, reason string, paused bool) error {
	switch {
	case reason != "":
		return failure.Errorf(failure.Usage, "node %s is down: %s", name, reason)
	case paused:
		return failure.Errorf(failure.Usage, nodePaused, name)
	}
	return nil
}

// request puts a request behind the others.
func (n *node) request(r *nodeRequest) {
	r.node = n
	n.requests = append(n.requests, r)
	n.schedule()
}

// change takes ChangeNode.
func (n *node) change(a Ask, c ChangeNode) error {
	r := &nodeRequest{id: a.ID, by: a.By, action: c.Action, signal: c.Signal, done: func(r *nodeRequest, err error) {
		n.lab.answer(Answer{ID: a.ID, Err: err, Was: r.was, Is: n.lab.Node(c.Node)})
	}}
	switch c.Action {
	case topology.StopNode:
		r.stop = stopped
	case topology.StartNode:
		r.start = true
	case topology.RestartNode:
		r.stop, r.start = stopped, true
	case topology.KillNode, topology.PauseNode, topology.ResumeNode:
	default:
		return unknownAction(c.Action)
	}
	n.request(r)
	return nil
}

// advanceRequests goes on with the first request, and begins it when no other life is under way.
func (n *node) advanceRequests() {
	for len(n.requests) > 0 {
		r := n.requests[0]
		if !r.begun && (n.phase != absent && n.phase != up || n.busy) {
			return
		}
		if !r.begun {
			r.begun, r.was = true, n.lab.Node(n.spec.Name).State
			r.begin()
		}
		if len(n.requests) == 0 || n.requests[0] != r {
			continue
		}
		switch idle := n.phase == absent || n.phase == up; {
		case r.acting || !idle || r.ending && n.phase == up:
			return
		case r.ending && r.start && n.lost == "":
			r.ending = false
			n.start()
		case r.ending && r.start:
			r.finish(checkLost(n.spec.Name, n.lost))
		default:
			r.finish(n.failed)
		}
	}
}

// begin begins what the request asks for.
func (r *nodeRequest) begin() {
	n := r.node
	n.failed = nil
	switch {
	case n.removed:
		r.finish(leftLab(n.spec.Name))
	case r.start && n.lost != "":
		r.finish(checkLost(n.spec.Name, n.lost))
	case r.action == topology.KillNode:
		r.kill()
	case r.action == topology.PauseNode:
		r.pause()
	case r.action == topology.ResumeNode:
		r.resume()
	case r.restore:
		r.restoreStep()
	// A stop meanwhile prevails over the start.
	case r.pending && (!n.startPending || n.down() && n.reason != notStarted && n.reason != changed):
		n.startPending = false
		r.finish(nil)
	case r.policy && (!n.down() || !n.spec.Restart):
		r.finish(nil)
	case r.stop != "":
		r.ending = true
		n.policy.timer.stop()
		if !n.down() {
			n.stop(r.stop)
		}
	case !n.down():
		r.finish(n.alive())
	default:
		n.start()
	}
}

// finish ends the request. One that has started the node waits until it is ready.
func (r *nodeRequest) finish(err error) {
	n := r.node
	n.requests = n.requests[1:]
	n.schedule()
	if err == nil {
		n.lasting.record(r.by, r.action, n.down() && !n.spec.Restart)
		n.removed = n.removed || r.remove
	}
	if err == nil && r.start && n.phase == up {
		if !n.stages.finished {
			n.waiting = append(n.waiting, r)
			return
		}
		err = n.stages.err
	}
	r.done(r, err)
}

// kill sends a signal to the agent of the node. While the node is paused only SIGKILL can be sent.
func (r *nodeRequest) kill() {
	n := r.node
	if err := n.alive(); err != nil && (n.down() || r.signal != Kill) {
		r.finish(err)
		return
	}
	r.act(SignalAgent{n.of(), r.signal}, func(err error) error {
		r.ending = err == nil && r.signal == Kill
		return err
	})
}

// pause stops the processes of the node. From now on the node refuses what its processes would not answer.
func (r *nodeRequest) pause() {
	n := r.node
	if err := n.alive(); err != nil {
		r.finish(err)
		return
	}
	n.paused = true
	n.pauses++
	r.act(PauseAgent{n.of()}, func(err error) error {
		if err != nil {
			n.paused = false
			return err
		}
		n.notify(event.NodePaused, nodePaused, n.spec.Name)
		return nil
	})
}

// resume has the processes of the node go on, which is paused.
func (r *nodeRequest) resume() {
	n := r.node
	switch err := n.alive(); {
	case err == nil:
		r.finish(failure.Errorf(failure.Usage, notPaused, n.spec.Name))
		return
	case n.down():
		r.finish(err)
		return
	}
	r.act(ResumeAgent{n.of()}, func(err error) error {
		if err != nil {
			return err
		}
		n.paused = false
		n.notify(event.NodeResumed, nodeResumed, n.spec.Name)
		return nil
	})
}

// act does the action that the request asks for, and then ends the request with the error that then makes of the result. A
// request that waits for the end of the node's life goes on if there is no error.
func (r *nodeRequest) act(a Action, then func(error) error) {
	r.acting = true
	r.node.do(a, func(d Done) {
		r.acting = false
		if err := then(d.Err); err != nil || !r.ending {
			r.finish(err)
		}
	})
}
