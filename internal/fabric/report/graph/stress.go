package graph

import "math"

// mostStress is up to how many nodes byStress takes, whose time grows with the square.
const mostStress = 200

// byStress places nodes so that they are as far apart as there are links between them, as
// far as that can be: by stress majorization (Gansner, Koren and North: Graph drawing by
// stress majorization, 2004), from a ring.
func (p *plan) byStress() []point {
	n := len(p.near)
	places := p.inRing(all(n))
	length := p.widest() + max(p.reach, 60)
	distances := make([][]int, n)
	for i := range n {
		distances[i] = p.distances(i)
	}
	const rounds = 300
	for range rounds {
		for i := range n {
			var sum point
			weights := 0.0
			for j := range n {
				if i == j {
					continue
				}
				want := length * float64(distances[i][j])
				weight := 1 / (want * want)
				apart := places[i].minus(places[j])
				d := max(apart.length(), 1e-9)
				sum = sum.plus(places[j].plus(apart.times(want / d)).times(weight))
				weights += weight
			}
			places[i] = sum.times(1 / weights)
		}
	}
	return turned(places)
}

// turned turns the picture so that it is widest from left to right, since names are.
func turned(places []point) []point {
	var middle point
	for _, q := range places {
		middle = middle.plus(q.times(1 / float64(len(places))))
	}
	var xx, xy, yy float64
	for _, q := range places {
		d := q.minus(middle)
		xx, xy, yy = xx+d.x*d.x, xy+d.x*d.y, yy+d.y*d.y
	}
	angle := -math.Atan2(2*xy, xx-yy) / 2
	sin, cos := math.Sincos(angle)
	for i, q := range places {
		d := q.minus(middle)
		places[i] = point{d.x*cos - d.y*sin, d.x*sin + d.y*cos}
	}
	return places
}
