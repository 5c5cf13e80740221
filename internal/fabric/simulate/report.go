package simulate

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/topology"
)

// This file is the lab's state as reports have it.

// engine is the name that reports have for the engine of all links.
const engine = "simulated"

// Nodes implements scenario.Stage.
func (l *lab) Nodes(names []string, done func([]report.Node)) {
	var all []report.Node
	for _, n := range l.chosen(names, func(*node) bool { return true }) {
		all = append(all, l.report(n))
	}
	l.clock.Go(func() { done(all) })
}

// Adapters implements scenario.Stage.
func (l *lab) Adapters(names []string, done func([]report.NodeAdapter)) {
	var all []report.NodeAdapter
	for _, n := range l.chosen(names, func(n *node) bool { return n.spec.Kind == topology.Host }) {
		a := report.NodeAdapter{NodeState: l.state(n)}
		if n.life != nil && !n.paused {
			a.Adapter = adapter.Describe(n.life.device, n.interfaces())
		}
		all = append(all, a)
	}
	l.clock.Go(func() { done(all) })
}

// Links implements scenario.Stage.
func (l *lab) Links(done func([]report.Link, error)) {
	all := make([]report.Link, len(l.network.links))
	for i, k := range l.network.links {
		all[i] = k.report()
	}
	l.clock.Go(func() { done(all, nil) })
}

// Buffers implements scenario.Stage.
func (l *lab) Buffers(done func([]report.Buffer, []report.Deadlock, *report.Series)) {
	buffers, deadlocks, series := l.network.plane.Figures(), l.network.plane.Deadlocks(), l.network.series()
	l.clock.Go(func() { done(buffers, deadlocks, series) })
}

// chosen is the nodes of those names, or of nil all for which keep is true.
func (l *lab) chosen(names []string, keep func(*node) bool) (list []*node) {
	if names == nil {
		for _, n := range l.network.nodes {
			if keep(n) {
				list = append(list, n)
			}
		}
		return list
	}
	for _, name := range names {
		if n := l.network.byName[name]; n != nil {
			list = append(list, n)
		}
	}
	return list
}

func (l *lab) state(n *node) report.NodeState {
	s := l.core.Node(n.spec.Name)
	return report.NodeState{Name: n.spec.Name, State: s.State, Reason: s.Reason}
}

func (l *lab) report(n *node) report.Node {
	r := report.Node{
		NodeState: l.state(n), Kind: string(n.spec.Kind), Restarts: l.core.Node(n.spec.Name).Restarts,
		Addresses: []string{}, Counters: map[string]uint64{}, Transport: map[string]uint64{},
	}
	for _, i := range n.spec.Interfaces {
		for _, a := range i.Addresses {
			r.Addresses = append(r.Addresses, a.String())
		}
	}
	if n.life != nil && !n.paused {
		r.Counters, r.Transport = n.life.device.Counters().Map(), n.life.device.TransportCounters()
	}
	return r
}

// interfaces is the name of the interface that has each address.
func (n *node) interfaces() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, i := range n.spec.Interfaces {
		for _, a := range i.Addresses {
			names[a.Addr()] = i.Name
		}
	}
	return names
}

func (k *link) report() report.Link {
	r := report.Link{Engine: engine, State: "up"}
	if !k.on {
		r.State = "down"
	}
	for d, e := range k.spec.Endpoints {
		r.Endpoints[d] = e.String()
		m := k.wires[d].Statistics()
		r.Directions[d] = linkreport.Direction(&m)
		settings := k.wires[d].Settings()
		r.Directions[d].From, r.Directions[d].Settings, r.Directions[d].Set = e.String(), settings.Settings(), linkreport.Set(settings)
	}
	return r
}
