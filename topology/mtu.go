package topology

import (
	"encoding/binary"
	"fmt"
)

// roceHeaders is the most bytes that a RoCE packet has beside its payload, as the
// adapter reckons (package roce, PathMTU).
const roceHeaders = 96

// frame is the payload of the RoCE packets that the node's adapter sends from an
// interface of that MTU to a peer that takes as much; 0 if it sends none.
func (n *Node) frame(mtu int) int {
	if on := n.Adapter.NetworkDirect; n.Kind != Host || on != nil && !*on {
		return 0
	}
	size := 4096
	if set := n.Adapter.RoCEFrameSize; set != nil {
		size = int(*set)
	}
	return min(size, frameFor(mtu))
}

// frameFor is the largest payload whose packets have no more than so many bytes.
func frameFor(mtu int) int {
	size := 4096
	for size > mtu-roceHeaders {
		size /= 2
	}
	return size
}

// wireFraming is the bytes that a packet takes of a wire beyond its MTU: the Ethernet
// header, preamble, check sequence and gap (impair.WireBytes).
const wireFraming = 14 + 8 + 4 + 12

// CheckQueue says what is wrong with a queue that a packet of the link's MTU never
// finds room in.
func (l *Link) CheckQueue(i Impairment) error {
	least := uint64(l.MTU + wireFraming)
	if i.Queue.Bytes == 0 || i.Queue.Bytes >= least {
		return nil
	}
	return wrong("queue", fmt.Sprintf("at least %d bytes", least), "queue %s has no room for a packet of the MTU %d", FormatSize(i.Queue.Bytes), l.MTU)
}

// routedMTU reports links on the ways between hosts that are too narrow for their
// RoCE packets, which are never fragmented: each link once. An adapter knows the
// MTU of its own links alone.
func (r *network) routedMTU(m *mesh) (few bool) {
	t, segments, links := r.lab, r.segments, r.links
	mtu := make([]int, len(segments))
	for i, s := range segments {
		mtu[i] = t.Links[s.links[0]].MTU
	}
	type peer struct{ node, frame int }
	peers := make([]peer, len(m.ways)) // with the largest frame, by the way to them
	for i := range t.Nodes {
		for _, p := range m.byNode[i] {
			s := m.ports[p].segment
			if w := m.wayTo[s]; w >= 0 && t.Nodes[i].frame(mtu[s]) > peers[w].frame {
				peers[w] = peer{i, t.Nodes[i].frame(mtu[s])}
			}
		}
	}
	narrow := narrowest{mesh: m, mtu: mtu, known: make([][]int, len(m.ways))}
	work := 0
	done := make(map[string]bool) // hosts at the same routers, with the same frames
	told := make(map[int]bool)    // segments
	var key []byte
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if n.Kind != Host {
			continue
		}
		gates := m.gates(i)
		key = key[:0]
		for _, p := range gates {
			key = binary.BigEndian.AppendUint32(key, uint32(m.router(p)))
			key = binary.BigEndian.AppendUint32(key, uint32(n.frame(mtu[m.ports[p].segment])))
		}
		if done[string(key)] {
			continue
		}
		done[string(key)] = true
		if work += len(m.ways); work > maxRoutes {
			return false
		}
		for w, other := range peers {
			for _, p := range m.nearest(gates, w) {
				frame := min(n.frame(mtu[m.ports[p].segment]), other.frame)
				s := narrow.on(w, m.router(p))
				if s < 0 || frame == 0 || frame+roceHeaders <= mtu[s] || told[s] {
					continue
				}
				told[s] = true
				l := segments[s].links[0]
				r.errorf(firstAt(links[l].place("mtu"), links[l].at), "MTU %d of the link %s, over which %s reaches %s, is too small for their RoCE packets, expected at least %d, or adapter: {roce_frame_size: %d} at one of them",
					mtu[s], t.Links[l].name(), n.Name, t.Nodes[other.node].Name, frame+roceHeaders, frameFor(mtu[s]))
			}
		}
	}
	return true
}

// A narrowest finds the segments of least MTU on the ways between routers.
type narrowest struct {
	*mesh
	mtu   []int   // by segment
	known [][]int // what on said plus 2, or 0, by way and router
}

// on is the segment of least MTU between a router and where a way leads to, of all
// the ways that packets may take; -1 if the router is there.
func (n *narrowest) on(w, router int) int {
	if n.known[w] == nil {
		n.known[w] = make([]int, len(n.routers))
	}
	if known := n.known[w][router]; known != 0 {
		return known - 2
	}
	least := -1
	if way := n.ways[w]; way.far[router] > 0 {
		for _, p := range n.sets[way.via[router]] {
			for _, s := range []int{n.ports[p].segment, n.on(w, n.router(p))} {
				if s >= 0 && (least < 0 || n.mtu[s] < n.mtu[least]) {
					least = s
				}
			}
		}
	}
	n.known[w][router] = least + 2
	return least
}

// sameMTU reports whether all links at routers have one MTU.
func (t *Topology) sameMTU(m *mesh) bool {
	mtu := 0
	for _, ports := range m.at {
		for _, p := range ports {
			of := t.Links[t.Nodes[m.ports[p].node].Interfaces[m.ports[p].face].Link].MTU
			if mtu == 0 {
				mtu = of
			}
			if of != mtu {
				return false
			}
		}
	}
	return true
}
