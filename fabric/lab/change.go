package lab

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/ndklab/ndklab/topology"
	"github.com/ndklab/ndklab/topology/diff"
)

// A change is the lab on its way to another topology (apply.go). Its Supervisor is
// the lab as it is by now.
type change struct {
	*Supervisor
	to         *topology.Topology
	difference *diff.Difference
}

// all is all steps. When ctx ends, it does not begin another one; none is interrupted.
func (c *change) all(ctx context.Context) error {
	if err := c.takeAway(ctx); err != nil {
		return err
	}
	if err := c.alter(ctx); err != nil {
		return err
	}
	if err := c.adopt(c.to); err != nil {
		return err
	}
	return c.complete(ctx)
}

// takeAway removes links and nodes that do not stay, or not as they are.
func (c *change) takeAway(ctx context.Context) error {
	goneLinks, goneNodes := map[[2]topology.Endpoint]bool{}, map[string]bool{}
	err := func() error {
		for _, d := range c.difference.Links {
			if d.Action != diff.Remove && d.Action != diff.Replace {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.removeLink(c.linkOf(d.Endpoints)); err != nil {
				return err
			}
			goneLinks[d.Endpoints] = true
		}
		for _, d := range c.difference.Nodes {
			if d.Action != diff.Remove && d.Action != diff.Replace {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.removeNode(d.Name); err != nil {
				return err
			}
			goneNodes[d.Name] = true
		}
		return nil
	}()
	if len(goneLinks)+len(goneNodes) == 0 {
		return err
	}
	remains := part(c.topo, func(n *topology.Node) bool { return !goneNodes[n.Name] }, func(l *topology.Link) bool { return !goneLinks[l.Endpoints] })
	return errors.Join(err, c.adopt(remains))
}

// linkOf is the link between two ends.
func (s *Supervisor) linkOf(ends [2]topology.Endpoint) *labLink {
	i := slices.IndexFunc(s.links, func(l *labLink) bool { return l.spec.Endpoints == ends })
	return s.links[i]
}

// removeLink removes a link with its interfaces.
func (s *Supervisor) removeLink(l *labLink) error {
	if err := l.lock(context.Background()); err != nil {
		return err
	}
	defer l.unlock()
	if l.whole() {
		if err := s.takeApart(l); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
	}
	for end := range 2 {
		if err := s.network.RemoveEnd(l.spec.Number, end); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
	}
	l.mu.Lock()
	l.missing = [2]bool{true, true}
	l.mu.Unlock()
	close(l.gone)
	s.Publish(Event{Kind: LinkRemoved, Link: l.name(), Text: fmt.Sprintf("link %s to %s is removed", l.spec.Endpoints[0], l.spec.Endpoints[1])})
	return nil
}

// removeNode removes a node, whose links have gone.
func (s *Supervisor) removeNode(name string) error {
	if sw := s.switches[name]; sw != nil {
		if err := s.network.RemoveBridge(sw.bridge); err != nil {
			return fmt.Errorf("switch %s: %w", name, err)
		}
	} else {
		_, n, err := s.hold(context.Background(), name)
		if err != nil {
			return err
		}
		n.reviver.cancel()
		if n.status().State != nodeDown {
			s.stop(n, "it was removed")
		}
		n.unlock()
	}
	s.Publish(Event{Kind: NodeRemoved, Node: name, Text: fmt.Sprintf("node %s is removed", name)})
	return nil
}

// part is what remains of a topology with some of its nodes and links: of what is to
// be done with the lab nothing, until it is complete again.
func part(of *topology.Topology, node func(*topology.Node) bool, link func(*topology.Link) bool) *topology.Topology {
	t := &topology.Topology{Name: of.Name, Seed: of.Seed, HasSeed: of.HasSeed}
	index := make([]int, len(of.Links))
	for i := range of.Links {
		if index[i] = -1; link(&of.Links[i]) {
			index[i] = len(t.Links)
			t.Links = append(t.Links, of.Links[i])
		}
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
			t.Nodes = append(t.Nodes, n)
		}
	}
	t.Externals = at(of.Externals)
	return t
}

// alter changes links that go on.
func (c *change) alter(ctx context.Context) error {
	altered := map[[2]topology.Endpoint]*topology.Link{}
	err := func() error {
		for _, d := range c.difference.Links {
			if d.Action != diff.Alter {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.alterLink(context.WithoutCancel(ctx), c.linkOf(d.Endpoints), d); err != nil {
				return err
			}
			altered[d.Endpoints] = d.Is
		}
		return nil
	}()
	if len(altered) == 0 {
		return err
	}
	remains := part(c.topo, func(*topology.Node) bool { return true }, func(*topology.Link) bool { return true })
	for i := range remains.Links {
		if is := altered[remains.Links[i].Endpoints]; is != nil {
			remains.Links[i] = *is
		}
	}
	return errors.Join(err, c.adopt(remains))
}

// alterLink changes what a link does and how large its packets are. What the file
// leaves as it was stays as it is, also if a command has changed it.
func (s *Supervisor) alterLink(ctx context.Context, l *labLink, d diff.Link) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if d.Was.MTU != d.Is.MTU {
		if err := s.network.SetMTU(l.spec.Number, d.Is.MTU, s.ends(l)); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
	}
	before, after := l.asked, l.asked
	for direction := range after {
		if !d.Was.Directions[direction].Equal(d.Is.Directions[direction]) {
			after[direction] = d.Is.Directions[direction]
		}
	}
	l.ask(after)
	if l.whole() {
		if err := s.enforce(ctx, l, before); err != nil {
			l.ask(before)
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
		if l.carrier != nil && !l.impaired() {
			s.relieveLater(l)
		}
	}
	if d.Was.Down != d.Is.Down {
		if err := s.switchLink(ctx, l, d.Is.Down, l.parted); err != nil {
			return err
		}
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: d.String()[len("~ "):]})
	return nil
}

// adopt has a topology be the lab's. Nodes and links that are new in it are down: their
// interfaces are not there as yet, and who of the others has to do something about that
// is noted (nodeState.due).
func (c *change) adopt(topo *topology.Topology) error {
	before := c.Supervisor
	after := &Supervisor{before.core, &roster{
		topo: topo, segments: segments(topo), byName: map[string]*labNode{}, switches: map[string]*labSwitch{}, groups: before.groups,
	}}
	if err := after.takeSwitches(before); err != nil {
		return err
	}
	added := after.takeLinks(before)
	for _, x := range before.externals {
		i := slices.IndexFunc(topo.Externals, func(f topology.Interface) bool { return f.Name == x.spec.Name })
		after.externals = append(after.externals, &external{&topo.Externals[i], x.namespace, x.path, x.name})
	}
	restarts := map[string]bool{}
	for _, d := range c.difference.Nodes {
		restarts[d.Name] = topo == c.to && d.Action == diff.Restart
	}
	for i := range topo.Nodes {
		spec := &topo.Nodes[i]
		if spec.Kind == topology.Switch {
			continue
		}
		n := newLabNode(spec)
		if old := before.byName[spec.Name]; old != nil && !isRemoved(c.difference, spec.Name, topo == c.to) {
			n.nodeState = old.nodeState
			face := func(f topology.Interface) bool { return added[f.Link] }
			switch {
			case restarts[spec.Name] && old.status().State != nodeDown:
				n.owe(dueStart)
			case !reflect.DeepEqual(before.nodeConfig(old.spec), after.nodeConfig(spec)) || limitsOf(old.spec) != limitsOf(spec) || slices.ContainsFunc(spec.Interfaces, face):
				n.owe(dueSettings)
			}
		} else {
			n.life = notStarted()
			n.owe(dueStart)
		}
		after.nodes = append(after.nodes, n)
		after.byName[spec.Name] = n
	}
	if newKind(limitsOfAny(before.topo), limitsOfAny(topo)) {
		after.groups = after.openGroups()
	}
	after.generation = before.generation + 1
	c.present.Store(after.roster)
	c.Supervisor = after
	return nil
}

// isRemoved reports whether a node of that name is another one than it was.
func isRemoved(d *diff.Difference, name string, final bool) bool {
	return final && slices.ContainsFunc(d.Nodes, func(n diff.Node) bool { return n.Name == name && n.Action == diff.Replace })
}

// takeSwitches takes over the switches that were there before, and makes others.
func (s *Supervisor) takeSwitches(before *Supervisor) error {
	used := map[int]bool{}
	for _, sw := range before.switches {
		used[sw.number] = true
	}
	number := 0
	for i := range s.topo.Nodes {
		spec := &s.topo.Nodes[i]
		if spec.Kind != topology.Switch {
			continue
		}
		if old := before.switches[spec.Name]; old != nil {
			s.switches[spec.Name] = &labSwitch{spec, old.number, old.bridge}
			continue
		}
		for used[number] {
			number++
		}
		used[number] = true
		if err := s.makeSwitch(spec, number); err != nil {
			return err
		}
	}
	return nil
}

// takeLinks takes over the links that were there before. Of others, which it returns
// by their index, no end is there as yet.
func (s *Supervisor) takeLinks(before *Supervisor) (added map[int]bool) {
	was := map[int]*labLink{}
	for _, l := range before.links {
		was[l.spec.Number] = l
	}
	added = map[int]bool{}
	for i := range s.topo.Links {
		l := newLabLink(i, &s.topo.Links[i])
		if old := was[l.spec.Number]; old != nil && old.spec.Endpoints == l.spec.Endpoints && !isClosed(old.gone) {
			l.linkState = old.linkState
		} else {
			l.missing = [2]bool{true, true}
			added[i] = true
		}
		s.links = append(s.links, l)
	}
	return added
}

// complete makes what is not there as yet, and has the nodes that are there do what
// they owe.
func (c *change) complete(ctx context.Context) error {
	s := c.Supervisor
	var made []int
	for i, l := range s.links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !l.state().whole {
			made = append(made, i)
			if err := s.plugFixed(context.WithoutCancel(ctx), l); err != nil {
				return err
			}
		}
	}
	err := parallel(ctx, 16, len(s.nodes), func(ctx context.Context, i int) error {
		return s.settleDue(context.WithoutCancel(ctx), s.nodes[i])
	})
	if err != nil {
		return err
	}
	made = slices.DeleteFunc(made, func(i int) bool { return !s.links[i].state().whole })
	for _, i := range made {
		l := s.links[i]
		s.Publish(Event{Kind: LinkAdded, Link: l.name(), Text: fmt.Sprintf("link %s to %s is there", l.spec.Endpoints[0], l.spec.Endpoints[1])})
	}
	return s.growTree(ctx, made...)
}

