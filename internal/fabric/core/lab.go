// Package core decides what a lab does: it holds what is wanted of nodes and links, and what was found of them,
// and says which actions bring the two together. Building a lab, starting a node again, applying a changed file,
// cutting a link and a partition are the same thing to it: wanted and found differ.
//
// It is pure. Commands, results of actions and the time go in (Handle); actions come out (Next), with the time at
// which it wants to be called again (Deadline). It makes no namespace, moves no packet and starts no process: a
// driver carries the actions out. That of virtual time is package simulate, and that of the kernel's namespaces package lab.
// Actions can be carried out side by side, since for one node or one link there is never more than one under way, but for
// those that only wait. Nothing here assumes that all nodes are on one host.
//
// It also plays no scenario: the timeline and the chaos of a run are commands of package scenario.
//
// Start reading at Lab, then at action.go and event.go, which are all that a driver has to know. node.go and link.go
// hold the rules.
package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Lab is the state of one lab. It is not safe for concurrent use: its driver calls it from one goroutine, or
// holds a lock.
type Lab struct {
	name     string
	topo     *topology.Topology // whose nodes and links there are by now; not changed, but replaced
	nodes    []*node            // hosts and routers, in the order of topo
	byName   map[string]*node
	switches []*bridge
	links    []*link // in the order of topo.Links
	now      time.Duration

	building     *build // until every node is ready; else nil
	ended        bool   // End was the last action
	carries      bool   // links may carry packets: all nodes of the first topology are configured
	present      bool   // the lab can be looked at: all of it is built
	nextNotice   time.Duration
	applying     *apply        // the Apply under way; nil: none
	unfinished   string        // why the last Apply did not come to its end; "" if it did
	generation   int           // counts what has become of topo
	running      bool          // a run goes on
	ran          bool          // there was a run
	separations  []*separation // the first goes on
	restoring    *restore      // BeginRun under way; nil: none
	timers       []*node       // that wait for a time, in no order
	plain        []*link       // that a command waits for to be plain
	touchedNodes []*node       // that decide is to look at, as touchedLinks
	touchedLinks []*link
	deciding     bool
	actions      []numbered // that Next has still to give
	lastAction   int
	continuation map[int]func(Done) // by the number of an action under way
}

// A numbered is an action with its number.
type numbered struct {
	number int
	action Action
}

// New returns a lab with nothing in it. The topology has its seed, and is not changed afterwards.
func New(t *topology.Topology) *Lab {
	l := &Lab{name: t.Name, topo: t, byName: map[string]*node{}, continuation: map[int]func(Done){}}
	l.take(t)
	return l
}

// Topology returns the topology whose nodes and links there are by now. It must not be changed.
func (l *Lab) Topology() *topology.Topology { return l.topo }

// Handle takes an event that came at a time, which never goes back.
func (l *Lab) Handle(now time.Duration, e Event) {
	l.now = max(l.now, now)
	if l.ended {
		return
	}
	switch e := e.(type) {
	case Ask:
		l.ask(e)
	case Cancel:
		l.cancel(e)
	case Done:
		if then := l.continuation[e.Number]; then != nil {
			delete(l.continuation, e.Number)
			then(e)
		}
	case AgentEnded:
		if n := l.byName[e.Node]; n != nil && n.life == e.Life {
			n.agentEnded(e.Reason)
		}
	case Tick:
	}
	l.elapse()
	l.decide()
}

// Next takes the oldest action that is to be carried out, with its number; false if there is none. Actions of
// different nodes and links may be carried out in any order; those that are not answered with Done in the order in which
// they come.
func (l *Lab) Next() (number int, a Action, ok bool) {
	if len(l.actions) == 0 {
		return 0, nil, false
	}
	first := l.actions[0]
	l.actions = l.actions[1:]
	return first.number, first.action, true
}

