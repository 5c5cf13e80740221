package placement

import (
	"cmp"
	"slices"
)

// An Edge joins two vertices.
type Edge struct{ A, B, Weight int }

// A Graph has vertices, by number, and edges between them, all with weights. It is not changed once it is made.
type Graph struct {
	weights []int // of vertices
	total   int   // of weights
	// The edges of vertex v are those from first[v] to first[v+1], each of which is at both of its vertices.
	first []int32
	edges []half
}

// A half is an edge as one of its vertices has it.
type half struct {
	to     int32
	weight int
}

// NewGraph returns a graph with vertices of some weights, which are not negative. Edges between the same vertices
// are one, with the sum of their weights; one from a vertex to itself does not count.
func NewGraph(weights []int, edges []Edge) *Graph {
	g := &Graph{weights: weights, first: make([]int32, len(weights)+1)}
	for _, w := range weights {
		g.total += w
	}
	degree := g.first[1:]
	for _, e := range edges {
		if e.A != e.B {
			degree[e.A]++
			degree[e.B]++
		}
	}
	for v := range weights {
		g.first[v+1] += g.first[v]
	}
	g.edges = make([]half, g.first[len(weights)])
	next := slices.Clone(g.first)
	for _, e := range edges {
		if e.A != e.B {
			g.edges[next[e.A]], g.edges[next[e.B]] = half{int32(e.B), e.Weight}, half{int32(e.A), e.Weight}
			next[e.A]++
			next[e.B]++
		}
	}
	g.merge()
	return g
}

// Len returns the number of vertices.
func (g *Graph) Len() int { return len(g.weights) }

// of returns the edges of a vertex.
func (g *Graph) of(v int32) []half { return g.edges[g.first[v]:g.first[v+1]] }

// merge makes edges between the same vertices one.
func (g *Graph) merge() {
	kept := int32(0)
	for v := range g.weights {
		own := g.of(int32(v))
		slices.SortFunc(own, func(a, b half) int { return cmp.Compare(a.to, b.to) })
		begin := kept
		for _, e := range own {
			if kept > begin && g.edges[kept-1].to == e.to {
				g.edges[kept-1].weight += e.weight
				continue
			}
			g.edges[kept] = e
			kept++
		}
		g.first[v] = begin
	}
	g.first[len(g.weights)] = kept
	g.edges = g.edges[:kept]
}

// part returns the graph of the vertices of a side, and their numbers in this one.
func (g *Graph) part(sides []int8, side int8) (*Graph, []int32) {
	var of []int32
	number := make([]int32, len(sides))
	for v, s := range sides {
		if s == side {
			number[v] = int32(len(of))
			of = append(of, int32(v))
		}
	}
	p := &Graph{weights: make([]int, len(of)), first: make([]int32, len(of)+1)}
	for i, v := range of {
		p.weights[i] = g.weights[v]
		p.total += g.weights[v]
		for _, e := range g.of(v) {
			if sides[e.to] == side {
				p.edges = append(p.edges, half{number[e.to], e.weight})
			}
		}
		p.first[i+1] = int32(len(p.edges))
	}
	return p, of
}

// Cut returns the weight of the edges between vertices of different parts.
func (g *Graph) Cut(parts []int) (weight int) { return cut(g, parts) }

func cut[T comparable](g *Graph, parts []T) (weight int) {
	for v := range g.weights {
		for _, e := range g.of(int32(v)) {
			if int32(v) < e.to && parts[v] != parts[e.to] {
				weight += e.weight
			}
		}
	}
	return weight
}
