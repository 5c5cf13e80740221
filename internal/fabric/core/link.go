package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// A link is a link of the lab, with what is asked of it and what was found.
type link struct {
	lab       *Lab
	index     int // in Topology.Links
	spec      *topology.Link
	buffered  bool       // packets wait in a buffer, which only the engine has
	nodes     [2]*node   // at its ends; nil: a switch, or outside
	bridges   [2]*bridge // at its ends; nil: a node, or outside
	scheduled bool       // it is in Lab.worklist
	removed   bool       // it has left the lab
	onRemoved func()     // is called when the link has been removed; nil: the link stays

	asked   linkAsked // at present
	lasting linkAsked // what the next run begins with

	made       [2]bool                // the interface is there
	given      [2]bool                // the node's agent was told of it
	configured [2]bool                // and has set it up
	mtu        int                    // of the interfaces
	engine     bool                   // its engine has it
	impairs    [2]topology.Impairment // what the engine does to its packets
	connected  bool

	busy         bool  // an action is under way
	awaitsEnd    bool  // the action has failed since an agent has ended; busy until AgentEnded comes
	stuck        error // why the last action failed; nothing is tried again until something changes
	awaitsIdle   bool  // AwaitIdle is under way
	idle         bool  // the engine can release it
	releaseFails bool  // the engine keeps it until something else is asked
	requests     []*linkRequest
	plain        []*linkRequest // that wait for the engine to release it
	plainTimer   timer          // ends their waiting
}

func newLink(l *Lab, spec *topology.Link) *link {
	asked := linkAsked{impairments: spec.Directions, down: spec.Down}
	k := &link{lab: l, spec: spec, asked: asked, lasting: asked}
	k.plainTimer.expired = k.answerPlain
	return k
}

// name returns the name of the link in the engine and in messages: its first endpoint.
func (k *link) name() string { return k.spec.Endpoints[0].String() }

// notify tells everyone who follows the lab what has happened to the link.
func (k *link) notify(kind, format string, args ...any) {
	k.lab.notify(Notify{Kind: kind, Link: k.name(), Text: fmt.Sprintf(format, args...)})
}

// needsEngine reports whether its engine has to carry the link.
func (k *link) needsEngine() bool { return k.buffered || k.asked.impaired() }

// whole reports whether both ends of the link are there.
func (k *link) whole() bool { return k.made[0] && k.made[1] }

// off reports whether the link carries nothing, for whatever reason.
func (k *link) off() bool {
	return k.asked.down || k.asked.partitioned || !k.whole() || k.switchAway()
}

// switchAway reports whether a switch at an end of the link is down or paused.
func (k *link) switchAway() bool {
	return slices.ContainsFunc(k.bridges[:], func(b *bridge) bool { return b != nil && !b.forwards() })
}

// leaving reports whether the link is being removed. Its removal waits for nodes that are being started, since their agents
// were told of it.
func (k *link) leaving() bool {
	configures := func(n *node) bool { return n != nil && n.phase >= starting && n.phase <= configuring }
	return k.onRemoved != nil && !configures(k.nodes[0]) && !configures(k.nodes[1])
}

// wantsEnd reports whether the link is to have an interface at an end.
func (k *link) wantsEnd(end int) bool {
	switch n, b := k.nodes[end], k.bridges[end]; {
	case k.leaving():
		return false
	case n != nil:
		return n.phase >= linking && n.phase <= up
	case b != nil:
		return b.made
	}
	return true
}

// lives returns the numbers of the lives of the nodes at the ends: 0 if it has ended, or if there is no node. A switch has one
// life, until its host is lost.
func (k *link) lives() (lives [2]int) {
	for end, n := range k.nodes {
		b := k.bridges[end]
		switch {
		case n != nil && !n.ended:
			lives[end] = n.number
		case b != nil && b.lost == "":
			lives[end] = 1
		}
	}
	return lives
}

// checkEnds returns an error if a node at an end of the link is down, since its interface has gone with it. A node that is
// paused keeps its interface.
func (k *link) checkEnds() error {
	for _, n := range k.nodes {
		if n != nil && n.down() {
			return failure.Errorf(failure.Usage, "link %s: node %s is down: %s", k.name(), n.spec.Name, n.reason)
		}
	}
	return nil
}

// missingEnds returns which ends are to be made. Both ends are made together while the lab is being built.
func (k *link) missingEnds() (ends [2]bool) {
	all := k.wantsEnd(0) && k.wantsEnd(1)
	for end := range ends {
		ends[end] = k.wantsEnd(end) && !k.made[end] && (all || k.lab.building == nil)
	}
	return ends
}

// converged reports whether the link does what is asked of it, as far as its ends are there.
func (k *link) converged() bool {
	if k.busy {
		return false
	}
	a, _ := k.next()
	return a == nil
}

