package core

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// A build is the first start of a lab. It adds two things to the rules of nodes and links: all of them wait for each other,
// and the failure of one ends the lab.
type build struct {
	lab    *Lab
	id     uint64 // of the Ask
	nodes  int    // those before this index have passed the step under way
	links  int
	busy   bool  // an action is waited for
	notice timer // when everyone is told next which nodes the build waits for
}

const notReady = "the nodes are not ready"

// stepOf names what a build does in a phase of a node.
var stepOf = map[phase]string{
	starting: "start the nodes", linking: "link the nodes", preparing: "link the nodes", configuring: "link the nodes",
	connecting: "connect the links", up: notReady,
}

// begin takes Build.
func (b *build) begin() {
	l := b.lab
	for _, k := range l.links {
		for _, asked := range k.asked.impairments {
			if err := k.check(asked); err != nil {
				b.fail(stepOf[linking], fmt.Errorf("%s: %w", linkTo(k.spec), err))
				return
			}
		}
	}
	b.notice.expired = b.notify
	l.timers.set(&b.notice, l.now+firstNotice)
	l.routing.renew(func(k *link) bool { return !k.asked.down })
	for _, n := range l.nodes {
		n.start()
	}
	for _, s := range l.switches {
		s.advance()
	}
	for _, k := range l.links {
		k.schedule()
	}
}

// fail ends the lab, which cannot be built.
func (b *build) fail(step string, err error) {
	if step != "" {
		err = fmt.Errorf("%s: %w", step, err)
	}
	err = fmt.Errorf("lab %s: %w", b.lab.name, err)
	b.lab.answer(Answer{ID: b.id, Err: err})
	b.lab.end(err)
}

// advance takes the next step when all nodes and links have passed the one before, and reports whether it has. b may be nil.
func (b *build) advance() (advanced bool) {
	if b == nil || b.busy || !b.passed() {
		return false
	}
	l := b.lab
	b.nodes, b.links, b.busy = 0, 0, true
	switch {
	case !l.carries:
		l.do(BeginLinks{}, func(d Done) { b.stepDone("", d.Err, &l.carries) })
	case !l.present:
		l.awaitSpanningTree(l.links, func(err error) { b.stepDone("spanning tree", err, &l.present) })
	default:
		l.building = nil
		b.notice.stop()
		l.notify(Notify{Kind: event.LabReady, Text: "all nodes are ready"})
		l.answer(Answer{ID: b.id})
	}
	return true
}

// stepDone ends a step. It sets reached and schedules all nodes and links, which may depend on it, or fails with err.
func (b *build) stepDone(step string, err error, reached *bool) {
	if err != nil {
		b.fail(step, err)
		return
	}
	*reached, b.busy = true, false
	for _, n := range b.lab.nodes {
		n.scheduleWithLinks()
	}
	for _, k := range b.lab.links {
		k.schedule()
	}
}

// passed reports whether all nodes and links are as far as the next step needs. It does not look again at one that is.
func (b *build) passed() bool {
	l := b.lab
	for ; b.nodes < len(l.nodes); b.nodes++ {
		n := l.nodes[b.nodes]
		switch {
		case !l.carries && n.phase != connecting, !l.present && l.carries && n.phase != up, l.present && !n.stages.finished:
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

// notify tells everyone which nodes the build waits for or, before any has something of its own to do, how far
// all of them are.
func (b *build) notify() {
	b.lab.timers.set(&b.notice, b.lab.now+waitingPeriod)
	const most = 8
	var texts []string
	others, started, linked := 0, 0, 0
	for _, n := range b.lab.nodes {
		if n.phase >= linking && n.phase <= up {
			started++
		}
		if n.phase == connecting || n.phase == up {
			linked++
		}
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
	if len(texts) == 0 && linked < len(b.lab.nodes) {
		texts = []string{fmt.Sprintf("of %d nodes %d are started, %d are linked", len(b.lab.nodes), started, linked)}
	}
	if len(texts) > 0 {
		b.lab.notify(Notify{Kind: event.LabWaiting, Text: "waiting: " + strings.Join(texts, ", ")})
	}
}
