package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// A bridge is a switch. While it is down or paused, all its ports are down: the links there carry nothing, and their other
// ends lose the carrier.
type bridge struct {
	lab       *Lab
	spec      *topology.Node
	made      bool
	removed   bool        // it has left the lab
	busy      bool        // an action is under way
	onRemoved func(error) // is called when the switch has been removed, or could not be; nil: it is not to be removed

	reason   string // why it is down; "" while it is up
	lost     string // why nothing starts it again, which is its reason, too; "": its host is there
	paused   bool
	restarts int // counts how often it was started again
	lasting  nodeAsked
	requests []*bridgeRequest // the first may have begun
}

// A bridgeRequest asks for another state of a switch. Of several for one switch each waits for the one before.
type bridgeRequest struct {
	id     uint64 // of the Ask; 0: there is none
	by     Source
	begun  bool
	action topology.NodeAction // "" is to bring the switch back to what is lastingly asked of it
	was    string              // the state in which the request found the switch
	left   int                 // links that do not do yet what the state asks of them
	err    error
	// done is called once, when the links do what comes of the state.
	done func(r *bridgeRequest, err error)
}

// advance makes the switch if it is to be there, or removes it, whose links have gone.
func (b *bridge) advance() {
	switch {
	case b.busy:
	case b.onRemoved != nil && !b.made:
		b.onRemoved(nil)
	case b.onRemoved != nil:
		b.busy = true
		b.lab.do(RemoveSwitch{b.spec}, func(d Done) {
			b.busy, b.made = false, d.Err != nil
			b.onRemoved(d.Err)
		})
	case !b.made && b.lost == "":
		b.busy = true
		b.lab.do(MakeSwitch{b.spec}, func(d Done) { b.makingDone(d.Err) })
	}
}

// makingDone takes the result of MakeSwitch.
func (b *bridge) makingDone(err error) {
	b.busy, b.made = false, err == nil
	switch l := b.lab; {
	case err != nil && l.building != nil:
		l.building.fail("make the switches", err)
	case err != nil:
		l.applying.fail(err) // the next one tries again
	case b.onRemoved != nil:
		b.advance()
	default:
		for _, k := range b.links() {
			k.schedule()
		}
	}
}

// links returns the links at the switch's ports.
func (b *bridge) links() (links []*link) {
	for _, i := range b.spec.Interfaces {
		links = append(links, b.lab.links[i.Link])
	}
	return links
}

// forwards reports whether the switch is neither down nor paused.
func (b *bridge) forwards() bool { return b.reason == "" && !b.paused }

// status returns the state of the switch.
func (b *bridge) status() NodeStatus {
	s := NodeStatus{State: NodeIsReady, Reason: b.reason, Restarts: b.restarts}
	switch {
	case b.reason != "":
		s.State = NodeIsDown
	case b.paused:
		s.State = NodeIsPaused
	}
	return s
}

// change takes ChangeNode.
func (b *bridge) change(a Ask, c ChangeNode) error {
	if c.Action == topology.KillNode && c.Signal != Kill {
		return failure.Errorf(failure.Usage, "%s is a %s: it has no processes, and takes no signal but SIGKILL", c.Node, topology.Switch)
	}
	b.request(&bridgeRequest{id: a.ID, by: a.By, action: c.Action, done: func(r *bridgeRequest, err error) {
		answer := Answer{ID: a.ID, Err: err, Was: r.was, Is: b.status()}
		if err != nil || !b.forwards() || a.By == ByRun {
			b.lab.answer(answer)
			return
		}
		b.lab.awaitSpanningTree(b.links(), func(err error) {
			answer.Err = err
			b.lab.answer(answer)
		})
	}})
	return nil
}

