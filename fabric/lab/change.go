package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
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
		if n.status().State != nodeDown {
			s.stop(n, "it was removed")
		}
		n.reviver.Cancel() // also of a life that ended just before
		close(n.gone)
		n.unlock()
	}
	s.Publish(Event{Kind: NodeRemoved, Node: name, Text: fmt.Sprintf("node %s is removed", name)})
	return nil
}

// part is what remains of a topology with some of its nodes and links: of routes those
// whose next hops are on these, nodes to wait for that remain, and of what is to be done with the lab nothing, until it
// is complete again.
func part(of *topology.Topology, node func(*topology.Node) bool, link func(*topology.Link) bool) *topology.Topology {
	t := &topology.Topology{Name: of.Name, Seed: of.Seed, HasSeed: of.HasSeed, Labels: of.Labels}
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
	before, after, lasting := l.asked, l.asked, l.lasting.asked
	for direction := range after {
		if !d.Was.Directions[direction].Equal(d.Is.Directions[direction]) {
			after[direction], lasting[direction] = d.Is.Directions[direction], d.Is.Directions[direction]
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
	l.last(byHand, func(r *request) { r.asked = lasting })
	if d.Was.Down != d.Is.Down {
		if err := s.switchLink(ctx, l, d.Is.Down, l.parted); err != nil {
			return err
		}
		l.last(byHand, func(r *request) { r.down = d.Is.Down })
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
		after.externals = append(after.externals, &external{spec: &topo.Externals[i], namespace: x.namespace, path: x.path, name: x.name})
	}
	owes := map[*labNode]due{}
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
		if old := before.byName[spec.Name]; old != nil {
			n.nodeState = old.nodeState
			face := func(f topology.Interface) bool { return added[f.Link] }
			switch {
			case restarts[spec.Name] && old.status().State != nodeDown:
				owes[n] = dueStart
			case !reflect.DeepEqual(before.nodeConfig(old.spec), after.nodeConfig(spec)) || limitsOf(old.spec) != limitsOf(spec) || slices.ContainsFunc(spec.Interfaces, face):
				owes[n] = dueSettings
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
	if err := after.renewHosts(); err != nil {
		log.Print(err)
	}
	c.Supervisor = after
	// Only now: a node that is being started meanwhile, as it was before, forgets what it
	// owes and then looks at the lab (startAgain).
	for n, what := range owes {
		n.owe(what)
	}
	return nil
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
		if old := was[l.spec.Number]; old != nil && old.spec.Endpoints == l.spec.Endpoints {
			l.linkState = old.linkState
		} else {
			l.missing = [2]bool{true, true}
			added[i] = true
		}
		s.links = append(s.links, l)
	}
	return added
}
