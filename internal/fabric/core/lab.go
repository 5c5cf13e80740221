// Package core decides what a lab does: it holds what is wanted of nodes and links, and what was found of them, and
// decides which actions bring the two together. Building a lab, starting a node again, applying a changed file, cutting a
// link and a partition are the same thing to it: wanted and found differ.
//
// It is pure. Commands, results of actions and the time go in (Handle); actions come out (Next), with the time at
// which it wants to be called again (Deadline). It makes no namespace, moves no packet and starts no process: a
// driver carries the actions out. Package simulate is the driver of virtual time, package lab that of the kernel's
// namespaces. Of one node or one link at most one action is under way, apart from those that only wait, so that a
// driver can carry out all actions in parallel. Nothing here assumes that all nodes are on one host.
//
// It also plays no scenario: the timeline and the chaos of a run are commands of package scenario.
//
// Start reading at Lab. A driver only has to know that file, action.go and event.go. node.go and link.go hold the rules, routing.go those of routes.
package core

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Lab is the state of one lab. It is not safe for concurrent use: its driver calls it from one goroutine, or
// holds a lock.
type Lab struct {
	name       string
	topo       *topology.Topology // whose nodes and links the lab has now; it is replaced, not changed
	generation int                // counts the topologies that topo has been
	nodes      []*node            // hosts and routers, in the order of topo
	byName     map[string]*node
	switches   []*bridge
	links      []*link // in the order of topo.Links
	now        time.Duration
	handled    uint64 // events
	ended      bool   // End was the last action
	carries    bool   // links may carry packets: all nodes of the first topology are configured
	present    bool   // all of the first topology is built, so that the lab can be looked at

	building   *build // nil once every node is ready
	applying   *apply // nil: no Apply is under way
	unfinished string // why the last Apply failed; "" if it succeeded
	runs       runs
	partitions partitions
	routing    routing
	worklist   worklist
	timers     timers
	actions    actions
}

// New returns a lab with nothing in it. The topology has its seed, and is not changed afterwards.
func New(t *topology.Topology) *Lab {
	l := &Lab{name: t.Name, byName: map[string]*node{}, actions: actions{results: map[int]func(Done){}}}
	l.runs.lab, l.partitions.lab, l.routing.lab = l, l, l
	l.routing.timer.expired = l.routing.converge
	l.setTopology(t)
	return l
}

// Topology returns the topology whose nodes and links the lab has now. It must not be changed.
func (l *Lab) Topology() *topology.Topology { return l.topo }

// Handle takes an event that came at a time, which never goes back.
func (l *Lab) Handle(now time.Duration, e Event) {
	l.now = max(l.now, now)
	l.handled++
	if l.ended {
		return
	}
	switch e := e.(type) {
	case Ask:
		if err := l.begin(e); err != nil {
			l.answer(Answer{ID: e.ID, Err: err})
		}
	case Cancel:
		l.cancel(e)
	case Done:
		l.actions.done(e)
	case AgentEnded:
		if n := l.byName[e.Node]; n != nil && n.number == e.Life {
			n.agentEnded(e.Reason)
		}
	case HostLost:
		l.lose(e)
	case Tick:
	}
	l.timers.expire(l.now)
	// Advancing one of them may schedule others.
	for !l.ended && (l.worklist.advance() || l.building.advance() || l.applying.advance() || l.partitions.advance() || l.routing.advance() || l.runs.advance()) {
	}
}

// Handled returns the number of events so far. As long as it is the same, all that can be looked at is.
func (l *Lab) Handled() uint64 { return l.handled }

// Next returns the oldest action that is to be carried out, with its number; false if there is none. Actions of
// different nodes and links may be carried out in any order. Actions without a result are carried out in the order in which
// they come.
func (l *Lab) Next() (number int, a Action, ok bool) {
	first, ok := l.actions.next()
	return first.number, first.action, ok
}

// Deadline returns when Handle is to be called with a Tick, unless another event comes before; false if the lab waits
// for no time. It may change with every Handle.
func (l *Lab) Deadline() (at time.Duration, ok bool) { return l.timers.deadline() }

// do has an action carried out. then receives its result; it may be nil.
func (l *Lab) do(a Action, then func(Done)) { l.actions.add(a, then) }

// notify tells everyone who follows the lab what has happened.
func (l *Lab) notify(n Notify) { l.do(n, nil) }

// end ends the lab.
func (l *Lab) end(reason error) {
	if !l.ended {
		l.ended = true
		l.do(End{reason}, nil)
	}
}

// setTopology replaces the lab's topology. Nodes and links that are in both topologies keep their state.
func (l *Lab) setTopology(t *topology.Topology) {
	nodes, links := l.byName, map[[2]topology.Endpoint]*link{}
	for _, k := range l.links {
		links[k.spec.Endpoints] = k
	}
	switches := map[string]*bridge{}
	for _, b := range l.switches {
		switches[b.spec.Name] = b
	}
	l.topo, l.nodes, l.byName, l.switches, l.links = t, nil, map[string]*node{}, nil, nil
	for i := range t.Nodes {
		spec := &t.Nodes[i]
		if spec.Kind == topology.Switch {
			b := cmp.Or(switches[spec.Name], &bridge{lab: l})
			b.spec = spec
			l.switches = append(l.switches, b)
			continue
		}
		n := nodes[spec.Name]
		if n == nil {
			n = newNode(l)
		}
		n.spec = spec
		l.nodes = append(l.nodes, n)
		l.byName[spec.Name] = n
	}
	buffered := t.BufferedLinks()
	for i := range t.Links {
		spec := &t.Links[i]
		k := links[spec.Endpoints]
		if k == nil || k.spec.Number != spec.Number {
			k = newLink(l, spec)
		}
		k.index, k.spec, k.buffered = i, spec, buffered[i]
		for end, e := range spec.Endpoints {
			k.nodes[end], k.bridges[end] = l.byName[e.Node], l.switchOf(e.Node)
		}
		l.links = append(l.links, k)
	}
	l.generation++
}

// switchOf returns the switch of a name; nil if the lab has none.
func (l *Lab) switchOf(name string) *bridge {
	for _, b := range l.switches {
		if b.spec.Name == name {
			return b
		}
	}
	return nil
}

// awaitSpanningTree waits until the spanning trees of the switches at the ends of links know of them. A switch without one
// forwards from the beginning.
func (l *Lab) awaitSpanningTree(links []*link, then func(error)) {
	var specs []*topology.Link
	for _, k := range links {
		for _, b := range k.bridges {
			if b != nil && b.spec.SpanningTree {
				specs = append(specs, k.spec)
				break
			}
		}
	}
	if len(specs) == 0 {
		then(nil)
		return
	}
	l.do(AwaitSpanningTree{specs, l.building != nil}, func(d Done) { then(d.Err) })
}

// linkTo formats a link with both its ends.
func linkTo(spec *topology.Link) string {
	return fmt.Sprintf("link %s to %s", spec.Endpoints[0], spec.Endpoints[1])
}