// plugFixed makes the ends of a new link that are not in nodes with processes.
func (s *Supervisor) plugFixed(ctx context.Context, l *labLink) error {
	for end, e := range l.spec.Endpoints {
		if s.switches[e.Node] == nil || !l.state().missing[end] {
			continue
		}
		if err := s.replug(ctx, l, end, 0); err != nil {
			return err
		}
		if err := s.network.OpenPort(l.spec.Number, end); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
		if err := s.plugged(ctx, l, end); err != nil {
			return err
		}
	}
	return nil
}

// What a node owes to the topology that it has got: it is to be done, by an Apply that
// can be interrupted before.
type due int

const (
	dueNothing  due = iota
	dueSettings     // its interfaces, addresses, neighbours, routes or limits are others by now
	dueStart        // it is to be started, also if it is up
)

// owe notes what the node has to do, unless it owes more.
func (n *labNode) owe(what due) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due = max(n.due, what)
}

// settleDue has a node do what it owes.
func (s *Supervisor) settleDue(ctx context.Context, n *labNode) error {
	s, n, err := s.hold(ctx, n.spec.Name)
	if err != nil {
		return err
	}
	defer n.unlock()
	n.mu.Lock()
	owed := n.due
	n.mu.Unlock()
	up := n.status().State != nodeDown
	switch {
	case owed == dueStart:
		n.reviver.cancel()
		if up {
			s.stop(n, "it starts again with other settings")
		}
		err = s.startAgain(ctx, n)
	case owed == dueSettings && up:
		err = s.reconfigure(ctx, n)
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due = dueNothing
	return nil
}

// reconfigure makes the interfaces that a node which is up has not got as yet, and
// has its network and limits be what the topology says. The caller has the right to
// change the node.
func (s *Supervisor) reconfigure(ctx context.Context, n *labNode) error {
	life := n.current()
	if life.group != nil {
		if err := life.group.Set(limitsOf(n.spec)); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	agent := life.agent
	var fresh []topology.Interface
	for _, i := range n.spec.Interfaces {
		l := s.links[i.Link]
		if !l.state().missing[i.End] {
			continue
		}
		if err := s.replug(ctx, l, i.End, agent.PID()); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
		fresh = append(fresh, i)
	}
	if err := agent.Reconfigure(s.lifeConfig(n)); err != nil {
		return err
	}
	for _, i := range fresh {
		if err := s.plugged(ctx, s.links[i.Link], i.End); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	return nil
}

// notStarted is the life of a node that is still to be started.
func notStarted() *life {
	l := &life{down: make(chan struct{}), over: make(chan struct{}), reason: "it has not been started yet"}
	close(l.down)
	close(l.over)
	return l
}

// A plugState is which ends of a link are there.
type plugState struct {
	missing [2]bool
	whole   bool
}

func (l *labLink) state() plugState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return plugState{l.missing, l.whole()}
}
