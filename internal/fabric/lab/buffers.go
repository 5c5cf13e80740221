package lab

import (
	"context"
	"fmt"
	"maps"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/topology"
)

// This file is the switches with a packet buffer, which the link engine carries in the place of the kernel's bridges, with
// the links at them and the adapters of the hosts there.

// buffersIn reports whether the engine has a fabric of a topology.
func buffersIn(topo *topology.Topology) bool {
	for _, buffered := range topo.BufferedLinks() {
		if buffered {
			return true
		}
	}
	return false
}

// atBuffer is the text of the error that something cannot be done at an interface.
const atBuffer = "cannot %s at %s: the link engine carries what crosses this node, which has a buffer, and no interface of the kernel does; remedy: %s"

// hasBuffer reports whether a node is a switch or router with a packet buffer.
func (d *linkDriver) hasBuffer(node string) bool {
	if sw := d.switchOf(node); sw != nil {
		return sw.bridge == nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, router := d.routes[node]
	return router
}

// noteRouters notes which routers have a packet buffer, before their agents are started.
func (d *linkDriver) noteRouters(topo *topology.Topology) {
	d.routes = map[string][]topology.Route{}
	for i := range topo.Nodes {
		if n := &topo.Nodes[i]; n.Kind == topology.Router && n.Buffer != nil {
			d.routes[n.Name] = n.Routes
		}
	}
}

// setFabric tells the engine of the switches with a packet buffer, if there are any.
func (d *linkDriver) setFabric(ctx context.Context, topo *topology.Topology) error {
	if !buffersIn(topo) {
		return nil
	}
	f := linkem.Fabric{Topology: topo, ReceiveBuffers: map[string]int64{}}
	for i := range topo.Nodes {
		if n := &topo.Nodes[i]; n.Kind == topology.Host {
			f.ReceiveBuffers[n.Name] = int64(adapter.Config(&n.Adapter).ReceiveBuffer)
		}
	}
	for i := range topo.Links {
		number := topo.Links[i].Number
		f.Addresses = append(f.Addresses, [2]linkem.MAC{linkem.MAC(link.MAC(number, 0)), linkem.MAC(link.MAC(number, 1))})
	}
	engine, err := d.engine.start()
	if err != nil {
		return err
	}
	if err := engine.SetFabric(ctx, f); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	go func() { // until the engine ends
		for {
			found, err := engine.Deadlock(context.Background())
			if err != nil {
				return
			}
			d.publish(event.Event{Kind: event.Deadlock, Text: found.String()})
		}
	}()
	d.mu.Lock()
	d.buffered = map[int]bool{}
	for i, buffered := range topo.BufferedLinks() {
		d.buffered[topo.Links[i].Number] = buffered
	}
	routes := maps.Clone(d.routes)
	d.mu.Unlock()
	for node, to := range routes {
		if err := d.setRoutes(node, to); err != nil {
			return err
		}
	}
	return nil
}

// routing returns how to carry out an action on a node, with the routes that come of it known to the engine, too, if the node is
// a router with a packet buffer.
func (d *linkDriver) routing(a core.Action, act func() core.Done) func() core.Done {
	var node string
	var routes []topology.Route
	switch a := a.(type) {
	case core.StartAgent:
		node, routes = a.Node, a.Routes
	case core.Reconfigure:
		node, routes = a.Node, a.Routes
	case core.SetRoutes:
		node, routes = a.Node, a.Routes
	default:
		return act
	}
	return func() core.Done {
		done := act()
		if done.Err == nil {
			done.Err = d.setRoutes(node, routes)
		}
		return done
	}
}

// setRoutes has the engine forward by other routes, if it does for that node.
func (d *linkDriver) setRoutes(node string, routes []topology.Route) error {
	d.mu.Lock()
	_, ours := d.routes[node]
	if ours {
		d.routes[node] = routes
	}
	set := d.buffered != nil
	d.mu.Unlock()
	if !ours || !set { // setFabric does it
		return nil
	}
	engine, err := d.engine.start()
	if err != nil {
		return err
	}
	if err := engine.SetRoutes(context.Background(), node, routes); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// isBuffered reports whether packets of the link wait in a buffer of the engine's.
func (l *labLink) isBuffered() bool {
	l.linkDriver.mu.Lock()
	defer l.linkDriver.mu.Unlock()
	return l.buffered[l.spec.Number]
}

// carry has the engine carry packets of the link, or lose them, if it is at a buffer.
func (l *labLink) carry(packets bool) error {
	if !l.engaged || !l.isBuffered() {
		return nil
	}
	engine, err := l.engine.start()
	if err != nil {
		return err
	}
	if err := engine.Carry(context.Background(), l.name(), packets); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// storm has the adapter of a host ask for pauses.
func (d *driver) storm(ctx context.Context, node string, s *topology.Storm) (err error) {
	err = control.Errorf(control.Usage, linkem.NoStorm, node)
	for _, engine := range d.machines.engines() {
		if err = engine.Storm(ctx, node, int(s.Priority), s.For); err == nil || control.CodeOf(err) != control.Usage {
			return err
		}
	}
	return err
}

// addBufferPorts adds the ports of switches with a packet buffer to those of bridges.
func (a *nodeAPI) addBufferPorts(ctx context.Context, topo *topology.Topology, ports map[[2]int]link.PortStatus) error {
	figures, err := a.bufferFigures(ctx)
	if err != nil {
		return err
	}
	var states []core.LinkStatus
	a.look(func(l *core.Lab) { states = linkStates(l) })
	for i := range topo.Nodes {
		n := &topo.Nodes[i]
		known := figures.Known[n.Name]
		for port := range known {
			face := &n.Interfaces[port]
			status := link.PortStatus{}
			if face.Link < len(states) && !states[face.Link].Off() {
				status = link.PortStatus{State: link.Forwarding, MACs: known[port]}
			}
			ports[[2]int{topo.Links[face.Link].Number, face.End}] = status
		}
	}
	return nil
}

// bufferFigures returns the figures of packet buffers since the run began.
func (d *driver) bufferFigures(ctx context.Context) (figures linkem.BufferFigures, err error) {
	topo := d.topology()
	if !buffersIn(topo) {
		return figures, nil
	}
	for _, engine := range d.machines.engines() {
		if figures, err = engine.Buffers(ctx); err != nil && !d.machines.failedWith(ctx, engine, err) {
			return figures, fmt.Errorf("engine: %w", err)
		}
		if figures.Buffers != nil { // one engine has all of them
			break
		}
	}
	return figures, nil
}
