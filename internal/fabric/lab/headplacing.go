package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/topology/parts"
	"github.com/ndklab/ndklab/topology"
)

// This file has parts follow a lab that changes. Where new nodes go is known before the core decides anything (foresee). Parts
// hear of another topology, and of what has left the lab, one after the other, and before any order that comes later.

// A placing says where nodes are, and what parts know of it.
type placing struct {
	placed  *parts.Placement
	at      map[string]*farPart // by node; those that have left the lab are in it, too
	bridges map[string]int      // the numbers of switches, which no two have at any host
	present *topology.Topology  // that parts know last
	// planned has where the nodes of topologies are that the lab is about to have.
	planned map[*topology.Topology]*parts.Placement
	known   chan struct{} // closed when parts know all that they have to by now
}

// place has the nodes of a topology be where a placement says. mu is held.
func (h *head) place(topo *topology.Topology, placed *parts.Placement) {
	h.placed, h.present = placed, topo
	if h.at == nil {
		h.at, h.bridges, h.planned = map[string]*farPart{}, map[string]int{}, map[*topology.Topology]*parts.Placement{}
		h.known = make(chan struct{})
		close(h.known)
	}
	for i := range topo.Nodes {
		name := topo.Nodes[i].Name
		h.at[name] = h.parts[placed.Of(name)]
	}
}

// hostsOf returns the hosts of the nodes of a topology. mu is held.
func (h *head) hostsOf(topo *topology.Topology) map[string]string {
	of := make(map[string]string, len(topo.Nodes))
	for i := range topo.Nodes {
		name := topo.Nodes[i].Name
		of[name] = h.at[name].Name
	}
	return of
}

// foresee places the new nodes of a topology, and has hosts be joined that will have links with each other.
func (h *head) foresee(ctx context.Context, was, is *topology.Topology) (func(), error) {
	if err := checkPorts(is); err != nil {
		return nil, err
	}
	on, kept := make([]parts.Host, len(h.parts)), make(map[string]int, len(was.Nodes))
	for i, p := range h.parts {
		on[i] = parts.Host{Name: p.Name, CPUs: p.CPUs, Memory: p.Memory}
	}
	for i := range was.Nodes {
		name := was.Nodes[i].Name
		kept[name] = slices.Index(h.parts, h.ofNode(name))
	}
	placed, err := parts.Extend(is, on, parts.UsualApart, kept)
	if err != nil {
		return nil, control.Errorf(control.Usage, "%v", err)
	}
	if err := h.checkEngines(ctx, is, placed); err != nil {
		return nil, err
	}
	if err := h.join(ctx, placed); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.planned[is] = placed
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.planned, is)
	}, nil
}

// checkEngines has parts look whether their kernels have what links of theirs ask for.
func (h *head) checkEngines(ctx context.Context, is *topology.Topology, placed *parts.Placement) error {
	wants := map[*farPart][]topology.Link{}
	var at []*farPart
	for _, l := range is.Links {
		if l.Engine != topology.Netem {
			continue
		}
		e := l.Endpoints[0]
		if e.External() {
			e = l.Endpoints[1]
		}
		p := h.parts[placed.Of(e.Node)]
		if wants[p] == nil {
			at = append(at, p)
		}
		wants[p] = append(wants[p], l)
	}
	return h.each(ctx, at, func(ctx context.Context, p *farPart) error { return methodEngines.Call(ctx, p.Conn, wants[p]) })
}

// follow has parts know the topology that an action came of, if they need it. The channel is closed when they know all
// that they have to before they carry out the action.
func (h *head) follow(topo *topology.Topology, a core.Action) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	placed := h.planned[topo]
	if topo == h.present || placed == nil && !readsTopology(a) {
		return h.known
	}
	if placed != nil {
		h.place(topo, placed)
		h.publish(event.Event{Kind: event.LabPlaced, Text: placed.Summary(parts.UsualApart).Crossing()})
	}
	h.present = topo
	params := renewal{topo, h.hostsOf(topo)}
	h.tell(h.parts, func(ctx context.Context, p *farPart) error { return methodRenew.Call(ctx, p.Conn, params) })
	return h.known
}

// readsTopology reports whether an action is carried out by more of the topology than the action names.
func readsTopology(a core.Action) bool {
	switch a.(type) {
	case core.MakeSwitch, core.StartAgent, core.Reconfigure, core.RenewNames, core.AwaitSpanningTree:
		return true
	}
	return false
}

// tell has parts know something before they are given any order that comes later. mu is held.
func (h *head) tell(of []*farPart, call func(context.Context, *farPart) error) {
	before, known := h.known, make(chan struct{})
	h.known = known
	go func() {
		defer close(known)
		<-before
		err := h.each(context.Background(), of, call)
		if err != nil && !errors.Is(err, control.ErrClosed) { // else the host is gone, which others say better
			h.die(control.AsError(fmt.Errorf("the lab has changed: %w", err)))
		}
	}()
}

func (h *head) forgetNode(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lives, name)
	delete(h.bridges, name)
	h.tell([]*farPart{h.at[name]}, func(ctx context.Context, p *farPart) error { return methodForgetNode.Call(ctx, p.Conn, name) })
}

func (h *head) forgetLink(spec *topology.Link) {
	of := h.ofLink(spec)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(of, func(ctx context.Context, p *farPart) error { return methodForgetLink.Call(ctx, p.Conn, spec.Number) })
}

// bridgeOf returns the number of a switch's bridge: that of its place in the topology, or the next that none has.
func (h *head) bridgeOf(topo *topology.Topology, name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number, ok := h.bridges[name]; ok {
		return number
	}
	used := map[int]bool{}
	for _, number := range h.bridges {
		used[number] = true
	}
	number := slices.IndexFunc(topo.Nodes, func(n topology.Node) bool { return n.Name == name })
	for used[number] {
		number++
	}
	h.bridges[name] = number
	return number
}
