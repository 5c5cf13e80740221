package graph

import (
	"cmp"
	"math"
	"slices"
)

// layers are the nodes by their distance from hosts and what is outside, nearest first, as
// in trees, leaf and spine, and fat trees; nil if the graph is none of these: hosts are
// joined, or so are switches within a layer in other ways than a line, but for the last
// layer's few.
func (p *plan) layers() [][]int {
	var ends []int
	for i, kind := range p.kinds {
		if kind == Host || kind == External {
			ends = append(ends, i)
		}
	}
	if len(ends) == 0 || len(ends) == len(p.kinds) {
		return nil
	}
	distance := p.distances(ends...)
	layers := make([][]int, slices.Max(distance)+1)
	for i, d := range distance {
		layers[d] = append(layers[d], i)
	}
	for d, layer := range layers {
		same := 0 // links within the layer
		for _, i := range layer {
			beside := 0
			for _, j := range p.near[i] {
				if distance[j] == d {
					beside++
				}
			}
			same += beside
			if d == 0 && beside > 0 || beside > 2 && d < len(layers)-1 {
				return nil
			}
		}
		if same/2 >= len(layer) && (d < len(layers)-1 || len(layer) > 4) { // a ring, or more
			return nil
		}
	}
	return layers
}

// Distances between nodes of layered graphs, in pixels.
const (
	layerGap = 120
	nodeGap  = 22
)

// inLayers places the layers above each other, hosts at the bottom.
func (p *plan) inLayers(layers [][]int) []point {
	for d, layer := range layers {
		for _, n := range layer {
			p.level[n] = d
		}
	}
	p.widen()
	p.order(layers)
	x := make([]float64, len(p.near))
	for _, layer := range layers {
		p.spread(layer, x, func(int) float64 { return 0 })
	}
	level := p.level
	// Each above or below the middle of those that it is joined to: up, down and up again.
	mean := func(d int) func(int) float64 {
		return func(n int) float64 {
			sum, count := 0.0, 0.0
			for _, m := range p.near[n] {
				if level[m] == d {
					sum, count = sum+x[m], count+1
				}
			}
			if count == 0 {
				return x[n]
			}
			return sum / count
		}
	}
	up := func() {
		for d := 1; d < len(layers); d++ {
			p.spread(layers[d], x, mean(d-1))
		}
	}
	for range 2 {
		up()
		for d := len(layers) - 2; d >= 0; d-- {
			p.spread(layers[d], x, mean(d+1))
		}
	}
	up()
	places := make([]point, len(p.near))
	for n := range places {
		places[n] = point{x[n], -layerGap * float64(level[n])}
	}
	return places
}

// widen makes nodes wide enough for the names of their interfaces, side by side.
func (p *plan) widen() {
	for n, near := range p.near {
		up, down := 0, 0
		for _, m := range near {
			switch {
			case p.level[m] > p.level[n]:
				up++
			case p.level[m] < p.level[n]:
				down++
			}
		}
		if ports := portGap(p.ports[n]) * float64(max(up, down)); ports <= widestPorts {
			p.widths[n] = max(p.widths[n], ports)
		} else {
			p.widths[n] = max(p.widths[n], widestPorts)
		}
	}
}

// spread gives the nodes of a layer, in its order, the places nearest to those wanted
// that leave room between them: by least squares, which pooling neighbours solves that are
// too close (isotonic regression).
func (p *plan) spread(layer []int, x []float64, wanted func(node int) float64) {
	type pool struct{ sum, count, at float64 }
	offsets := make([]float64, len(layer)) // of each node, if all stood as close as they may
	var pools []pool
	for i, n := range layer {
		if i > 0 {
			before := layer[i-1]
			gap := nodeGap + (p.widths[before]+p.widths[n])/2
			if slices.Contains(p.near[before], n) {
				gap += p.reach
			}
			offsets[i] = offsets[i-1] + gap
		}
		want := wanted(n) - offsets[i]
		pools = append(pools, pool{want, 1, want})
		for len(pools) > 1 && pools[len(pools)-2].at > pools[len(pools)-1].at {
			a, b := pools[len(pools)-2], pools[len(pools)-1]
			a.sum, a.count = a.sum+b.sum, a.count+b.count
			a.at = a.sum / a.count
			pools = append(pools[:len(pools)-2], a)
		}
	}
	i := 0
	for _, q := range pools {
		for range int(q.count) {
			x[layer[i]] = q.at + offsets[i]
			i++
		}
	}
}

// mostCrossing is up to how many links crossings are counted among, which takes
// the square of their number.
const mostCrossing = 400

// order sorts each layer so that few links cross: by the mean place of the neighbours in
// the layer below, then in that above, and so on; the best of some rounds counts.
func (p *plan) order(layers [][]int) {
	place := make([]float64, len(p.near)) // of each node in its layer, from 0 to 1
	number := func() {
		for _, layer := range layers {
			for i, n := range layer {
				place[n] = (float64(i) + 0.5) / float64(len(layer))
			}
		}
	}
	level := p.level
	sortBy := func(d, other int) {
		key := make(map[int]float64, len(layers[d]))
		for _, n := range layers[d] {
			sum, count := 0.0, 0.0
			for _, m := range p.near[n] {
				if level[m] == other {
					sum, count = sum+place[m], count+1
				}
			}
			if key[n] = place[n]; count > 0 {
				key[n] = sum / count
			}
		}
		slices.SortStableFunc(layers[d], func(a, b int) int { return cmp.Compare(key[a], key[b]) })
		number()
	}
	number()
	best, least := copied(layers), p.crossings(layers, place)
	for round := range 8 {
		if round%2 == 0 {
			for d := 1; d < len(layers); d++ {
				sortBy(d, d-1)
			}
		} else {
			for d := len(layers) - 2; d >= 0; d-- {
				sortBy(d, d+1)
			}
		}
		if c := p.crossings(layers, place); c < least {
			best, least = copied(layers), c
		}
	}
	copy(layers, best)
}

func copied(layers [][]int) [][]int {
	out := make([][]int, len(layers))
	for i, layer := range layers {
		out[i] = slices.Clone(layer)
	}
	return out
}

// crossings counts the links between neighbouring layers that cross, and adds how far
// apart nodes of one layer are that are joined.
func (p *plan) crossings(layers [][]int, place []float64) float64 {
	level, total := p.level, 0.0
	for d := range layers {
		type line struct{ from, to float64 }
		var lines []line
		for _, n := range layers[d] {
			for _, m := range p.near[n] {
				switch {
				case level[m] == d+1:
					lines = append(lines, line{place[n], place[m]})
				case level[m] == d:
					total += math.Abs(place[m] - place[n])
				}
			}
		}
		if len(lines) > mostCrossing {
			continue
		}
		for i, a := range lines {
			for _, b := range lines[:i] {
				if (a.from-b.from)*(a.to-b.to) < 0 {
					total++
				}
			}
		}
	}
	return total
}
