package core

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// This file is the first start of a lab. What it adds to the rules of nodes and links is what all of them wait for, and
// that a failure of one is the end of the lab.

// A build is the first start.
type build struct {
	id    uint64 // of the Ask
	nodes int    // those before this index are done with what is waited for, as are links
	links int
	busy  bool // an action is waited for
}

const notReady = "the nodes are not ready"

// stepOf are the words for what a build does in a phase of a node.
var stepOf = map[phase]string{
	starting: "start the nodes", linking: "link the nodes", furnishing: "link the nodes", configuring: "link the nodes",
	connecting: "connect the links", up: notReady,
}

// build takes Build.
func (l *Lab) build(a Ask) {
	l.building = &build{id: a.ID}
	for _, k := range l.links {
		for _, asked := range k.asked.impairments {
			if err := k.check(asked); err != nil {
				l.buildFailed(stepOf[linking], fmt.Errorf("%s: %w", linkTo(k.spec), err))
				return
			}
		}
	}
	l.nextNotice = l.now + firstNotice
	for _, n := range l.nodes {
		n.start()
	}
	for _, b := range l.switches {
		b.advance()
	}
	for _, k := range l.links {
		k.schedule()
	}
}

// buildFailed ends the lab, which cannot be built.
func (l *Lab) buildFailed(step string, err error) {
	if step != "" {
		err = fmt.Errorf("%s: %w", step, err)
	}
	err = fmt.Errorf("lab %s: %w", l.name, err)
	l.answer(Answer{ID: l.building.id, Err: err})
	l.end(err)
}

// advanceBuild goes on when everything is as far as is waited for.
func (l *Lab) advanceBuild() (advanced bool) {
	b := l.building
	if b == nil || b.busy || !l.passed(b) {
		return false
	}
	b.nodes, b.links, b.busy = 0, 0, true
	touchAll := func() {
		b.busy = false
		for _, n := range l.nodes {
			n.scheduleWithLinks()
		}
		for _, k := range l.links {
			k.schedule()
		}
	}
	switch {
	case !l.carries:
		l.do(BeginLinks{}, func(d Done) {
			if d.Err != nil {
				l.buildFailed("", d.Err)
				return
			}
			l.carries = true
			touchAll()
		})
	case !l.present:
		l.awaitTree(l.links, func(err error) {
			if err != nil {
				l.buildFailed("spanning tree", err)
				return
			}
			l.present = true
			touchAll()
		})
	default:
		l.building = nil
		l.tell(Tell{Kind: LabReady, Text: "all nodes are ready"})
		l.answer(Answer{ID: b.id})
	}
	return true
}

// passed reports whether all nodes and links are as far as is waited for. It looks at none a second time that is.
func (l *Lab) passed(b *build) bool {
	for ; b.nodes < len(l.nodes); b.nodes++ {
		n := l.nodes[b.nodes]
		switch {
		case !l.carries && n.phase != connecting, !l.present && l.carries && n.phase != up, l.present && !n.stages.settled:
			return false
		}
	}
	for ; b.links < len(l.links); b.links++ {
		k := l.links[b.links]
		if !l.carries && !k.whole() || !l.present && !k.converged() {
			return false
		}
	}
	return true
}

// elapseBuild says from time to time whom a lab that is being built waits for.
func (l *Lab) elapseBuild() {
	if l.building == nil || l.now < l.nextNotice {
		return
	}
	l.nextNotice = l.now + waitingPeriod
	const most = 8
	var texts []string
	others := 0
	for _, n := range l.nodes {
		switch doing := n.stages.doing; {
		case doing == "":
		case len(texts) == most:
			others++
		default:
			texts = append(texts, n.spec.Name+" "+doing)
		}
	}
	if others > 0 {
		texts = append(texts, fmt.Sprintf("and %d others", others))
	}
	if len(texts) > 0 {
		l.tell(Tell{Kind: LabWaiting, Text: "waiting: " + strings.Join(texts, ", ")})
	}
}

// awaitTree waits until the spanning trees at the ends of links know of them. Those of switches without one forward from
// the beginning.
func (l *Lab) awaitTree(links []*link, then func(error)) {
	var of []*topology.Link
	for _, k := range links {
		for _, b := range k.bridges {
			if b != nil && b.spec.SpanningTree {
				of = append(of, k.spec)
				break
			}
		}
	}
	if len(of) == 0 {
		then(nil)
		return
	}
	l.do(AwaitTree{of, l.building != nil}, func(d Done) { then(d.Err) })
}

// CheckReady refuses what cannot be asked of a lab that is still being built.
func (l *Lab) CheckReady() error {
	if l.building != nil || !l.present {
		return failure.Errorf(failure.Usage, "lab %s is still starting", l.name)
	}
	return nil
}
