// Package hazard finds in a topology, before anything runs, what may go wrong with the lossless classes of
// its shared buffers: queues that may wait for each other without end, headroom that is too small for a
// line, and hosts that a switch cannot pause (docs/spec/congestion.md c1).
//
// It knows the routes and the tree of switches, not the traffic: a hazard is possible, and need not come to
// pass. A cyclic buffer dependency is necessary for a deadlock, and not sufficient (Hu et al., HotNets'16).
// It looks at the routes as of the start: others, which come with convergence, may have other hazards.
//
// Start reading at Find; dependencies.go follows packets from queue to queue.
package hazard

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/topology/cabling"
	"github.com/ndklab/ndklab/topology"
)

// Find returns a line for each hazard of a topology. If that has workloads, only packets between their hosts
// count; else those between any two hosts.
func Find(t *topology.Topology) []string {
	f := newFabric(t)
	if f == nil {
		return nil
	}
	return slices.Concat(f.deadlocks(), f.shortHeadrooms(), f.unpaused())
}

// MayDeadlock reports whether queues of a topology may wait for each other without end.
func MayDeadlock(t *topology.Topology) bool {
	f := newFabric(t)
	return f != nil && len(f.deadlocks()) > 0
}

// A place holds packets that leave a node: it is one of its interfaces.
type place = cabling.Port

// A fabric is a topology with what the hazards are found by. Nothing of it changes once it is made.
type fabric struct {
	*cabling.Cabling
	topo     *topology.Topology
	segments []int
	shared   []*sharedBuffer // by node; nil: it has none
	senders  []sender        // by node; of hosts alone
	pairs    map[[2]int]bool // of hosts that exchange packets, in both directions; nil: all
}

// A sharedBuffer has the settings of a switch or router with a buffer.
type sharedBuffer struct {
	config   mmu.Config // as the preset has it
	needed   []int64    // headroom by port, bytes
	lossless uint8      // a bit for each class
	dscps    [mmu.Classes]uint64
}

// A sender is a host's adapter: the DSCPs of its data and, with a bit for each, of all that it sends.
type sender struct {
	data uint8
	all  uint64
}

// newFabric returns the fabric of a topology; nil if no node has a shared buffer.
func newFabric(t *topology.Topology) *fabric {
	if !slices.ContainsFunc(t.Nodes, func(n topology.Node) bool { return n.Buffer != nil }) {
		return nil
	}
	f := &fabric{
		Cabling: cabling.Of(t), topo: t, segments: t.Segments(), shared: make([]*sharedBuffer, len(t.Nodes)), senders: make([]sender, len(t.Nodes)),
	}
	nodes := make(map[string]int)
	for i := range t.Nodes {
		n := &t.Nodes[i]
		nodes[n.Name] = i
		switch {
		case n.Kind == topology.Host:
			control := adapter.Config(&n.Adapter).Congestion
			f.senders[i] = sender{control.DSCP, 1<<control.DSCP | 1<<control.CNP.DSCP}
		case n.Buffer != nil:
			f.shared[i] = newSharedBuffer(t, n)
		}
	}
	f.pairs = pairsOf(t, nodes)
	return f
}

