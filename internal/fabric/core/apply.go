package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/topology"
)

// This file is how a lab that is up becomes that of another topology. It first removes what is not to stay, then alters
// links that go on, then has the new topology be the lab's, with all that is new in it as if it had gone down, and waits
// until wanted and found are the same again. After each step Lab.topo says what there is: whoever looks meanwhile, or
// after an Apply that came to no end, sees that, and another Apply goes on from there.

// An apply is an Apply on its way.
type apply struct {
	id        uint64 // of the Ask
	to        *topology.Topology
	steps     []func(done func(error)) // that are still to be taken, one after the other
	cancelled bool
	// What follows is of the last step.
	complete func(error) // ends it; nil before it, and when only spanning trees are waited for
	added    []*link     // that were not there before
	starts   []*node     // that are still to be started, in the order of the topology
	starting []*node     // whose agents are being started, or the ones before ended
	pending  int         // nodes that are still to become ready, and RenewNames
}

// startsAtOnce bounds how many agents an Apply has started at once, so that those it has not come to stay down when
// nobody waits for it any more. Nodes that wait for others do not count: their agents are there.
const startsAtOnce = 16

// apply takes Apply.
func (l *Lab) apply(a Ask, c Apply) {
	d, err := l.compare(c)
	if err != nil {
		l.answer(Answer{ID: a.ID, Err: err})
		return
	}
	p := &apply{id: a.ID, to: c.Topology}
	l.applying = p
	for i := range d.Links {
		if c := &d.Links[i]; c.Action == diff.Remove || c.Action == diff.Replace {
			p.steps = append(p.steps, func(done func(error)) { l.removeLink(c.Endpoints, done) })
		}
	}
	for i := range d.Nodes {
		if c := &d.Nodes[i]; c.Action == diff.Remove || c.Action == diff.Replace {
			p.steps = append(p.steps, func(done func(error)) { l.removeNode(c.Name, done) })
		}
	}
	for i := range d.Links {
		if c := &d.Links[i]; c.Action == diff.Alter {
			p.steps = append(p.steps, func(done func(error)) {
				l.linkBetween(c.Endpoints).alter(*c, func(err error) {
					if err == nil {
						l.take(without(l.topo, keepNode, keepLink, c.Is))
					}
					done(err)
				})
			})
		}
	}
	p.steps = append(p.steps, func(done func(error)) { l.adopt(p, d, done) })
	l.stepApply()
}

// compare is what has to happen for the lab to be that of a topology, which it gives the lab's seed.
func (l *Lab) compare(c Apply) (*diff.Difference, error) {
	switch {
	case l.applying != nil:
		return nil, failure.Errorf(failure.Usage, "lab %s is being changed already", l.name)
	case l.running || l.restoring != nil:
		return nil, failure.Errorf(failure.Usage, "lab %s is running its workloads: apply when they are done", l.name)
	case c.Generation != l.generation:
		return nil, failure.Errorf(failure.Usage, "lab %s was changed meanwhile: apply again", l.name)
	}
	d, err := diff.Compare(l.topo, c.Topology)
	if refused := (*diff.RefusedError)(nil); errors.As(err, &refused) {
		return nil, failure.Errorf(failure.Usage, "%v, which a lab that is up cannot", refused)
	}
	if err != nil {
		return nil, err
	}
	c.Topology.Seed, c.Topology.HasSeed = l.topo.Seed, true
	c.Topology.KeepLabels(l.topo.Labels)
	return d, nil
}

// stepApply takes the next step. When nobody waits for the Apply any more, none begins, and none is interrupted.
func (l *Lab) stepApply() {
	p := l.applying
	switch {
	case p.cancelled:
		l.endApply(errInterrupted)
	case len(p.steps) == 0:
		l.endApply(nil)
	default:
		next := p.steps[0]
		p.steps = p.steps[1:]
		next(func(err error) {
			if l.applying != p { // it has ended by another failure
				return
			}
			if err != nil {
				l.endApply(err)
				return
			}
			l.stepApply()
		})
	}
}

