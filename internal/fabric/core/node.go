package core

import (
	"fmt"
	"iter"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// A phase says how far a node has come in a life.
type phase int

const (
	absent           phase = iota // it has no agent and no interface
	starting                      // its agent is being started
	linking                       // its interfaces are being made
	preparing                     // its files are placed and its commands of stage Created run
	configuring                   // its interfaces are set up and its adapter is opened
	connecting                    // its links are connected, as far as their other ends are there
	awaitingSwitches              // the spanning trees at its links are waited for
	up                            // it goes through the other stages, or has
	removing                      // its links are taken apart and its agent is ended
)

// A node is a host or a router.
type node struct {
	lab       *Lab
	spec      *topology.Node
	scheduled bool // it is in Lab.worklist
	removed   bool // it has left the lab

	life         // the present one, or the last
	restarts int // counts starts after the first
	policy   restartPolicy
	reason   string // why it is down; "" while it is up
	lost     string // why nothing starts it again, which is its reason, too; "": its host is there

	routes       []topology.Route // that it is to have, where the lab converges
	startPending bool             // an Apply requires a start, also if the node is up
	lasting      nodeAsked
	requests     []*nodeRequest // the first may have begun
	waiting      []*nodeRequest // for the node, which they have started, to be ready
}

// A life of a node lasts from one start of its agent to the next.
type life struct {
	number int // counts starts, also those that failed
	began  time.Duration
	phase  phase
	open   int  // actions under way other than healthchecks
	busy   bool // the phase waits for one of them, or for AgentEnded
	ended  bool // there is no agent
	paused bool // its processes are stopped
	pauses int  // how often they were
	stale  bool // the topology of the node has changed since it was last configured

	rerouted      bool // it is to have other routes than it was given last
	settingRoutes bool // SetRoutes is under way

	required bool   // an Apply requires this start
	aborted  bool   // the start has failed before the node was up, and nobody is told of the end
	failed   error  // why the start has failed, or the wait for the switches after it
	stopping string // why it is being stopped; "" if its agent has ended by itself
	restart  string // when it is started again, in words that follow the reason of its end; "" if it is not

	stages stages
	health health
}

// The reasons why nodes are down.
const (
	stopped    = "it was stopped"
	removed    = "it was removed"
	changed    = "it starts again with other settings"
	notStarted = "it has not been started yet"
)

func newNode(l *Lab) *node {
	n := &node{lab: l, startPending: l.present}
	if l.present { // an Apply adds it
		n.reason = notStarted
	}
	n.policy.node, n.policy.timer.expired = n, n.policy.start
	return n
}

func (n *node) down() bool { return n.reason != "" }

// of names the node's life.
func (n *node) of() Of { return Of{n.spec.Name, n.number} }

// alive returns an error if the node is down or paused.
func (n *node) alive() error { return checkAlive(n.spec.Name, n.reason, n.paused) }

// notify tells everyone who follows the lab what has happened to the node.
func (n *node) notify(kind, format string, args ...any) {
	n.lab.notify(Notify{Kind: kind, Node: n.spec.Name, Text: fmt.Sprintf(format, args...)})
}

// links returns the node's links, and which end of them is the node's.
func (n *node) links() iter.Seq2[*link, int] {
	return func(yield func(*link, int) bool) {
		for _, i := range n.spec.Interfaces {
			if !yield(n.lab.links[i.Link], i.End) {
				return
			}
		}
	}
}

// everyLink reports whether a condition holds for all of the node's links.
func (n *node) everyLink(holds func(k *link, end int) bool) bool {
	for k, end := range n.links() {
		if !holds(k, end) {
			return false
		}
	}
	return true
}

// start begins a life of a node that is absent.
func (n *node) start() {
	if n.number > 0 {
		n.restarts++
	}
	n.life = life{
		number: n.number + 1, began: n.lab.now, phase: starting, required: n.startPending || n.required,
		stages: newStages(n), health: newHealth(n, n.spec.Setup.Healthcheck),
	}
	n.startPending = false
	n.policy.timer.stop()
	n.lab.routing.nodeStarts(n)
	for k, end := range n.links() {
		k.given[end], k.stuck = true, nil
	}
	n.work(StartAgent{n.of(), n.lab.topo, n.wantedRoutes(), n.restarts}, func(Done) { n.phase = linking })
}

// work does an action that the node's phase waits for. If the action fails, so does the start.
func (n *node) work(a Action, then func(Done)) {
	n.busy = true
	in := n.phase
	n.do(a, func(d Done) {
		if n.phase != in {
			return // the life has ended before
		}
		n.busy = false
		n.scheduleWithLinks()
		switch {
		case d.Err != nil && in == starting:
			n.ended = true
			n.abort(d.Err)
		case d.Agent: // AgentEnded says why
			n.busy = true
		case d.Err != nil:
			n.abort(d.Err)
		default:
			then(d)
		}
	})
}

// do has an action carried out in the node. No other life begins before its result comes.
func (n *node) do(a Action, then func(Done)) {
	n.open++
	n.lab.do(a, func(d Done) {
		n.open--
		n.schedule()
		then(d)
	})
}

// abort ends a life whose start has failed.
func (n *node) abort(err error) {
	if b := n.lab.building; b != nil {
		b.fail(stepOf[n.phase], err)
		return
	}
	n.startPending = n.startPending || n.required
	n.phase, n.aborted, n.failed, n.required = removing, true, err, false
	n.scheduleWithLinks()
}

// agentEnded takes the end of the node's agent. The far ends of its links lose the carrier, but stay.
func (n *node) agentEnded(reason string) {
	if n.ended || n.phase == absent {
		return
	}
	n.ended, n.busy = true, false
	for k := range n.links() {
		if k.awaitsEnd {
			k.busy, k.awaitsEnd = false, false
		}
	}
	n.scheduleWithLinks()
	building := n.lab.building != nil
	switch {
	case n.phase == removing && n.aborted:
		return
	case building && n.stages.finished && n.stages.err == nil:
		n.lab.end(failure.Errorf(failure.Failed, "lab %s: node %s: %s", n.lab.name, n.spec.Name, reason))
		return
	case building || n.down(): // it was being started
		err := fmt.Errorf("node %s: %s", n.spec.Name, reason)
		switch {
		case n.stages.running != "":
			err = failure.Errorf(failure.Unmet, "node %s: %s was cut short: %s", n.spec.Name, firstLine(n.stages.running), reason)
		case n.health.state != "":
			err = failure.Errorf(failure.Unmet, "node %s is down: %s", n.spec.Name, reason)
		}
		n.abort(err)
		return
	}
	if n.phase == awaitingSwitches { // whoever has asked for the start has no answer yet
		n.failed = fmt.Errorf("node %s: %s", n.spec.Name, reason)
	}
	n.reason = n.stopping
	n.health.timer.stop()
	if n.reason == "" {
		n.reason = reason
		n.restart = n.policy.schedule(n.lab.now - n.began)
	}
	n.phase = removing
	n.stages.finish(failure.Errorf(failure.Unmet, "node %s is down: %s", n.spec.Name, n.reason))
	n.lab.scheduleWaiting()
}

// stop ends the life of a node that is up as if it were switched off: its interfaces go before it can send anything.
func (n *node) stop(why string) {
	n.stopping, n.phase = why, removing
	n.health.timer.stop()
	n.scheduleWithLinks()
}

// advance does what is to be done next with the node.
func (n *node) advance() {
	if !n.busy && n.open == 0 {
		n.advancePhase()
	}
	n.advanceRoutes()
	if !n.scheduled { // else its phase goes on first, which may finish the request that has started it
		n.advanceRequests()
	}
}

func (n *node) advancePhase() {
	if n.phase == linking || n.phase == connecting {
		for k := range n.links() {
			if k.stuck != nil {
				n.abort(fmt.Errorf("node %s: %w", n.spec.Name, k.stuck))
				return
			}
		}
	}
	made := func(k *link, end int) bool { return k.made[end] }
	switch n.phase {
	case linking:
		if n.everyLink(made) {
			n.phase = preparing
			n.schedule()
		}
	case preparing:
		if n.stages.advance() {
			n.phase = configuring
			n.work(Configure{n.of()}, func(Done) {
				n.phase = connecting
				n.configured()
			})
		}
	case connecting:
		if n.everyLink(func(k *link, _ int) bool { return k.converged() }) && n.lab.carries {
			n.comeUp()
		}
	case up:
		switch {
		case n.stale && n.everyLink(made):
			n.reconfigure()
		case n.lab.present && !n.paused: // else a command of the next stage would not even begin
			n.stages.advance()
		}
	case removing:
		n.advanceRemoval()
	}
}

// comeUp ends the start of a node, all of whose links do what they are asked to, and tells everyone.
func (n *node) comeUp() {
	if n.lab.building != nil {
		n.phase = up // the build waits for the spanning trees of all links at once
		return
	}
	text := "node %s is up again"
	if n.reason == notStarted {
		text = "node %s is up"
	}
	n.phase, n.reason, n.required = awaitingSwitches, "", false
	n.notify(event.NodeUp, text, n.spec.Name)
	n.lab.routing.restart() // its routes may be over a link that was taken down meanwhile
	var links []*link
	for k := range n.links() {
		links = append(links, k)
	}
	number := n.number
	n.lab.awaitSpanningTree(links, func(err error) {
		if n.number == number && n.phase == awaitingSwitches {
			n.phase, n.failed = up, err
			n.schedule()
		}
	})
}

// reconfigure makes a node that is up what the topology says now.
func (n *node) reconfigure() {
	n.busy, n.stale, n.rerouted = true, false, false
	for k, end := range n.links() {
		k.given[end] = true
	}
	n.do(Reconfigure{n.of(), n.lab.topo, n.wantedRoutes(), n.restarts}, func(d Done) {
		if n.phase != up {
			return
		}
		n.busy = d.Agent // AgentEnded is about to come
		if d.Err != nil {
			n.lab.applying.fail(d.Err)
			return
		}
		n.configured()
		n.scheduleWithLinks()
	})
}

// configured notes that the interfaces that the node was told of are set up, so that their links can carry packets.
func (n *node) configured() {
	for k, end := range n.links() {
		k.configured[end] = k.given[end]
	}
}

// advanceRemoval goes on with the end of a life: the interfaces go first, then the agent.
func (n *node) advanceRemoval() {
	switch {
	case !n.everyLink(func(k *link, end int) bool { return !k.made[end] && !k.busy }):
	case !n.ended:
		n.busy = true // until AgentEnded
		n.do(KillAgent{n.of()}, func(Done) {})
	default:
		n.phase = absent
		if !n.aborted {
			n.notify(event.NodeDown, "node %s is down: %s%s", n.spec.Name, n.reason, n.restart)
		}
		n.schedule()
	}
}
