package simulate

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A network is the links of a topology and what passes packets from one to the next. It
// is driven by its clock and belongs to the goroutine that runs that.
type network struct {
	clock    *clock.Virtual
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

	ways    map[roce.Flow]*way // found since links and routes last changed; nil: there is none
	changes int                // of links and routes
	blocked []bool             // by link: what a spanning tree has no use for

	programs *programs
	frames   frames
	batch    []roce.Received   // what a port hands over just now
	payloads workload.Payloads // of all hosts
	identity impair.Identity   // of the packet that a wire decides on
	sealer   roce.Sealer
	verifier roce.Verifier
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
// down.
func newNetwork(t *topology.Topology, p *programs, qpError func(string, provider.QPError)) (*network, error) {
	n := &network{clock: p.clock, programs: p, topo: t, qpError: qpError, byName: map[string]*node{}, byNumber: map[int]*link{}, places: map[netip.Addr]place{}}
	n.plane = dataplane.New(n.clock, dataplane.Owner[*frame](n), t)
	for i := range t.Nodes {
		at := &node{network: n, spec: &t.Nodes[i], seed: t.SeedOf("node " + t.Nodes[i].Name)}
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
	n.ways = map[roce.Flow]*way{}
	n.changes++
	// A tree of switches is there at once.
	n.blocked = n.topo.SpareLinks(func(link int) bool { return n.links[link].on })
}
