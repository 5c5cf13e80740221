package core

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// A phase is how far a node has come in a life.
type phase int

const (
	absent      phase = iota // it has no agent and no interface
	starting                 // its agent is being started
	linking                  // its interfaces are being made
	furnishing               // its files and its commands of stage Created
	configuring              // its interfaces are set up and its adapter is opened
	connecting               // its links are connected, as far as their other ends are there
	growing                  // the spanning trees at its links are waited for
	up                       // it goes through the other stages, or has
	clearing                 // its links are taken apart and its agent is ended
)

// A node is a host or a router.
type node struct {
	lab     *Lab
	spec    *topology.Node
	touched bool // it is in Lab.touchedNodes
	removed bool // it is not in the lab any more

	phase    phase
	life     int // counts starts, also those that came to nothing
	restarts int // counts starts after the first
	began    time.Duration
	open     int    // actions under way, but for healthchecks
	busy     bool   // the phase waits for one of them, or for AgentEnded
	ended    bool   // there is no agent
	unseen   bool   // the life has come to nothing, and nobody saw it
	paused   bool   // its processes are stopped
	stale    bool   // the topology says something else of it than when it was last configured
	reason   string // why it is down; "" while it is up
	stopping string // why it is being stopped; "" if its end is its own
	farewell string // what is said beside the reason of an end
	failed   error  // why the last start came to nothing, or is not all that it should be

	stages   stages
	health   health
	checkAt  time.Duration // when the next healthcheck begins; 0: none is to
	reviveAt time.Duration // when it is started without being asked for; 0: it is not
	delay    time.Duration // before the last of such starts

	due      bool // since an Apply it is to be started, also if it is up
	owed     bool // the start under way is the one that was due
	lasting  nodeAsked
	requests []*nodeRequest // the first may have begun
	waiting  []*nodeRequest // for the node, which they have started, to be ready
}

// Why nodes are down.
const (
	stopped    = "it was stopped"
	removed    = "it was removed"
	changed    = "it starts again with other settings"
	notStarted = "it has not been started yet"
)

func (n *node) down() bool { return n.reason != "" }

// of names the node's life.
func (n *node) of() Of { return Of{n.spec.Name, n.life} }

// alive says why nothing can be asked of the node; nil if it can.
func (n *node) alive() error {
	switch {
	case n.down():
		return failure.Errorf(failure.Usage, "node %s is down: %s", n.spec.Name, n.reason)
	case n.paused:
		return failure.Errorf(failure.Usage, "node %s is paused", n.spec.Name)
	}
	return nil
}

// start begins a life of a node that is absent.
func (n *node) start() {
	if n.life > 0 {
		n.restarts++
	}
	*n = node{
		lab: n.lab, spec: n.spec, touched: n.touched, restarts: n.restarts, reason: n.reason, delay: n.delay, owed: n.due || n.owed,
		lasting: n.lasting, requests: n.requests, waiting: n.waiting,
		phase: starting, life: n.life + 1, began: n.lab.now, stages: newStages(&n.spec.Setup), health: newHealth(n.spec.Setup.Healthcheck),
	}
	n.everyLink(func(k *link, end int) bool {
		k.given[end], k.stuck = true, nil
		return true
	})
	n.work(StartAgent{n.of(), n.lab.topo, n.restarts}, func(Done) { n.phase = linking })
	n.lab.timed(n)
}

// work does an action of the node's phase. If it fails, so does the start.
func (n *node) work(a Action, then func(Done)) {
	n.busy = true
	in := n.phase
	n.doIn(a, func(d Done) {
		if n.phase != in {
			return // its end came first
		}
		n.busy = false
		n.scheduleWithLinks()
		switch {
		case d.Err != nil && in == starting:
			n.ended = true
			n.abortStart(d.Err)
		case d.Agent: // AgentEnded says why
			n.busy = true
		case d.Err != nil:
			n.abortStart(d.Err)
		default:
			then(d)
		}
	})
}

// doIn has an action carried out in a node. The life of the node is the same when its result comes.
func (n *node) doIn(a Action, then func(Done)) {
	n.open++
	n.lab.do(a, func(d Done) {
		n.open--
		n.schedule()
		then(d)
	})
}

// abortStart ends a life that has come to nothing.
func (n *node) abortStart(err error) {
	if n.lab.building != nil {
		n.lab.buildFailed(stepOf[n.phase], err)
		return
	}
	n.phase, n.unseen, n.failed, n.due, n.owed = clearing, true, err, n.due || n.owed, false
	n.scheduleWithLinks()
}

