package core

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// This file is what is asked of nodes: by commands, by a run, by Apply, and by the restart policy. Of several at once for
// one node each waits for the one before.

// A nodeRequest is something that is to be done with a node.
type nodeRequest struct {
	id      uint64 // of the Ask; 0: there is none
	by      Source
	action  topology.NodeAction // of a command
	signal  Signal
	stop    string // why the node is to be stopped, if it is up; "": it is not
	start   bool   // it is to be started, if it is down by then
	revive  bool   // only if it has died, and is still to come back
	due     bool   // unless it was started meanwhile
	remove  bool   // it goes for good
	restore bool   // it comes a step nearer to what is lastingly asked of it
	was     string // the state in which the request found the node
	begun   bool
	acting  bool // an action is waited for
	ending  bool // the end of the node is waited for
	// done is called once, when the request is done and a node that it has started is ready.
	done func(r *nodeRequest, err error)
}

// ask puts a request behind the others.
func (n *node) request(r *nodeRequest) {
	n.requests = append(n.requests, r)
	n.schedule()
}

// changeNode takes a command.
func (l *Lab) changeNode(a Ask, c ChangeNode) {
	n, err := l.withProcesses(c.Node)
	if err != nil {
		l.answer(Answer{ID: a.ID, Err: err})
		return
	}
	r := &nodeRequest{id: a.ID, by: a.By, action: c.Action, signal: c.Signal, done: func(r *nodeRequest, err error) {
		l.answer(Answer{ID: a.ID, Err: err, Was: r.was, Is: l.Node(c.Node)})
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
		l.answer(Answer{ID: a.ID, Err: failure.Errorf(failure.Usage, "unknown action %q", c.Action)})
		return
	}
	n.request(r)
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
			n.beginRequest(r)
		}
		if len(n.requests) == 0 || n.requests[0] != r {
			continue
		}
		switch idle := n.phase == absent || n.phase == up; {
		case r.acting || !idle || r.ending && n.phase == up:
			return
		case r.ending && r.start:
			r.ending = false
			n.start()
		default:
			n.finishRequest(r, n.failed)
		}
	}
}

// beginRequest begins what a request asks for.
func (n *node) beginRequest(r *nodeRequest) {
	n.failed = nil
	switch {
	case n.removed:
		n.finishRequest(r, failure.Errorf(failure.Usage, "node %s is in the lab no more", n.spec.Name))
	case r.action == topology.KillNode:
		n.kill(r)
	case r.action == topology.PauseNode:
		n.pause(r)
	case r.action == topology.ResumeNode:
		n.resume(r)
	case r.restore:
		n.beginRestore(r)
	case r.due && (!n.due || n.down() && n.reason != notStarted && n.reason != changed): // what stopped it meanwhile has its way
		n.due = false
		n.finishRequest(r, nil)
	case r.revive && (!n.down() || !n.spec.Restart):
		n.finishRequest(r, nil)
	case r.stop != "":
		n.reviveAt, r.ending = 0, true
		if !n.down() {
			n.stop(r.stop)
		}
	case !n.down():
		n.finishRequest(r, n.alive())
	default:
		n.start()
	}
}

// finishRequest ends a request. Who has started the node waits for it to be ready.
func (n *node) finishRequest(r *nodeRequest, err error) {
	n.requests = n.requests[1:]
	n.schedule()
	if err == nil {
		n.note(r)
	}
	if err == nil && r.remove {
		n.removed = true
	}
	if err == nil && r.start && n.phase == up {
		if !n.stages.settled {
			n.waiting = append(n.waiting, r)
			return
		}
		err = n.stages.err
	}
	r.done(r, err)
}

// kill sends a signal to the agent of a node. One that is paused takes SIGKILL alone.
func (n *node) kill(r *nodeRequest) {
	if err := n.alive(); err != nil && (n.down() || r.signal != Kill) {
		n.finishRequest(r, err)
		return
	}
	n.act(r, SignalAgent{n.of(), r.signal}, func(err error) error {
		r.ending = err == nil && r.signal == Kill
		return err
	})
}

// pause stops the processes of a node. From its beginning requests are refused that nobody would answer.
func (n *node) pause(r *nodeRequest) {
	if err := n.alive(); err != nil {
		n.finishRequest(r, err)
		return
	}
	n.paused = true
	n.act(r, PauseAgent{n.of()}, func(err error) error {
		if err != nil {
			n.paused = false
			return err
		}
		n.lab.tell(Tell{Kind: NodePaused, Node: n.spec.Name, Text: fmt.Sprintf("node %s is paused", n.spec.Name)})
		return nil
	})
}

// resume has the processes of a node that is paused go on.
func (n *node) resume(r *nodeRequest) {
	switch err := n.alive(); {
	case err == nil:
		n.finishRequest(r, failure.Errorf(failure.Usage, "node %s is not paused", n.spec.Name))
		return
	case n.down():
		n.finishRequest(r, err)
		return
	}
	n.act(r, ResumeAgent{n.of()}, func(err error) error {
		if err != nil {
			return err
		}
		n.paused = false
		n.lab.tell(Tell{Kind: NodeResumed, Node: n.spec.Name, Text: fmt.Sprintf("node %s goes on", n.spec.Name)})
		return nil
	})
}

// act does the action that a request is, and ends the request with what then makes of the result, unless that has more to
// wait for.
func (n *node) act(r *nodeRequest, a Action, then func(error) error) {
	r.acting = true
	n.doIn(a, func(d Done) {
		r.acting = false
		if err := then(d.Err); err != nil || !r.ending {
			n.finishRequest(r, err)
		}
	})
}

// How long a node whose agent has died waits before it is started again: each time twice as long as before, until it has
// lived for a while. These are Docker's times.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = time.Minute
	recovered  = 10 * time.Second // a life of this length was no failure of the start
)

// reviveLater has a node started again whose life has ended by itself, if the topology wants that, and says in words when.
func (n *node) reviveLater(lived time.Duration) string {
	if n.lab.building != nil || !n.spec.Restart || n.removed {
		return ""
	}
	n.delay = min(2*n.delay, maxDelay)
	if n.delay == 0 || lived >= recovered {
		n.delay = firstDelay
	}
	n.reviveAt = n.lab.now + n.delay
	n.lab.timed(n)
	return fmt.Sprintf("; it is started again in %v", n.delay)
}

// revive starts a node again that nobody has asked for since it died.
func (n *node) revive() {
	n.reviveAt = 0
	n.request(&nodeRequest{by: ByRun, start: true, revive: true, done: func(_ *nodeRequest, err error) {
		if err == nil || n.stages.err == err { // which has been told
			return
		}
		words := ""
		if n.down() {
			words = n.reviveLater(0)
		}
		n.lab.tell(Tell{Kind: Warning, Node: n.spec.Name, Text: fmt.Sprintf("node %s does not start as it should: %v%s", n.spec.Name, err, words)})
	}})
}
