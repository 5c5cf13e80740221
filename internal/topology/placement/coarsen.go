package placement

// coarsen returns a graph in which each vertex is joined with the neighbour that it has the heaviest edge to, or a leaf with
// another of the same vertex, where both may be on one side; which vertex of it each is part of; and the sides that are given there.
func (b *bisection) coarsen(g *Graph, given []int8) (*Graph, []int32, []int8) {
	n := g.Len()
	m := matching{Graph: g, given: given, onto: make([]int32, n), leaf: make([]int32, n), most: max(1, g.total*3/2/coarsest)}
	for v := range m.onto {
		m.onto[v], m.leaf[v] = free, free
	}
	for _, v := range b.random.Perm(n) {
		if m.onto[v] == free {
			m.match(int32(v))
		}
	}
	return m.join(), m.onto, m.sides
}

// A matching joins vertices of a graph.
type matching struct {
	*Graph
	given   []int8
	onto    []int32 // the vertex that a vertex becomes part of, or free
	leaf    []int32 // of a vertex: a leaf that waits for another, or free
	most    int     // that two may weigh together
	joined  []int   // weights of the new vertices
	sides   []int8  // given ones of those
	members [][2]int32
}

// match makes a vertex part of a new one, with another if there is one.
func (m *matching) match(v int32) {
	own := m.of(v)
	to, heaviest := int32(free), -1
	for _, e := range own {
		if m.onto[e.to] == free && e.weight > heaviest && m.fit(v, e.to) {
			to, heaviest = e.to, e.weight
		}
	}
	if to == free && len(own) == 1 {
		at := own[0].to
		waiting := m.leaf[at]
		if waiting == free || !m.fit(v, waiting) {
			m.leaf[at] = v
		} else {
			m.leaf[at] = free
			m.add(m.onto[waiting], v)
			return
		}
	}
	m.onto[v] = int32(len(m.joined))
	m.joined, m.sides, m.members = append(m.joined, m.weights[v]), append(m.sides, m.given[v]), append(m.members, [2]int32{v, free})
	if to != free {
		m.add(m.onto[v], to)
	}
}

// fit reports whether two vertices may be one.
func (m *matching) fit(v, w int32) bool {
	return m.weights[v]+m.weights[w] <= m.most && m.given[v] == m.given[w]
}

// add makes a vertex part of one that has been made of another.
func (m *matching) add(onto, v int32) {
	m.onto[v] = onto
	m.joined[onto] += m.weights[v]
	m.members[onto][1] = v
}

// join returns the graph of the new vertices.
func (m *matching) join() *Graph {
	c := &Graph{weights: m.joined, total: m.total, first: make([]int32, len(m.joined)+1), edges: make([]half, 0, len(m.edges))}
	at := make([]int32, len(m.joined)) // one more than the index of the edge to a vertex, if it is of the vertex at hand
	for u, members := range m.members {
		begin := int32(len(c.edges))
		for _, v := range members {
			if v == free {
				continue
			}
			for _, e := range m.of(v) {
				to := m.onto[e.to]
				switch i := at[to] - 1; {
				case to == int32(u):
				case i >= begin:
					c.edges[i].weight += e.weight
				default:
					c.edges = append(c.edges, half{to, e.weight})
					at[to] = int32(len(c.edges))
				}
			}
		}
		c.first[u+1] = int32(len(c.edges))
	}
	return c
}