// act changes the state of the switch. As with nodes, to stop a switch that is down and to start one that is up changes
// nothing.
func (b *bridge) act(action topology.NodeAction) error {
	err := checkAlive(b.spec.Name, b.reason, b.paused)
	if lost := checkLost(b.spec.Name, b.lost); lost != nil && (action == topology.StartNode || action == topology.RestartNode) {
		return lost
	}
	switch action {
	case topology.StopNode:
		b.stop(stopped)
	case topology.StartNode:
		if b.reason == "" {
			return err
		}
		b.start()
	case topology.RestartNode:
		b.stop(stopped)
		b.start()
	case topology.KillNode:
		if b.reason != "" {
			return err
		}
		b.stop("it was killed by SIGKILL")
	case topology.PauseNode:
		if err != nil {
			return err
		}
		b.paused = true
		b.notify(event.NodePaused, nodePaused, b.spec.Name)
	case topology.ResumeNode:
		if b.reason != "" {
			return err
		}
		if err == nil {
			return failure.Errorf(failure.Usage, notPaused, b.spec.Name)
		}
		b.paused = false
		b.notify(event.NodeResumed, nodeResumed, b.spec.Name)
	default:
		return unknownAction(action)
	}
	return nil
}

// restoreState brings the switch back to what is lastingly asked of it.
func (b *bridge) restoreState() error {
	if !b.lasting.changed {
		return nil
	}
	b.lasting.changed = false
	if b.lost != "" {
		return nil
	}
	if b.lasting.state == NodeIsDown {
		return b.act(topology.StopNode)
	}
	b.start()
	switch pause := b.lasting.state == NodeIsPaused; {
	case pause == b.paused:
		return nil
	case pause:
		return b.act(topology.PauseNode)
	}
	return b.act(topology.ResumeNode)
}

// stop has the switch be down for a reason, unless it is.
func (b *bridge) stop(reason string) {
	if b.reason != "" {
		return
	}
	b.reason, b.paused = reason, false
	b.notify(event.NodeDown, "node %s is down: %s", b.spec.Name, reason)
}

// start has the switch be up, unless it is.
func (b *bridge) start() {
	if b.reason == "" {
		return
	}
	b.reason = ""
	b.restarts++
	b.notify(event.NodeUp, "node %s is up again", b.spec.Name)
}

// notify tells everyone who follows the lab what has happened to the switch.
func (b *bridge) notify(kind, format string, args ...any) {
	b.lab.notify(Notify{Kind: kind, Node: b.spec.Name, Text: fmt.Sprintf(format, args...)})
}

// request puts a request behind the others.
func (b *bridge) request(r *bridgeRequest) {
	b.requests = append(b.requests, r)
	if len(b.requests) == 1 {
		b.beginRequest()
	}
}

// beginRequest begins the first request: it changes the state, and asks each link at the switch to do what comes of that.
func (b *bridge) beginRequest() {
	r := b.requests[0]
	r.begun, r.was = true, b.status().State
	switch {
	case b.removed:
		r.err = leftLab(b.spec.Name)
	case r.action == "":
		r.err = b.restoreState()
	default:
		r.err = b.act(r.action)
	}
	if r.err != nil {
		b.finishRequest()
		return
	}
	links := b.links()
	r.left = len(links)
	for _, k := range links {
		k.request(&linkRequest{by: ByRun, endsMayBeDown: true, change: changeBoth(func(*linkAsked) {}), done: func(_ bool, err error) {
			r.left--
			if !k.removed { // else an Apply has removed it meanwhile
				r.err = errors.Join(r.err, err)
			}
			if r.left == 0 {
				b.finishRequest()
			}
		}})
	}
	if len(links) == 0 {
		b.finishRequest()
	}
}

// finishRequest ends the first request and begins the next.
func (b *bridge) finishRequest() {
	r := b.requests[0]
	b.requests = slices.Delete(b.requests, 0, 1)
	if r.err == nil {
		b.lasting.record(r.by, r.action, b.reason != "")
	}
	r.done(r, r.err)
	if len(b.requests) > 0 && !b.requests[0].begun {
		b.beginRequest()
	}
}
