package topology

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// This file is the routes of a lab some of whose links are down.

// convergenceForm is a time, or never.
var convergenceForm = func() form[val[time.Duration]] {
	const never = "never"
	times := span(time.Millisecond, time.Hour)
	parse := func(text string) (time.Duration, error) {
		if text == never {
			return 0, nil
		}
		d, err := times.parse(text)
		if err != nil {
			err = fmt.Errorf("%w, or %s", err, never)
		}
		return d, err
	}
	f := placed(single(parse, func() schema { return anyOf(oneWord(never), durationSchema()) }))
	f.ranges = times.ranges
	return f
}()

// convergence returns the time that the file gives, which is for a lab with routers.
func (r *reader) convergence(t *Topology, v val[time.Duration]) time.Duration {
	if v.is > 0 && !slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Kind == Router }) {
		r.errorf(v.at, "convergence: the lab has no router, expected one (kind: router) or no convergence: switches find other paths with stp: true, in a time of their own")
	}
	return v.is
}

// RoutesOver returns the routes of all nodes, in the order of Nodes, when only those links carry packets for which
// up returns true, by their index in Links. They are found as Node.Routes are, which are those over all links. A
// subnet whose switches have come apart counts as where its first part is.
func (t *Topology) RoutesOver(up func(link int) bool) [][]Route {
	is := t.over(up)
	segments := is.segments()
	is.fillRoutes(segments, is.subnets(segments), math.MaxInt, func(*mesh) bool { return true })
	routes := make([][]Route, len(is.Nodes))
	for i := range is.Nodes {
		routes[i] = is.Nodes[i].Routes
	}
	return routes
}

// over returns the topology with some of its links, and without routes.
func (t *Topology) over(up func(link int) bool) *Topology {
	index := make([]int, len(t.Links)) // by then, or -1
	is := &Topology{Nodes: slices.Clone(t.Nodes)}
	for i := range t.Links {
		index[i] = -1
		if up(i) {
			index[i] = len(is.Links)
			is.Links = append(is.Links, t.Links[i])
		}
	}
	for i := range is.Nodes {
		n := &is.Nodes[i]
		n.Interfaces, n.Routes = onLinks(n.Interfaces, index), nil
	}
	is.Externals = onLinks(t.Externals, index)
	return is
}

// OutOfReach returns how many hosts are cut off when only those links carry packets for which up returns true. Where
// a part of the lab falls apart, these are the hosts outside of the piece that has the most.
func (t *Topology) OutOfReach(up func(link int) bool) int {
	whole := t.parts(t.segments())
	is := t.over(up)
	pieces := is.parts(is.segments())
	type piece struct{ part, number int }
	number := make([]int, len(t.Links)) // of the piece, or -1
	next := 0
	for i := range t.Links {
		number[i] = -1
		if up(i) {
			number[i] = pieces[next]
			next++
		}
	}
	hosts := make(map[piece]int)
	of := make([][]piece, len(t.Nodes)) // each once, by host
	for i, n := range t.Nodes {
		if n.Kind != Host {
			continue
		}
		for _, face := range n.Interfaces {
			p := piece{whole[face.Link], number[face.Link]}
			if !slices.Contains(of[i], p) {
				of[i] = append(of[i], p)
				if p.number >= 0 {
					hosts[p]++
				}
			}
		}
	}
	largest := make(map[int]piece) // by part
	for p, n := range hosts {
		if l, ok := largest[p.part]; !ok || n > hosts[l] || n == hosts[l] && p.number < l.number {
			largest[p.part] = p
		}
	}
	out := 0
	for i, n := range t.Nodes {
		if n.Kind != Host {
			continue
		}
		if slices.ContainsFunc(n.Interfaces, func(f Interface) bool {
			main, ok := largest[whole[f.Link]]
			return !ok || !slices.Contains(of[i], main)
		}) {
			out++
		}
	}
	return out
}