// errInterrupted is why an Apply does not come to its end that nobody waits for.
var errInterrupted = errors.New("it was interrupted")

// endApply ends an Apply, with what has kept it from coming to its end.
func (l *Lab) endApply(err error) {
	p := l.applying
	l.applying = nil
	if err != nil {
		l.unfinished = err.Error()
		l.do(RenewNames{}, nil)
		l.answer(Answer{ID: p.id, Err: fmt.Errorf("lab %s is changed in part: %w", l.name, err)})
		return
	}
	l.unfinished = ""
	l.tell(Tell{Kind: LabChanged, Text: fmt.Sprintf("lab %s is as its file says: nodes: %d, links: %d", l.name, len(p.to.Nodes), len(p.to.Links))})
	l.answer(Answer{ID: p.id})
}

// applyFailed ends an Apply under way by a failure, and reports whether there was one.
func (l *Lab) applyFailed(err error) bool {
	if l.applying == nil {
		return false
	}
	l.endApply(err)
	return true
}

// linkBetween is the link between two ends.
func (l *Lab) linkBetween(ends [2]topology.Endpoint) *link {
	return l.links[slices.IndexFunc(l.links, func(k *link) bool { return k.spec.Endpoints == ends })]
}

// removeLink removes a link with its interfaces.
func (l *Lab) removeLink(ends [2]topology.Endpoint, done func(error)) {
	k := l.linkBetween(ends)
	k.stuck = nil
	k.gone = func() {
		l.take(without(l.topo, keepNode, func(l *topology.Link) bool { return l.Endpoints != ends }, nil))
		l.do(ForgetLink{k.spec}, nil)
		l.tell(Tell{Kind: LinkRemoved, Link: k.name(), Text: fmt.Sprintf("%s is removed", linkTo(k.spec))})
		done(nil)
	}
	k.schedule()
}

// removeNode removes a node, whose links have gone.
func (l *Lab) removeNode(name string, done func(error)) {
	gone := func(err error) {
		if err == nil {
			l.take(without(l.topo, func(n *topology.Node) bool { return n.Name != name }, keepLink, nil))
			l.do(ForgetNode{name}, nil)
			l.tell(Tell{Kind: NodeRemoved, Node: name, Text: fmt.Sprintf("node %s is removed", name)})
		}
		done(err)
	}
	if b := l.switchOf(name); b != nil {
		b.gone = gone
		b.advance()
		return
	}
	l.byName[name].request(&nodeRequest{stop: removed, remove: true, done: func(_ *nodeRequest, err error) { gone(err) }})
}

// adopt has the new topology be the lab's, with what is new in it down, and has the rest follow.
func (l *Lab) adopt(p *apply, d *diff.Difference, done func(error)) {
	was := map[*node]bool{}
	for _, n := range l.nodes {
		was[n] = true
	}
	old := map[*link]bool{}
	for _, k := range l.links {
		old[k] = true
	}
	l.take(p.to)
	restart := map[string]bool{}
	for _, c := range d.Nodes {
		restart[c.Name] = c.Action == diff.Restart
	}
	for _, b := range l.switches {
		b.advance()
	}
	for _, k := range l.links {
		k.stuck = nil
		if !old[k] || !k.whole() {
			p.added = append(p.added, k)
		}
		k.schedule()
	}
	for _, n := range l.nodes {
		if !was[n] {
			n.reason, n.due = notStarted, true
		}
		n.due = n.due || restart[n.spec.Name] && n.phase != absent && n.phase != clearing
		n.stale = n.phase != absent && !n.due
		if n.due || n.owed {
			p.starts = append(p.starts, n)
		}
		n.schedule()
	}
	l.beginStarts(p)
	p.pending++
	l.do(RenewNames{}, func(d Done) {
		p.pending--
		if d.Err != nil {
			l.tell(Tell{Kind: Warning, Text: d.Err.Error()})
		}
	})
	p.complete = done
}