// Deadline returns when Handle is to be called with a Tick, unless something else comes before; false if nothing is
// waited for. It may change with every Handle.
func (l *Lab) Deadline() (at time.Duration, ok bool) {
	earliest := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	for _, n := range l.timers {
		if n.reviveAt > 0 {
			earliest(n.reviveAt)
		}
		if n.checkAt > 0 {
			earliest(n.checkAt)
		}
	}
	if l.building != nil {
		earliest(l.nextNotice)
	}
	for _, k := range l.plain {
		if len(k.plain) > 0 {
			earliest(k.plain[0].late)
		}
	}
	return at, ok
}

// do has an action carried out. then takes its result; nil: nobody waits for one.
func (l *Lab) do(a Action, then func(Done)) int {
	l.lastAction++
	if then != nil {
		l.continuation[l.lastAction] = then
	}
	l.actions = append(l.actions, numbered{l.lastAction, a})
	return l.lastAction
}

// tell has everyone told who follows the lab.
func (l *Lab) tell(t Tell) { l.do(t, nil) }

// end ends the lab.
func (l *Lab) end(reason error) {
	if !l.ended {
		l.ended = true
		l.do(End{reason}, nil)
	}
}

// decide goes over the nodes and links that something was changed of, until nothing changes any more: what one node
// comes to, another may have waited for.
func (l *Lab) decide() {
	if l.deciding {
		return
	}
	l.deciding = true
	defer func() { l.deciding = false }()
	for !l.ended {
		switch {
		case len(l.touchedNodes) > 0:
			n := l.touchedNodes[0]
			l.touchedNodes, n.touched = l.touchedNodes[1:], false
			n.advance()
		case len(l.touchedLinks) > 0:
			k := l.touchedLinks[0]
			l.touchedLinks, k.touched = l.touchedLinks[1:], false
			k.advance()
		case !l.advanceWhole():
			return
		}
	}
}

// advanceWhole goes on with what concerns many nodes and links, and reports whether it has.
func (l *Lab) advanceWhole() bool {
	return l.advanceBuild() || l.advanceApply() || l.advanceSeparation() || l.advanceRestore()
}

// schedule has decide look at a node, and at its links, on which it may depend.
func (n *node) schedule() {
	if !n.touched {
		n.touched = true
		n.lab.touchedNodes = append(n.lab.touchedNodes, n)
	}
}

// scheduleWithLinks has decide look at a node and its links.
func (n *node) scheduleWithLinks() {
	n.schedule()
	for _, i := range n.spec.Interfaces {
		n.lab.links[i.Link].schedule()
	}
}

// schedule has decide look at a link and the nodes at its ends.
func (k *link) schedule() {
	if !k.touched {
		k.touched = true
		k.lab.touchedLinks = append(k.lab.touchedLinks, k)
	}
	for _, n := range k.nodes {
		if n != nil {
			n.schedule()
		}
	}
}

// take has a topology be the lab's: those of its nodes and links that were there before stay as they are.
func (l *Lab) take(t *topology.Topology) {
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
			l.switches = append(l.switches, cmp.Or(switches[spec.Name], &bridge{lab: l}))
			l.switches[len(l.switches)-1].spec = spec
			continue
		}
		n := nodes[spec.Name]
		if n == nil {
			n = &node{lab: l}
		}
		n.spec = spec
		l.nodes = append(l.nodes, n)
		l.byName[spec.Name] = n
	}
	for i := range t.Links {
		spec := &t.Links[i]
		k := links[spec.Endpoints]
		if k == nil || k.spec.Number != spec.Number {
			k = newLink(l, spec)
		}
		k.index, k.spec = i, spec
		for end, e := range spec.Endpoints {
			k.nodes[end], k.bridges[end] = l.byName[e.Node], l.switchOf(e.Node)
		}
		l.links = append(l.links, k)
	}
	l.generation++
}

func (l *Lab) switchOf(name string) *bridge {
	if i := slices.IndexFunc(l.switches, func(b *bridge) bool { return b.spec.Name == name }); i >= 0 {
		return l.switches[i]
	}
	return nil
}

// linkTo formats a link with both its ends.
func linkTo(spec *topology.Link) string {
	return fmt.Sprintf("link %s to %s", spec.Endpoints[0], spec.Endpoints[1])
}
