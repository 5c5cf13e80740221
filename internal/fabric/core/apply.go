package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/topology"
)

// An apply is an Apply that is under way. It turns the lab into that of another topology. It first removes what is not to
// stay, then alters links that stay. Then it replaces the lab's topology, with all that is new in it down, and waits until
// wanted and found are the same again. Each step leaves the nodes and links that there are in Lab.topo. Others see these
// meanwhile, and another Apply goes on from there if this one fails.
type apply struct {
	lab       *Lab
	id        uint64 // of the Ask
	to        *topology.Topology
	steps     []func(done func(error)) // that are still to be taken, one after the other
	cancelled bool
	// The following are of the last step.
	complete func(error) // ends it; nil before it, and when only spanning trees are waited for
	added    []*link     // that were not there before
	starts   []*node     // that are still to be started, in the order of the topology
	starting []*node     // whose agents are being started, or the ones before ended
	pending  int         // nodes that are still to become ready, and RenewNames
}

// startsAtOnce bounds how many agents an Apply has started at once, so that the others stay down when it is cancelled.
// Nodes that wait for others do not count: their agents are there.
const startsAtOnce = 16

// errInterrupted is the error of an Apply that is cancelled.
var errInterrupted = errors.New("it was interrupted")

// apply takes Apply.
func (l *Lab) apply(a Ask, c Apply) error {
	d, err := l.compare(c)
	if err != nil {
		return err
	}
	p := &apply{lab: l, id: a.ID, to: c.Topology}
	l.applying = p
	for i := range d.Links {
		if c := &d.Links[i]; c.Action == diff.Remove || c.Action == diff.Replace {
			p.steps = append(p.steps, func(done func(error)) { p.removeLink(c.Endpoints, done) })
		}
	}
	for i := range d.Nodes {
		if c := &d.Nodes[i]; c.Action == diff.Remove || c.Action == diff.Replace {
			p.steps = append(p.steps, func(done func(error)) { p.removeNode(c.Name, done) })
		}
	}
	for i := range d.Links {
		if c := &d.Links[i]; c.Action == diff.Alter {
			p.steps = append(p.steps, func(done func(error)) { p.alterLink(*c, done) })
		}
	}
	p.steps = append(p.steps, func(done func(error)) { p.replaceTopology(d, done) })
	p.step()
	return nil
}