// pairsOf returns the pairs of hosts that the workloads of a topology have; nil: any.
func pairsOf(t *topology.Topology, nodes map[string]int) map[[2]int]bool {
	pairs := make(map[[2]int]bool)
	for _, w := range t.Workloads {
		flows := w.Flows
		switch {
		case w.Operation == topology.Program:
			return nil // whom it sends to nobody knows
		case flows == nil && w.Pattern == topology.Permutation: // which is not drawn yet
			for _, from := range w.Nodes {
				for _, to := range w.Nodes {
					flows = append(flows, topology.Flow{From: from, To: to})
				}
			}
		}
		for _, flow := range flows {
			if a, b := nodes[flow.From], nodes[flow.To]; a != b {
				pairs[[2]int{a, b}], pairs[[2]int{b, a}] = true, true
			}
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return pairs
}

// newSharedBuffer returns the buffer of a node.
func newSharedBuffer(t *topology.Topology, n *topology.Node) *sharedBuffer {
	b := &sharedBuffer{needed: make([]int64, len(n.Interfaces))}
	b.config, _ = mmu.Settings(t, n) // whoever drives the switch reports what does not fit
	for i := range n.Interfaces {
		b.needed[i] = mmu.NeededHeadroom(t, &n.Interfaces[i])
	}
	if len(b.config.Ports) > 0 {
		for class := range mmu.Classes {
			if b.config.Ports[0].Classes[class].Lossless {
				b.lossless |= 1 << class
			}
		}
	}
	for dscp, class := range mmu.ClassesOf(n) {
		b.dscps[class] |= 1 << dscp
	}
	return b
}

// has reports whether a class is lossless.
func (b *sharedBuffer) has(class int) bool { return b.lossless>>class&1 != 0 }

// name returns the name of an interface.
func (f *fabric) name(p place) string {
	n := &f.topo.Nodes[p.Node]
	return topology.Endpoint{Node: n.Name, Interface: n.Interfaces[p.Face].Name}.String()
}

// shortHeadrooms returns a line for each switch with less headroom at a port than its line takes.
func (f *fabric) shortHeadrooms() (found []string) {
	for i, b := range f.shared {
		if b == nil || b.lossless == 0 {
			continue
		}
		most, at, of := int64(0), cabling.Nowhere, int64(0)
		for port, need := range b.needed {
			if has := b.headroom(port); need > has && need > most {
				most, at, of = need, place{Node: i, Face: port}, has
			}
		}
		if at != cabling.Nowhere {
			found = append(found, fmt.Sprintf("%s has a headroom of %s, and up to %s may still arrive by %s once the neighbour there is to pause, expected headroom: %dB or more: packets may be dropped",
				f.topo.Nodes[i].Name, topology.FormatSize(uint64(of)), topology.FormatSize(uint64(most)), f.name(at), most))
		}
	}
	return found
}

// headroom returns the headroom of a lossless class at a port, all of which have the same.
func (b *sharedBuffer) headroom(port int) int64 {
	return b.config.Ports[port].Classes[bits.TrailingZeros8(b.lossless)].Headroom
}

// unpaused returns a line for each lossless class of a switch in which hosts send that it cannot pause.
func (f *fabric) unpaused() (found []string) {
	for i, b := range f.shared {
		if b == nil {
			continue
		}
		var hosts [mmu.Classes][]string
		for _, peer := range f.Peers[i] {
			if peer == cabling.Nowhere || !f.sends(peer.Node) {
				continue
			}
			host := &f.topo.Nodes[peer.Node]
			for class := range mmu.Classes {
				pauses := host.Adapter.PFC != nil && slices.Contains(*host.Adapter.PFC, uint32(class))
				if b.has(class) && b.dscps[class]>>f.senders[peer.Node].data&1 != 0 && !pauses {
					hosts[class] = append(hosts[class], host.Name)
				}
			}
		}
		for class, names := range hosts {
			if names != nil {
				found = append(found, fmt.Sprintf("%s cannot pause class %d of %s, expected pfc: [%d] of the adapter there: what it sends may be dropped",
					f.topo.Nodes[i].Name, class, few(names), class))
			}
		}
	}
	return found
}

// sends reports whether a node is a host that sends RDMA packets.
func (f *fabric) sends(node int) bool {
	n := &f.topo.Nodes[node]
	if n.Kind != topology.Host || n.Adapter.NetworkDirect != nil && !*n.Adapter.NetworkDirect {
		return false
	}
	if f.pairs == nil {
		return true
	}
	for other := range f.topo.Nodes {
		if f.pairs[[2]int{node, other}] {
			return true
		}
	}
	return false
}

// few is some names, not all if they are many.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s ... (%d in all)", strings.Join(names[:shown], ", "), len(names))
}
