package topology

import (
	"encoding/binary"
	"slices"
)

// A mesh is the routers of a lab and the segments that they join, for one family
// of addresses, and the shortest paths through it. A distance counts the routers
// that are passed.
type mesh struct {
	ports   []port
	byNode  [][]int // ports of a host or router, by its index in Topology.Nodes
	at      [][]int // ports of routers, by segment
	number  []int   // of a router, from 0, by its index in Topology.Nodes
	routers []int   // index in Topology.Nodes, by number

	// The ways to a segment depend on nothing but which routers are there.
	ways  []way
	wayTo []int // index in ways, by segment; -1: no router is there

	sets [][]int        // of ports: next hops that are equally near, ascending
	ids  map[string]int // index in sets
	key  []byte         // reused to look into ids
}

// A port is an interface of a host or router.
type port struct {
	node, face int // index in Topology.Nodes, and in its Interfaces
	segment    int
}

// A way has the shortest paths of routers to a segment.
type way struct {
	far []int // distance, by router; 0: the router is at the segment, -1: it does not get there
	via []int // next hops, by router, as an index in mesh.sets; nothing where far is not above 0
}

// newMesh is the mesh of the segments that take part, by their numbers. In has
// the segment of each link.
func newMesh(t *Topology, in []int, takesPart []bool) *mesh {
	m := &mesh{
		byNode: make([][]int, len(t.Nodes)),
		number: make([]int, len(t.Nodes)),
		at:     make([][]int, len(takesPart)),
		wayTo:  make([]int, len(takesPart)),
		ids:    make(map[string]int),
	}
	for i, n := range t.Nodes {
		if n.Kind == Switch {
			continue
		}
		if n.Kind == Router {
			m.number[i] = len(m.routers)
			m.routers = append(m.routers, i)
		}
		for j, face := range n.Interfaces {
			s := in[face.Link]
			if !takesPart[s] {
				continue
			}
			p := len(m.ports)
			m.ports = append(m.ports, port{i, j, s})
			m.byNode[i] = append(m.byNode[i], p)
			if n.Kind == Router {
				m.at[s] = append(m.at[s], p)
			}
		}
	}
	m.findWays()
	return m
}

// router is the number of the router that has a port.
func (m *mesh) router(p int) int { return m.number[m.ports[p].node] }

func (m *mesh) findWays() {
	known := make(map[string]int) // index in ways by the routers at a segment
	search := search{mesh: m, far: make([]int, len(m.at)), near: make([][]int, len(m.at))}
	for i := range search.far {
		search.far[i] = -1
	}
	for s, ports := range m.at {
		m.wayTo[s] = -1
		if len(ports) == 0 {
			continue
		}
		m.key = m.key[:0]
		for _, p := range ports {
			m.key = binary.BigEndian.AppendUint32(m.key, uint32(m.router(p)))
		}
		i, ok := known[string(m.key)]
		if !ok {
			i = len(m.ways)
			known[string(m.key)] = i
			m.ways = append(m.ways, search.from(ports))
		}
		m.wayTo[s] = i
	}
}

// set is the index in sets of these ports, which it sorts.
func (m *mesh) set(ports []int) int {
	slices.Sort(ports)
	m.key = m.key[:0]
	for _, p := range ports {
		m.key = binary.BigEndian.AppendUint32(m.key, uint32(p))
	}
	id, ok := m.ids[string(m.key)]
	if !ok {
		id = len(m.sets)
		m.ids[string(m.key)] = id
		m.sets = append(m.sets, slices.Clone(ports))
	}
	return id
}

// A search is a breadth-first one, with what it needs of memory for all of them.
type search struct {
	*mesh
	far     []int   // of a segment, how far its nearest router is; -1: not met
	near    [][]int // their ports, by segment
	touched []int   // segments to forget again
	queue   []int   // routers
	hops    []int
}

// from is the way to a segment that has these ports of routers.
func (s *search) from(ports []int) way {
	w := way{far: make([]int, len(s.routers)), via: make([]int, len(s.routers))}
	for i := range w.far {
		w.far[i] = -1
	}
	s.queue, s.touched = s.queue[:0], s.touched[:0]
	for _, p := range ports {
		w.far[s.router(p)] = 0
		s.queue = append(s.queue, s.router(p))
	}
	for next := 0; next < len(s.queue); next++ {
		u := s.queue[next]
		for _, p := range s.byNode[s.routers[u]] {
			on := s.ports[p].segment
			switch {
			case len(s.at[on]) == 1: // it leads to no other router
			case s.far[on] < 0:
				s.far[on] = w.far[u]
				s.near[on] = append(s.near[on][:0], p)
				s.touched = append(s.touched, on)
				for _, q := range s.at[on] {
					if v := s.router(q); w.far[v] < 0 {
						w.far[v] = w.far[u] + 1
						s.queue = append(s.queue, v)
					}
				}
			case s.far[on] == w.far[u]:
				s.near[on] = append(s.near[on], p)
			}
		}
	}
	for v, far := range w.far {
		if far <= 0 {
			continue
		}
		s.hops = s.hops[:0]
		for _, p := range s.byNode[s.routers[v]] {
			if on := s.ports[p].segment; s.far[on] == far-1 {
				s.hops = append(s.hops, s.near[on]...)
			}
		}
		w.via[v] = s.set(s.hops)
	}
	for _, on := range s.touched {
		s.far[on] = -1
	}
	return w
}

// gates is the ports of the routers that a host shares segments with.
func (m *mesh) gates(host int) []int {
	var gates []int
	for _, p := range m.byNode[host] {
		gates = append(gates, m.at[m.ports[p].segment]...)
	}
	return gates
}

// nearest is those of the ports whose routers are nearest to where a way leads to;
// none if no router gets there.
func (m *mesh) nearest(ports []int, way int) []int {
	far := m.ways[way].far
	least := -1
	for _, p := range ports {
		if f := far[m.router(p)]; f >= 0 && (least < 0 || f < least) {
			least = f
		}
	}
	var nearest []int
	for _, p := range ports {
		if least >= 0 && far[m.router(p)] == least {
			nearest = append(nearest, p)
		}
	}
	return nearest
}