// compare returns what has to happen for the lab to be that of a topology, which it gives the lab's seed.
func (l *Lab) compare(c Apply) (*diff.Difference, error) {
	switch {
	case l.applying != nil:
		return nil, failure.Errorf(failure.Usage, "lab %s is being changed already", l.name)
	case l.runs.underWay():
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

// step takes the next step. No step begins when the Apply is cancelled, and none is interrupted.
func (p *apply) step() {
	switch {
	case p.cancelled:
		p.end(errInterrupted)
	case len(p.steps) == 0:
		p.end(nil)
	default:
		next := p.steps[0]
		p.steps = p.steps[1:]
		next(func(err error) {
			switch {
			case p.ended():
			case err != nil:
				p.end(err)
			default:
				p.step()
			}
		})
	}
}

// ended reports whether the Apply has ended, which an action that fails may do at any time.
func (p *apply) ended() bool { return p.lab.applying != p }

// cancel ends the Apply after the step under way, or at once if that only waits.
func (p *apply) cancel() {
	p.cancelled = true
	if p.complete != nil || len(p.steps) == 0 {
		p.end(errInterrupted)
	}
}

// fail ends the Apply by the failure of an action, and reports whether there is an Apply: p may be nil.
func (p *apply) fail(err error) bool {
	if p != nil {
		p.end(err)
	}
	return p != nil
}

// end ends the Apply. err is why it has failed.
func (p *apply) end(err error) {
	l := p.lab
	l.applying = nil
	if err != nil {
		l.unfinished = err.Error()
		l.do(RenewNames{}, nil)
		l.answer(Answer{ID: p.id, Err: fmt.Errorf("lab %s is changed in part: %w", l.name, err)})
		return
	}
	l.unfinished = ""
	l.notify(Notify{Kind: event.LabChanged, Text: fmt.Sprintf("lab %s is as its file says: nodes: %d, links: %d", l.name, len(p.to.Nodes), len(p.to.Links))})
	l.answer(Answer{ID: p.id})
}

// link returns the lab's link between two ends.
func (p *apply) link(ends [2]topology.Endpoint) *link {
	links := p.lab.links
	return links[slices.IndexFunc(links, func(k *link) bool { return k.spec.Endpoints == ends })]
}

// removeLink removes a link with its interfaces.
func (p *apply) removeLink(ends [2]topology.Endpoint, done func(error)) {
	k, l := p.link(ends), p.lab
	k.stuck = nil
	k.onRemoved = func() {
		l.setTopology(without(l.topo, keepNode, func(l *topology.Link) bool { return l.Endpoints != ends }, nil))
		l.do(ForgetLink{k.spec}, nil)
		k.notify(event.LinkRemoved, "%s is removed", linkTo(k.spec))
		done(nil)
	}
	k.schedule()
}

// removeNode removes a node or a switch, whose links have gone.
func (p *apply) removeNode(name string, done func(error)) {
	l := p.lab
	onRemoved := func(err error) {
		if err == nil {
			l.setTopology(without(l.topo, func(n *topology.Node) bool { return n.Name != name }, keepLink, nil))
			l.do(ForgetNode{name}, nil)
			l.notify(Notify{Kind: event.NodeRemoved, Node: name, Text: fmt.Sprintf("node %s is removed", name)})
		}
		done(err)
	}
	if b := l.switchOf(name); b != nil {
		b.onRemoved = func(err error) {
			b.removed = err == nil
			onRemoved(err)
		}
		b.advance()
		return
	}
	l.byName[name].request(&nodeRequest{stop: removed, remove: true, done: func(_ *nodeRequest, err error) { onRemoved(err) }})
}

// alterLink changes a link that stays.
func (p *apply) alterLink(d diff.Link, done func(error)) {
	l := p.lab
	p.link(d.Endpoints).alter(d, func(err error) {
		if err == nil {
			l.setTopology(without(l.topo, keepNode, keepLink, d.Is))
		}
		done(err)
	})
}

// replaceTopology gives the lab the new topology. It has nodes started that are new, or that start again by the difference.
func (p *apply) replaceTopology(d *diff.Difference, done func(error)) {
	l := p.lab
	l.setTopology(p.to)
	l.routing.renew((*link).carries)
	restart := map[string]bool{}
	for _, c := range d.Nodes {
		restart[c.Name] = c.Action == diff.Restart
	}
	for _, b := range l.switches {
		b.advance()
	}
	for _, k := range l.links {
		k.stuck = nil
		if !k.whole() {
			p.added = append(p.added, k)
		}
		k.schedule()
	}
	for _, n := range l.nodes {
		n.startPending = n.startPending || restart[n.spec.Name] && n.phase != absent && n.phase != removing
		n.stale = n.phase != absent && !n.startPending
		if n.startPending || n.required {
			p.starts = append(p.starts, n)
		}
		n.schedule()
	}
	p.startNext()
	p.pending++
	l.do(RenewNames{}, func(d Done) {
		p.pending--
		if d.Err != nil {
			l.notify(Notify{Kind: event.Warning, Text: d.Err.Error()})
		}
	})
	p.complete = done
}

// startNext has the next nodes started, also if they are up, and reports whether there were any.
func (p *apply) startNext() (started bool) {
	p.starting = slices.DeleteFunc(p.starting, func(n *node) bool { return !n.startPending && n.phase != starting })
	for len(p.starts) > 0 && len(p.starting) < startsAtOnce {
		n := p.starts[0]
		p.starts = p.starts[1:]
		p.starting = append(p.starting, n)
		p.pending++
		n.request(&nodeRequest{stop: changed, start: true, pending: true, done: func(_ *nodeRequest, err error) {
			p.pending--
			if err != nil && !p.ended() {
				p.end(err) // others may wait for this node
			}
		}})
		started = true
	}
	return started
}

// advance goes on with the last step, which ends when wanted and found are the same, and reports whether it has. p may be
// nil.
func (p *apply) advance() (advanced bool) {
	switch {
	case p == nil || p.complete == nil:
		return false
	case p.startNext():
		return true
	case p.pending > 0:
		return false
	}
	for _, n := range p.lab.nodes {
		if n.phase == up && (n.stale || n.open > 0 && n.stages.finished) {
			return false
		}
	}
	for _, k := range p.lab.links {
		if !k.converged() {
			return false
		}
	}
	done := p.complete
	p.complete = nil
	made := slices.DeleteFunc(p.added, func(k *link) bool { return !k.whole() })
	for _, k := range made {
		k.notify(event.LinkAdded, "%s is there", linkTo(k.spec))
	}
	p.lab.awaitSpanningTree(made, func(err error) {
		if !p.ended() {
			done(err)
		}
	})
	return true
}

func keepNode(*topology.Node) bool { return true }
func keepLink(*topology.Link) bool { return true }

// without returns a topology without some of its nodes and links, and without the routes and waits that need these. It has
// no workloads, timeline or checks: they need the complete topology. altered takes the place of the link with the same
// ends; it may be nil.
func without(of *topology.Topology, node func(*topology.Node) bool, link func(*topology.Link) bool, altered *topology.Link) *topology.Topology {
	t := &topology.Topology{Name: of.Name, Seed: of.Seed, HasSeed: of.HasSeed, Dilation: of.Dilation, Labels: of.Labels, Convergence: of.Convergence}
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

// onInterfaces returns the routes whose next hops are in subnets of the interfaces, with no other next hops.
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
