package core

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// routing gives hosts and routers other routes when links have gone down or come up, if the lab converges
// (topology.Topology.Convergence). It stands for a routing protocol that learns of links by their carrier:
//
//   - It sees whatever takes the carrier: a link that is down by a command, the timeline, chaos or a partition, a node that
//     is stopped or dies, a switch that is down or paused. It does not see losses of packets on a link: loss, cut and flap.
//   - A router that is paused keeps its carrier, so that others go on to send to it. Its kernel forwards by the routes that
//     it has, and it gets others when it goes on.
//   - Every link that goes down or comes up, and every node that is up again, starts the time anew. While links change faster than that, nothing converges.
//   - A lab is built with the routes over the links that are not down from the start. A node that starts has the routes over
//     the links that carry packets and its own. The others take these after the time.
type routing struct {
	lab        *Lab
	timer      timer   // set since a link has changed
	converging bool    // nodes are given other routes, which nobody was told of
	changed    []*node // those
}

// converges reports whether routes ever change.
func (r *routing) converges() bool { return r.lab.topo.Convergence > 0 }

// underWay reports whether routes are not those over the links that carry packets, and are going to be.
func (r *routing) underWay() bool { return r.timer.at > 0 || r.converging }

// restart starts the time anew: a link has come to carry packets, or none, or a node is up. While the lab is being built,
// nothing converges.
func (r *routing) restart() {
	if l := r.lab; r.converges() && l.building == nil {
		l.timers.set(&r.timer, l.now+l.topo.Convergence*time.Duration(l.topo.DilationFactor()))
	}
}

// over returns the routes over some links by the name of the node.
func (r *routing) over(up func(*link) bool) map[string][]topology.Route {
	l := r.lab
	routes := map[string][]topology.Route{}
	for i, of := range l.topo.RoutesOver(func(i int) bool { return up(l.links[i]) }) {
		routes[l.topo.Nodes[i].Name] = of
	}
	return routes
}

// renew notes the routes over some links as those of all nodes, which are told of their topology next.
func (r *routing) renew(up func(*link) bool) {
	if !r.converges() {
		return
	}
	routes := r.over(up)
	for _, n := range r.lab.nodes {
		n.routes = routes[n.spec.Name]
	}
}

// nodeStarts notes the routes of a node whose life begins, over its own links and those that carry packets. Where they
// all lead to one next hop, which most hosts have, there are no others to look for.
func (r *routing) nodeStarts(n *node) {
	switch {
	case !r.converges() || r.lab.building != nil:
	case n.spec.Kind == topology.Host && len(n.spec.Interfaces) == 1 && !slices.ContainsFunc(n.spec.Routes, func(to topology.Route) bool { return len(to.Via) > 1 }):
		n.routes = nil
		if r.lab.links[n.spec.Interfaces[0].Link].carriesWith(n) {
			n.routes = n.spec.Routes
		}
	default:
		n.routes = r.over(func(k *link) bool { return k.connected || k.carriesWith(n) })[n.spec.Name]
	}
}

// converge gives all nodes that are up the routes over the links that carry packets.
func (r *routing) converge() {
	if !r.converges() {
		return // since an Apply
	}
	routes := r.over((*link).carries)
	r.converging = true
	for _, n := range r.lab.nodes {
		is := routes[n.spec.Name]
		if !n.hasRoutes() || len(is)+len(n.routes) == 0 || reflect.DeepEqual(is, n.routes) {
			continue
		}
		n.routes, n.rerouted = is, true
		n.schedule()
		if !slices.Contains(r.changed, n) {
			r.changed = append(r.changed, n)
		}
	}
}

// advance tells everyone when all nodes have their routes, and reports whether it has.
func (r *routing) advance() (advanced bool) {
	if !r.converging || slices.ContainsFunc(r.changed, (*node).awaitsRoutes) {
		return false
	}
	l := r.lab
	is := event.Routes{Changed: len(r.changed), OutOfReach: l.topo.OutOfReach(func(i int) bool { return l.links[i].connected })}
	r.converging, r.changed = false, nil
	l.notify(Notify{Kind: event.RoutesConverged, Routes: &is,
		Text: fmt.Sprintf("routes have converged: nodes with other routes: %d, hosts out of reach: %d", is.Changed, is.OutOfReach)})
	return true
}

// carries reports whether the link carries packets.
func (k *link) carries() bool { return k.connected }

// carriesWith reports whether the link is going to carry packets once a node at one of its ends is up.
func (k *link) carriesWith(n *node) bool {
	if k.asked.down || k.asked.partitioned || k.switchAway() || !slices.Contains(k.nodes[:], n) {
		return false
	}
	return !slices.ContainsFunc(k.nodes[:], func(o *node) bool { return o != nil && o != n && o.phase != up })
}

// wantedRoutes returns the routes that the node is to have.
func (n *node) wantedRoutes() []topology.Route {
	if n.lab.routing.converges() {
		return n.routes
	}
	return n.spec.Routes
}

// hasRoutes reports whether the node has been given routes, which can be changed.
func (n *node) hasRoutes() bool { return n.phase == awaitingSwitches || n.phase == up }

// awaitsRoutes reports whether the node is about to be given other routes.
func (n *node) awaitsRoutes() bool {
	return n.hasRoutes() && (n.settingRoutes || n.rerouted && !n.paused)
}

// advanceRoutes gives the node its routes, if they are others than it was given last.
func (n *node) advanceRoutes() {
	acting := len(n.requests) > 0 && n.requests[0].acting
	if !n.rerouted || n.paused || n.busy || n.stale || acting || !n.hasRoutes() {
		return
	}
	n.rerouted, n.settingRoutes, n.busy = false, true, true
	n.do(SetRoutes{n.of(), n.routes}, func(d Done) {
		if !n.hasRoutes() {
			return
		}
		n.settingRoutes, n.busy = false, d.Agent // AgentEnded is about to come
		if d.Err != nil && !d.Agent {
			n.notify(event.Warning, "node %s keeps its routes: %v", n.spec.Name, d.Err)
		}
	})
}