// next returns the next action that brings the link nearer to what is asked of it, and a function that records its success;
// nil if nothing is to be done.
func (k *link) next() (a Action, found func()) {
	for end := range 2 {
		if !k.made[end] || k.wantsEnd(end) {
			continue
		}
		if k.connected || k.engine {
			return TakeApart{k.spec}, func() {
				k.engine, k.idle = false, false
				k.carry(false)
			}
		}
		return RemoveEnd{k.spec, end}, func() { k.made[end], k.given[end], k.configured[end], k.stuck = false, false, false, nil }
	}
	if ends := k.missingEnds(); ends != [2]bool{} {
		return MakeEnds{k.spec, ends, !k.asked.down && !k.asked.partitioned && !k.switchAway()}, func() {
			k.made = [2]bool{k.made[0] || ends[0], k.made[1] || ends[1]}
			k.mtu = k.spec.MTU
			for end := range ends {
				k.configured[end] = k.made[end] && k.nodes[end] == nil || k.configured[end]
			}
		}
	}
	ready := k.whole() && k.configured[0] && k.configured[1] && k.lab.carries
	off := k.off()
	switch {
	case !k.whole():
		return nil, nil
	case k.mtu != k.spec.MTU:
		return ResizeLink{k.spec}, func() { k.mtu = k.spec.MTU }
	case off && k.connected:
		return Disconnect{k.spec}, func() { k.carry(false) }
	case !ready:
		return nil, nil
	case !k.engine && k.needsEngine():
		asked := k.asked.impairments
		return Impair{k.spec, asked}, func() { k.engine, k.impairs = true, asked }
	}
	if k.engine {
		for d, to := range k.asked.impairments {
			if !to.Equal(k.impairs[d]) {
				return SetImpairment{k.spec, d, to}, func() { k.impairs[d] = to }
			}
		}
	}
	if !off && !k.connected {
		return Connect{k.spec}, func() { k.carry(true) }
	}
	return nil, nil
}

// advance does what is to be done next with the link.
func (k *link) advance() {
	if k.busy || k.removed {
		return
	}
	if len(k.requests) > 0 && !k.requests[0].begun {
		k.beginRequest(k.requests[0])
	}
	a, found := k.next()
	switch {
	case a != nil && (k.stuck == nil || removes(a)):
		k.busy = true
		lives := k.lives()
		k.lab.do(a, func(d Done) {
			ended := k.lives() != lives // an agent has, which explains a failure
			if d.Agent && !ended {
				k.awaitsEnd = true
				return
			}
			k.busy = false
			k.schedule()
			if d.Err != nil && removes(a) {
				if !ended {
					k.notify(event.Warning, "link %s: %v", k.name(), d.Err)
				}
				d.Err = nil
			}
			switch {
			case d.Err == nil:
				found()
			case !ended:
				k.actionFailed(a, d.Err)
			}
		})
	case a == nil && k.leaving():
		k.removed = true
		for _, r := range k.requests {
			r.done(false, k.leftLab())
		}
		k.requests = nil
		k.onRemoved()
	case a == nil:
		k.finishRequest()
		k.advanceRelease()
	}
}

// carry notes that the link carries packets, or none.
func (k *link) carry(packets bool) {
	if k.connected != packets {
		k.connected = packets
		k.lab.routing.restart()
	}
}

// removes reports whether an action only removes something. If it fails, nothing is left to be done.
func removes(a Action) bool {
	switch a.(type) {
	case TakeApart, RemoveEnd:
		return true
	}
	return false
}

// actionFailed passes the failure of an action on to the build, the request, the node or the Apply that wanted it. If there
// is none, it warns everyone.
func (k *link) actionFailed(a Action, err error) {
	if b := k.lab.building; b != nil {
		step := stepOf[connecting]
		if _, making := a.(MakeEnds); making {
			step = stepOf[linking]
		}
		b.fail(step, fmt.Errorf("%s: %w", linkTo(k.spec), err))
		return
	}
	err = fmt.Errorf("link %s: %w", k.name(), err)
	if len(k.requests) > 0 && k.requests[0].begun {
		k.abortRequest(err)
		return
	}
	for _, n := range k.nodes {
		if n != nil && (n.phase == linking || n.phase == connecting) {
			n.abort(fmt.Errorf("node %s: %w", n.spec.Name, err)) // the other one may fare better
			return
		}
	}
	k.stuck = err
	if !k.lab.applying.fail(err) {
		k.notify(event.Warning, "%v", err)
	}
}

// advanceRelease has the engine release a link that is not impaired any more, once no packet is on its way. That may take
// as long as the longest delay or queue that the link had. If the link is impaired again meanwhile, it stays with its
// engine.
func (k *link) advanceRelease() {
	if !k.engine || k.needsEngine() || !k.whole() {
		k.idle = false
		k.answerPlain()
		return
	}
	switch {
	case k.idle:
		k.idle, k.busy = false, true
		k.lab.do(ReleaseLink{k.spec}, func(d Done) {
			k.busy = false
			switch {
			case d.Err == nil && !d.Late:
				k.engine = false
			case d.Err != nil:
				k.releaseFails = true
				if k.checkEnds() == nil {
					k.notify(event.Warning, "link %s stays with %s: %v", k.name(), cmp.Or(k.spec.Engine, topology.Linkem), d.Err)
				}
			}
			k.schedule()
		})
	case !k.awaitsIdle && !k.releaseFails:
		k.awaitsIdle = true
		k.lab.do(AwaitIdle{k.spec}, func(d Done) {
			k.awaitsIdle, k.idle, k.releaseFails = false, d.Err == nil, d.Err != nil
			k.schedule()
		})
	}
}
