package simulate

import (
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
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

	switches  []*buffer // of switches and routers that have one
	members   []mmu.Member
	deadlocks []report.Deadlock
	recorder  *recorder // nil: no series is asked for
	tell      func(event.Event)

	ways    map[roce.Flow]*way // found since links and routes last changed; nil: there is none
	blocked []bool             // by link: what a spanning tree has no use for

	programs *programs
	frames   frames
	batch    []roce.Received   // what a port hands over just now
	payloads workload.Payloads // of all hosts
	identity impair.Identity   // of the packet that a wire decides on
	sealer   roce.Sealer
	verifier roce.Verifier
}

// A place is the interface that has an address.
type place struct {
	node *node
	face *topology.Interface
}

// newNetwork makes the links of a topology whose seed is known, between nodes that are
// down.
func newNetwork(t *topology.Topology, p *programs, qpError func(string, provider.QPError)) (*network, error) {
	n := &network{clock: p.clock, programs: p, topo: t, qpError: qpError, byName: map[string]*node{}, byNumber: map[int]*link{}, places: map[netip.Addr]place{}}
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
		l := &link{index: i, spec: &t.Links[i]}
		for end, e := range l.spec.Endpoints {
			l.nodes[end] = n.byName[e.Node]
			l.wires[end] = newWire(n, l, end)
		}
		n.links = append(n.links, l)
		n.byNumber[l.spec.Number] = l
	}
	if err := n.addBuffers(); err != nil {
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
	// A tree of switches is there at once.
	n.blocked = n.topo.SpareLinks(func(link int) bool { return n.links[link].on })
}

// arrive puts a frame on the next wire of its way, or hands it to who it is for. It came by a wire; nil: from
// its sender.
func (n *network) arrive(f *frame, by *wire) {
	if f.isPause {
		// An error is not possible: such frames are made by PFC.Append, and none comes here whose bits have flipped.
		if pause, err := mmu.DecodePFC(f.payload); err == nil && by.to != nil {
			by.to.pauseArrived(by.in, pause)
		}
		n.frames.put(f)
		return
	}
	if int(f.hop) < len(f.way.wires) {
		w := f.way.wires[f.hop]
		f.hop++
		switch {
		case w.from == nil:
			w.enter(f)
		case by == nil:
			w.from.take(f, w.from.adapter(), w.out)
		default:
			w.from.take(f, by.in, w.out)
		}
		return
	}
	if b := f.way.to.buffer; b != nil && b.receive > 0 && by != nil {
		b.take(f, by.in, b.adapter())
		return
	}
	n.deliver(f)
}

// storm begins a storm of a host's adapter.
func (n *network) storm(name string, s *topology.Storm) error {
	b := n.byName[name].buffer
	if b == nil {
		return fmt.Errorf("node %s: a storm has no effect where the adapter has no pfc and no switch beside it a buffer", name)
	}
	b.storm(int(s.Priority), n.clock.Now()+s.For)
	return nil
}

// deliver hands a frame to the adapter that it is for.
func (n *network) deliver(f *frame) {
	if life := f.way.to.life; life != nil {
		life.port.take(f)
		return
	}
	n.frames.put(f)
}