// agentEnded takes the end of a node's agent. The far ends of its links, which lose the carrier, and the rest of the lab stay.
func (n *node) agentEnded(reason string) {
	if n.ended || n.phase == absent {
		return
	}
	n.ended, n.busy = true, false
	for _, i := range n.spec.Interfaces {
		if k := n.lab.links[i.Link]; k.ending {
			k.busy, k.ending = false, false
		}
	}
	n.scheduleWithLinks()
	switch {
	case n.phase == clearing && n.unseen:
		return
	case n.lab.building != nil && n.stages.settled && n.stages.err == nil:
		n.lab.end(failure.Errorf(failure.Failed, "lab %s: node %s: %s", n.lab.name, n.spec.Name, reason))
		return
	case n.lab.building != nil || n.down(): // it was being started
		err := fmt.Errorf("node %s: %s", n.spec.Name, reason)
		switch {
		case n.stages.running != "":
			err = failure.Errorf(failure.Unmet, "node %s: %s was cut short: %s", n.spec.Name, brief(n.stages.running), reason)
		case n.health.state != "":
			err = failure.Errorf(failure.Unmet, "node %s is down: %s", n.spec.Name, reason)
		}
		n.abortStart(err)
		return
	}
	n.reason, n.checkAt = n.stopping, 0
	if n.reason == "" {
		n.reason = reason
		n.farewell = n.reviveLater(n.lab.now - n.began)
	}
	n.phase = clearing
	n.finishStages(failure.Errorf(failure.Unmet, "node %s is down: %s", n.spec.Name, n.reason))
	n.lab.wake()
}

// stop ends a node that is up as if it were switched off: its interfaces go before it can say anything.
func (n *node) stop(why string) {
	n.stopping, n.phase, n.checkAt = why, clearing, 0
	n.scheduleWithLinks()
}

// advance has a node do what is to be done next.
func (n *node) advance() {
	if !n.busy && n.open == 0 {
		n.advancePhase()
	}
	if !n.touched { // else it goes on with its phase first: who has started it may be about to be done
		n.advanceRequests()
	}
}

func (n *node) advancePhase() {
	if n.phase == linking || n.phase == connecting {
		for _, i := range n.spec.Interfaces {
			if err := n.lab.links[i.Link].stuck; err != nil {
				n.abortStart(fmt.Errorf("node %s: %w", n.spec.Name, err))
				return
			}
		}
	}
	switch n.phase {
	case linking:
		if n.everyLink(func(k *link, end int) bool { return k.made[end] }) {
			n.phase = furnishing
			n.schedule()
		}
	case furnishing:
		if n.advanceStages() {
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
		case n.stale && n.everyLink(func(k *link, end int) bool { return k.made[end] }):
			n.reconfigure()
		case n.lab.present:
			n.advanceStages()
		}
	case clearing:
		n.tearDown()
	}
}

// comeUp has everyone see a life, all of whose links do what they are asked to.
func (n *node) comeUp() {
	if n.lab.building != nil {
		n.phase = up // the spanning trees of all are waited for at once
		return
	}
	words := "node %s is up again"
	if n.reason == notStarted {
		words = "node %s is up"
	}
	n.phase, n.reason, n.owed = growing, "", false
	n.lab.tell(Tell{Kind: NodeUp, Node: n.spec.Name, Text: fmt.Sprintf(words, n.spec.Name)})
	var links []*link
	for _, i := range n.spec.Interfaces {
		links = append(links, n.lab.links[i.Link])
	}
	life := n.life
	n.lab.awaitTree(links, func(err error) {
		if n.life == life && n.phase == growing {
			n.phase, n.failed = up, err
			n.schedule()
		}
	})
}

// reconfigure has a node that is up be what the topology says by now.
func (n *node) reconfigure() {
	n.busy, n.stale = true, false
	n.everyLink(func(k *link, end int) bool {
		k.given[end] = true
		return true
	})
	n.doIn(Reconfigure{n.of(), n.lab.topo, n.restarts}, func(d Done) {
		if n.phase != up {
			return
		}
		n.busy = d.Agent // AgentEnded is about to come
		if d.Err != nil {
			n.lab.applyFailed(d.Err)
			return
		}
		n.configured()
		n.scheduleWithLinks()
	})
}

// tearDown goes on with the end of a life: the interfaces go first, then the agent.
func (n *node) tearDown() {
	switch {
	case !n.everyLink(func(k *link, end int) bool { return !k.made[end] && !k.busy }):
	case !n.ended:
		n.busy = true // until AgentEnded
		n.doIn(KillAgent{n.of()}, func(Done) {})
	default:
		n.phase = absent
		if !n.unseen {
			n.lab.tell(Tell{Kind: NodeDown, Node: n.spec.Name, Text: fmt.Sprintf("node %s is down: %s%s", n.spec.Name, n.reason, n.farewell)})
		}
		n.schedule()
	}
}

// everyLink reports whether something is so of every link of a node, which is called with the link and the node's end of it.
func (n *node) everyLink(is func(k *link, end int) bool) bool {
	for _, i := range n.spec.Interfaces {
		if !is(n.lab.links[i.Link], i.End) {
			return false
		}
	}
	return true
}

// configured notes that the interfaces that a node was told of are set up, so that their links can carry packets.
func (n *node) configured() {
	n.everyLink(func(k *link, end int) bool {
		k.configured[end] = k.given[end]
		return true
	})
}