// beginStarts has the next nodes be started, and reports whether there were any.
func (l *Lab) beginStarts(p *apply) (begun bool) {
	p.starting = slices.DeleteFunc(p.starting, func(n *node) bool { return !n.due && n.phase != starting })
	for len(p.starts) > 0 && len(p.starting) < startsAtOnce {
		n := p.starts[0]
		p.starts = p.starts[1:]
		p.starting = append(p.starting, n)
		l.startDue(p, n)
		begun = true
	}
	return begun
}

// startDue has a node be started, also if it is up.
func (l *Lab) startDue(p *apply, n *node) {
	p.pending++
	n.request(&nodeRequest{stop: changed, start: true, due: true, done: func(_ *nodeRequest, err error) {
		p.pending--
		if err != nil && l.applying == p {
			l.applyFailed(err) // others may wait for this one
		}
	}})
}

// advanceApply goes on when wanted and found are the same.
func (l *Lab) advanceApply() (advanced bool) {
	p := l.applying
	switch {
	case p == nil || p.complete == nil:
		return false
	case l.beginStarts(p):
		return true
	case p.pending > 0:
		return false
	}
	for _, n := range l.nodes {
		if n.phase == up && (n.stale || n.open > 0 && n.stages.settled) {
			return false
		}
	}
	for _, k := range l.links {
		if !k.converged() {
			return false
		}
	}
	done := p.complete
	p.complete = nil
	made := slices.DeleteFunc(p.added, func(k *link) bool { return !k.whole() })
	for _, k := range made {
		l.tell(Tell{Kind: LinkAdded, Link: k.name(), Text: fmt.Sprintf("%s is there", linkTo(k.spec))})
	}
	l.awaitTree(made, func(err error) {
		if l.applying == p {
			done(err)
		}
	})
	return true
}

func keepNode(*topology.Node) bool { return true }
func keepLink(*topology.Link) bool { return true }

// without is what remains of a topology with some of its nodes and links: of routes those whose next hops are on these,
// nodes to wait for that remain, and of what is to be done with the lab nothing, until it is complete again. altered
// takes the place of the link with the same ends; it may be nil.
func without(of *topology.Topology, node func(*topology.Node) bool, link func(*topology.Link) bool, altered *topology.Link) *topology.Topology {
	t := &topology.Topology{Name: of.Name, Seed: of.Seed, HasSeed: of.HasSeed, Labels: of.Labels}
	index := make([]int, len(of.Links))
	for i := range of.Links {
		index[i] = -1
		if !link(&of.Links[i]) {
			continue
		}
		index[i] = len(t.Links)
		l := of.Links[i]
		if altered != nil && l.Endpoints == altered.Endpoints {
			l = *altered
		}
		t.Links = append(t.Links, l)
	}
	at := func(faces []topology.Interface) (stay []topology.Interface) {
		for _, f := range faces {
			if f.Link = index[f.Link]; f.Link >= 0 {
				stay = append(stay, f)
			}
		}
		return stay
	}
	for _, n := range of.Nodes {
		if node(&n) {
			n.Interfaces = at(n.Interfaces)
			n.Routes = onInterfaces(n.Routes, n.Interfaces)
			n.Setup.WaitFor = slices.DeleteFunc(slices.Clone(n.Setup.WaitFor), func(w topology.Wait) bool {
				return !node(of.FindNode(w.Node))
			})
			t.Nodes = append(t.Nodes, n)
		}
	}
	t.Externals = at(of.Externals)
	return t
}

// onInterfaces is the routes by next hops in subnets of interfaces.
func onInterfaces(routes []topology.Route, faces []topology.Interface) []topology.Route {
	var stay []topology.Route
	for _, r := range routes {
		r.Via = slices.DeleteFunc(slices.Clone(r.Via), func(via netip.Addr) bool {
			return !slices.ContainsFunc(faces, func(f topology.Interface) bool {
				return slices.ContainsFunc(f.Addresses, func(a netip.Prefix) bool { return a.Masked().Contains(via) })
			})
		})
		if len(r.Via) > 0 {
			stay = append(stay, r)
		}
	}
	return stay
}
