package simulate

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A network is the links of a topology and what passes packets from one to the next. It
// is driven by its clocks and belongs to the goroutine that runs those. In a window (windows.go) nothing of it
// changes but what belongs to a shard.
type network struct {
	clock    *clock.Virtual // of the lab
	shards   []*shard
	topo     *topology.Topology
	nodes    []*node // in the order of the topology
	byName   map[string]*node
	links    []*link // likewise
	byNumber map[int]*link
	places   map[netip.Addr]place

	// qpError is told of queue pairs that go to error otherwise than by their consumer's
	// doing, with locks of their adapter held.
	qpError func(node string, e provider.QPError)

	plane    *dataplane.Plane[*frame]
	recorder *recorder // nil: no series is asked for
	tell     func(event.Event)

	changes int    // of links and routes
	blocked []bool // by link: what a spanning tree has no use for

	programs *programs
}

// A link is two wires.
type link struct {
	spec  *topology.Link
	nodes [2]*node
	wires [2]*dataplane.Wire[*frame] // [0] from nodes[0], [1] back
	on    bool                       // it carries packets
}

// name is the link's, as in a lab: its draws depend on that.
func (l *link) name() string { return l.spec.Endpoints[0].String() }

// A place is the interface that has an address.
type place struct {
	node *node
	face *topology.Interface
}

// newNetwork makes the links of a topology whose seed is known, between nodes that are
// down. There is a shard for each clock, and of has the number of each node's, by name.
func newNetwork(t *topology.Topology, p *programs, clocks []*clock.Virtual, of map[string]int, qpError func(string, provider.QPError)) (*network, error) {
	n := &network{clock: p.clock, programs: p, topo: t, qpError: qpError, byName: map[string]*node{}, byNumber: map[int]*link{}, places: map[netip.Addr]place{}}
	var shards []dataplane.Shard[*frame]
	for _, c := range clocks {
		s := &shard{network: n, clock: c}
		n.shards, shards = append(n.shards, s), append(shards, dataplane.Shard[*frame]{Clock: c, Owner: s})
	}
	n.plane = dataplane.NewSharded(shards, of, t, handed)
	for i := range t.Nodes {
		at := &node{network: n, shard: n.shards[of[t.Nodes[i].Name]], spec: &t.Nodes[i], seed: t.SeedOf("node " + t.Nodes[i].Name)}
		n.nodes = append(n.nodes, at)
		n.byName[at.spec.Name] = at
		for j := range at.spec.Interfaces {
			face := &at.spec.Interfaces[j]
			for _, a := range face.Addresses {
				n.places[a.Addr()] = place{at, face}
			}
		}
		at.addresses = addresses(at.spec)
	}
	for i := range t.Links {
		l := &link{spec: &t.Links[i]}
		for end, e := range l.spec.Endpoints {
			l.nodes[end] = n.byName[e.Node]
			l.wires[end] = n.plane.AddWire(i, end, impair.New(t.Seed, l.name(), end), new(linkstats.Collector))
			l.wires[end].Set(l.spec.Directions[end])
			l.wires[end].Carry(false)
		}
		n.links = append(n.links, l)
		n.byNumber[l.spec.Number] = l
	}
	receiveBuffer := func(of *topology.Node) int64 { return int64(adapter.Config(&of.Adapter).ReceiveBuffer) }
	if err := n.plane.AddBuffers(receiveBuffer); err != nil {
		return nil, err
	}
	n.changed()
	if t.Series != nil {
		n.record(t.Series.Period)
	}
	return n, nil
}

// linkOf returns a link by its specification.
func (n *network) linkOf(spec *topology.Link) *link {
	return n.byNumber[spec.Number]
}

// changed is called after links went down or came up, or routes changed.
func (n *network) changed() {
	for _, s := range n.shards {
		s.ways = map[roce.Flow]*way{}
	}
	n.changes++
	// A tree of switches is there at once.
	n.blocked = n.topo.SpareLinks(func(link int) bool { return n.links[link].on })
}
