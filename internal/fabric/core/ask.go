package core

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// ask takes a command.
func (l *Lab) ask(a Ask) {
	if _, first := a.Command.(Build); first {
		l.build(a)
		return
	}
	if err := l.CheckReady(); err != nil {
		l.answer(Answer{ID: a.ID, Err: err})
		return
	}
	switch c := a.Command.(type) {
	case ChangeNode:
		l.changeNode(a, c)
	case SetLink:
		l.setLink(a, c.Link, c.From, c.Change.String(), func(_ *link, _ int, i topology.Impairment) topology.Impairment { return c.Change.Apply(i) })
	case ResetLink:
		l.setLink(a, c.Link, c.From, "reset", func(k *link, d int, _ topology.Impairment) topology.Impairment { return k.spec.Directions[d] })
	case SwitchLink:
		l.switchLink(a, c)
	case Partition:
		l.partition(a, c.Sets)
	case Heal:
		l.heal(a)
	case Apply:
		l.apply(a, c)
	case BeginRun:
		l.beginRun(a)
	case EndRun:
		l.running = false
		l.answer(Answer{ID: a.ID})
	}
}

// answer answers a command; nothing, if it was none that is answered.
func (l *Lab) answer(a Answer) {
	if a.ID != 0 {
		l.do(a, nil)
	}
}

// cancel takes it that nobody waits for an answer any more. What has begun is not left half done.
func (l *Lab) cancel(c Cancel) {
	if p := l.applying; p != nil && p.id == c.ID {
		p.cancelled = true
		if p.complete != nil || len(p.steps) == 0 { // it only waits
			l.endApply(errInterrupted)
		}
		return
	}
	for _, n := range l.nodes {
		is := func(r *nodeRequest) bool { return r.id == c.ID }
		if i := slices.IndexFunc(n.requests, is); i >= 0 && !n.requests[i].begun {
			r := n.requests[i]
			n.requests = slices.Delete(n.requests, i, i+1)
			r.done(r, fmt.Errorf("node %s: %w", n.spec.Name, c.Cause))
			return
		}
		if i := slices.IndexFunc(n.waiting, is); i >= 0 {
			r := n.waiting[i]
			n.waiting = slices.Delete(n.waiting, i, i+1)
			r.done(r, fmt.Errorf("node %s is up, but not ready: %w", n.spec.Name, c.Cause))
			return
		}
	}
	for _, k := range l.links {
		if i := slices.IndexFunc(k.requests, func(r *linkRequest) bool { return r.id == c.ID }); i >= 0 && !k.requests[i].begun {
			r := k.requests[i]
			k.requests = slices.Delete(k.requests, i, i+1)
			r.done(false, fmt.Errorf("link %s: %w", k.name(), c.Cause))
			return
		}
	}
}
