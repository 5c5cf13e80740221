package core

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// begin begins a command, which is answered later. It returns the error if the command is refused.
func (l *Lab) begin(a Ask) error {
	if _, first := a.Command.(Build); first {
		l.building = &build{lab: l, id: a.ID}
		l.building.begin()
		return nil
	}
	if err := l.CheckReady(); err != nil {
		return err
	}
	switch c := a.Command.(type) {
	case ChangeNode:
		if b := l.switchOf(c.Node); b != nil {
			return b.change(a, c)
		}
		n, err := l.withProcesses(c.Node)
		if err != nil {
			return err
		}
		return n.change(a, c)
	case SetLink:
		return l.withLink(c.Link, func(k *link) error {
			return k.set(a, c.From, c.Change.String(), func(_ int, i topology.Impairment) topology.Impairment { return c.Change.Apply(i) })
		})
	case ResetLink:
		return l.withLink(c.Link, func(k *link) error {
			return k.set(a, c.From, "reset", func(d int, _ topology.Impairment) topology.Impairment { return k.spec.Directions[d] })
		})
	case SwitchLink:
		return l.withLink(c.Link, func(k *link) error {
			k.switchTo(a, c.Up)
			return nil
		})
	case Partition:
		return l.partitions.begin(a, c.Sets)
	case Heal:
		l.partitions.heal(a)
	case Apply:
		return l.apply(a, c)
	case BeginRun:
		return l.runs.begin(a)
	case EndRun:
		l.runs.end(a)
	}
	return nil
}

// CheckReady returns an error while the lab is being built and takes no other command.
func (l *Lab) CheckReady() error {
	if l.building != nil || !l.present {
		return failure.Errorf(failure.Usage, "lab %s is still starting", l.name)
	}
	return nil
}

// withProcesses returns the host or router of a name, whatever its state.
func (l *Lab) withProcesses(name string) (*node, error) {
	switch n := l.byName[name]; {
	case l.switchOf(name) != nil:
		return nil, failure.Errorf(failure.Usage, "%s is a %s: it has no processes", name, topology.Switch)
	case n == nil:
		return nil, failure.Errorf(failure.Usage, "lab %s has no node %q", l.name, name)
	default:
		return n, nil
	}
}

// withLink calls do with the link of an index.
func (l *Lab) withLink(index int, do func(*link) error) error {
	if index < 0 || index >= len(l.links) {
		return failure.Errorf(failure.Usage, "lab %s has no link %d", l.name, index)
	}
	return do(l.links[index])
}

// answer answers a command. It does nothing for a request that is not a command.
func (l *Lab) answer(a Answer) {
	if a.ID != 0 {
		l.do(a, nil)
	}
}

// cancel takes Cancel. It drops the request of the command, if that has not begun, and answers a request that only waits.
func (l *Lab) cancel(c Cancel) {
	if p := l.applying; p != nil && p.id == c.ID {
		p.cancel()
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
	for _, b := range l.switches {
		if i := slices.IndexFunc(b.requests, func(r *bridgeRequest) bool { return r.id == c.ID }); i >= 0 && !b.requests[i].begun {
			r := b.requests[i]
			b.requests = slices.Delete(b.requests, i, i+1)
			r.done(r, fmt.Errorf("node %s: %w", b.spec.Name, c.Cause))
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
