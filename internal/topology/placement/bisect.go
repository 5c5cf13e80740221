package placement

import "math/rand/v2"

// free stands for no vertex, and for a vertex whose side is not given.
const free = -1

// coarsest is the number of vertices from which on a graph is made smaller before it is halved.
const coarsest = 60

// attempts counts the times that the smallest graph is halved, from different vertices; the best counts.
const attempts = 8

// A bisection halves a graph.
type bisection struct {
	most   [2]int // that a side may weigh
	random *rand.Rand
}

// halve returns the side, 0 or 1, of each vertex: that which is given, unless it is free.
func (b *bisection) halve(g *Graph, given []int8) []int8 {
	if g.Len() > coarsest {
		if coarse, onto, coarseGiven := b.coarsen(g, given); coarse.Len() < g.Len()*95/100 {
			above := b.halve(coarse, coarseGiven)
			sides := make([]int8, g.Len())
			for v, u := range onto {
				sides[v] = above[u]
			}
			b.refine(g, sides, given)
			return sides
		}
	}
	var best []int8
	bestCut, bestExcess := 0, 0
	for range attempts {
		sides := b.grow(g, given)
		b.refine(g, sides, given)
		weight, excess := cut(g, sides), b.excess(weigh(g, sides))
		if best == nil || excess < bestExcess || excess == bestExcess && weight < bestCut {
			best, bestCut, bestExcess = sides, weight, excess
		}
	}
	return best
}

// grow returns sides of which 0 has grown from what is given, or from any vertex, to its share: the vertex comes next that
// it is joined with best.
func (b *bisection) grow(g *Graph, given []int8) []int8 {
	sides := make([]int8, g.Len())
	next := newGains(g.Len())
	room := int(float64(g.total) * float64(b.most[0]) / float64(b.most[0]+b.most[1]))
	take := func(v int32) {
		sides[v] = 0
		room -= g.weights[v]
		for _, e := range g.of(v) {
			if sides[e.to] == 1 && given[e.to] == free {
				next.add(e.to, e.weight)
			}
		}
	}
	for v := range sides {
		sides[v] = 1
	}
	for v, side := range given {
		if side == 0 {
			take(int32(v))
		}
	}
	order := b.random.Perm(g.Len()) // where it begins, and begins anew where nothing is joined with it any more
	for room > 0 {
		if next.len() == 0 {
			for len(order) > 0 && (sides[order[0]] == 0 || given[order[0]] != free) {
				order = order[1:]
			}
			if len(order) == 0 {
				return sides
			}
			next.add(int32(order[0]), 0)
			order = order[1:]
		}
		if v, _ := next.pop(); g.weights[v] <= 2*room {
			take(v)
		}
	}
	return sides
}

// weigh returns the weights of the sides.
func weigh(g *Graph, sides []int8) (weights [2]int) {
	for v, side := range sides {
		weights[side] += g.weights[v]
	}
	return weights
}

// excess returns by how much the sides weigh more than they may.
func (b *bisection) excess(weights [2]int) int {
	return max(0, weights[0]-b.most[0]) + max(0, weights[1]-b.most[1])
}
