// Package placement divides a weighted graph among hosts: each gets its share of the vertices' weight, and the edges that
// cross hosts weigh little in all. For a lab the vertices are nodes, the edges links.
//
// It halves the hosts and the graph again and again (recursive bisection). Each half is found on a graph that is made
// small by joining neighbours, and made better on the way back (Karypis and Kumar, A fast and high quality
// multilevel scheme for partitioning irregular graphs, 1998; Fiduccia and Mattheyses, A linear-time heuristic for improving
// network partitions, 1982). The same graph, hosts and seed give the same answer.
//
// It is pure, and knows nothing of labs. Start reading at Divide.
package placement

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// Anywhere stands for a vertex that may be at any host.
const Anywhere = -1

// slack is the share by which a host may exceed what its capacity makes of the whole weight.
const slack = 0.03

// Divide returns the host of each vertex, an index of capacities, which are relative to each other and positive.
// at has where vertices are to be, or Anywhere; nil stands for Anywhere for all. Weights that are too large to be
// divided, and vertices whose place is given, may make a host exceed its share.
func Divide(g *Graph, capacities []float64, at []int, seed uint64) []int {
	n := g.Len()
	d := division{hosts: make([]int, n), seed: seed, levels: levels(len(capacities)), most: make([]float64, len(capacities))}
	sum := 0.0
	for _, c := range capacities {
		sum += c
	}
	for host, c := range capacities {
		d.most[host] = c / sum * float64(g.total) * (1 + slack)
	}
	vertices := make([]int32, n)
	for v := range vertices {
		vertices[v] = int32(v)
	}
	d.among(g, vertices, at, 0, len(capacities))
	return d.hosts
}

// levels returns how often hosts are halved until one is left.
func levels(hosts int) int { return bits.Len(uint(hosts - 1)) }

// A division is one that goes on.
type division struct {
	hosts  []int     // by vertex of the whole graph
	most   []float64 // that a host may weigh
	levels int       // of all hosts
	seed   uint64
}

// among divides a part of the graph, whose vertices have the names given in the whole one, among the hosts from first to end.
func (d *division) among(g *Graph, names []int32, at []int, first, end int) {
	if end-first == 1 {
		for _, v := range names {
			d.hosts[v] = first
		}
		return
	}
	middle := first + (end-first)/2
	b := bisection{most: [2]int{d.limit(first, middle), d.limit(middle, end)}, random: rand.New(rand.NewPCG(d.seed, uint64(first)<<32|uint64(end)))}
	sides := b.halve(g, sidesOf(names, at, middle))
	for side, hosts := range [2][2]int{{first, middle}, {middle, end}} {
		part, of := g.part(sides, int8(side))
		for i, v := range of {
			of[i] = names[v]
		}
		d.among(part, of, at, hosts[0], hosts[1])
	}
}

// limit returns the most that hosts may weigh together. Of the slack, which a single host may use up, something is kept for each
// time that they are halved.
func (d *division) limit(first, end int) int {
	sum := 0.0
	for _, most := range d.most[first:end] {
		sum += most
	}
	return int(sum*math.Pow(1+slack, -float64(levels(end-first))/float64(d.levels))) + 1
}

// sidesOf returns the side of each vertex whose place is given: 1 from a host on. Others have free.
func sidesOf(names []int32, at []int, from int) []int8 {
	given := make([]int8, len(names))
	for i, v := range names {
		switch {
		case at == nil || at[v] == Anywhere:
			given[i] = free
		case at[v] >= from:
			given[i] = 1
		}
	}
	return given
}
