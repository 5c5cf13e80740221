package linkem

import (
	"github.com/ndklab/ndklab/topology"
)

// A MAC is an address of Ethernet.
type MAC [6]byte

// A bridge forwards the frames of a switch, as IEEE 802.1D has it: by the port behind which it knows the station that a
// frame is for, or else by all others.
type bridge struct {
	ports    int
	stations map[MAC]int // that the topology has, by the port behind which they are
	learned  map[MAC]int // others
}

// mostLearned bounds the addresses that a switch learns. Beyond it, it forgets them all, as it would by and by.
const mostLearned = 8192

// newBridge returns what a switch forwards by, which knows the addresses of the ends of links.
func newBridge(t *topology.Topology, n *topology.Node, addresses [][2]MAC) *bridge {
	b := &bridge{ports: len(n.Interfaces), stations: map[MAC]int{}, learned: map[MAC]int{}}
	for port := range n.Interfaces {
		face := &n.Interfaces[port]
		b.add(t, port, face.Link, 1-face.End, addresses)
	}
	return b
}

// add adds the stations that are reached by the end of a link.
func (b *bridge) add(t *topology.Topology, port, link, end int, addresses [][2]MAC) {
	far := t.FindNode(t.Links[link].Endpoints[end].Node)
	if far == nil || far.Kind != topology.Switch {
		b.stations[addresses[link][end]] = port // one outside the lab has another, which is learned
		return
	}
	for i := range far.Interfaces {
		if face := &far.Interfaces[i]; face.Link != link {
			b.add(t, port, face.Link, 1-face.End, addresses)
		}
	}
}

// learn takes note of who has sent a frame that came in by a port.
func (b *bridge) learn(from MAC, in int) {
	if _, known := b.stations[from]; known || from[0]&1 != 0 {
		return
	}
	if len(b.learned) >= mostLearned {
		clear(b.learned)
	}
	b.learned[from] = in
}

// port returns the one by which a station is reached; false if it is not known.
func (b *bridge) port(to MAC) (int, bool) {
	if port, ok := b.stations[to]; ok {
		return port, true
	}
	port, ok := b.learned[to]
	return port, ok
}

// known returns by port how many stations are known to be behind it.
func (b *bridge) known() []int {
	n := make([]int, b.ports)
	for _, at := range []map[MAC]int{b.stations, b.learned} {
		for _, port := range at {
			n[port]++
		}
	}
	return n
}

// reserved reports whether frames to an address stay on their link (IEEE 802.1D, table 7-10), such as PFC frames.
func (m MAC) reserved() bool {
	return m[0] == 0x01 && m[1] == 0x80 && m[2] == 0xc2 && m[3] == 0 && m[4] == 0 && m[5]&0xf0 == 0
}
