package graph

import (
	"math"
	"slices"
)

// A point is the position of a node's middle, in pixels of a picture, y downwards.
//
// A product is converted so that it is rounded before it is added to something. Without
// that a compiler may have the processor do both at once (Go's specification, Floating-point
// operators), as it does for arm64 and not for amd64, and drawings would differ.
type point struct{ x, y float64 }

func (p point) plus(q point) point        { return point{p.x + q.x, p.y + q.y} }
func (p point) minus(q point) point       { return point{p.x - q.x, p.y - q.y} }
func (p point) times(f float64) point     { return point{float64(p.x * f), float64(p.y * f)} }
func (p point) length() float64           { return math.Hypot(p.x, p.y) }
func at(angle float64) point              { return point{math.Sin(angle), -math.Cos(angle)} } // 0 is above
func between(p, q point, f float64) point { return p.plus(q.minus(p).times(f)) }
func bounds(points []point) (low, up point) {
	low, up = points[0], points[0]
	for _, p := range points {
		low = point{min(low.x, p.x), min(low.y, p.y)}
		up = point{max(up.x, p.x), max(up.y, p.y)}
	}
	return low, up
}

// A plan is a graph, or a part of it whose nodes are all joined, to be laid out.
type plan struct {
	kinds  []Kind
	near   [][]int // neighbours of each node, each once, ascending
	widths []float64
	reach  float64 // that a link needs for its labels between two nodes side by side
	level  []int   // of each node in layers, counted from hosts; -1 before, and in others
	ports  []int   // of each node: characters of its longest interface name
}

// A placement has the positions of nodes, and their widths.
type placement struct {
	at     []point
	widths []float64
	level  []int // the layer; -1 if the node is in none
}

// layout places the nodes. Links with the usual label have none in the picture.
func (g *Graph) layout(u usual) placement {
	p := newPlan(len(g.Nodes))
	for i := range g.Nodes {
		p.kinds[i], p.widths[i] = g.Nodes[i].Kind, g.Nodes[i].width()
	}
	for i := range g.Links {
		l := &g.Links[i]
		p.join(l.Ends[0].Node, l.Ends[1].Node)
		p.reach = max(p.reach, g.room(l, u))
		for _, e := range l.Ends {
			p.ports[e.Node] = max(p.ports[e.Node], chars(e.Interface))
		}
	}
	return p.layout()
}

// Place returns places of nodes for a picture without text, x and y of their middles, y downwards. Nodes have kinds and widths, and links
// join them by their indices. One that is wide has as much room below.
func Place(kinds []Kind, widths []float64, links [][2]int) [][2]float64 {
	p := newPlan(len(kinds))
	copy(p.kinds, kinds)
	copy(p.widths, widths)
	for _, l := range links {
		p.join(l[0], l[1])
	}
	p.reach = bareReach
	places := make([][2]float64, len(kinds))
	for i, at := range p.layout().at {
		places[i] = [2]float64{at.x, at.y}
	}
	return places
}

// bareReach is the length of a link without text between two nodes side by side, in pixels.
const bareReach = 60

// newPlan returns the plan of nodes that no link joins yet.
func newPlan(nodes int) *plan {
	return &plan{kinds: make([]Kind, nodes), near: make([][]int, nodes), widths: make([]float64, nodes),
		level: slices.Repeat([]int{-1}, nodes), ports: make([]int, nodes)}
}

// join adds a link.
func (p *plan) join(a, b int) {
	if a != b {
		p.near[a], p.near[b] = append(p.near[a], b), append(p.near[b], a)
	}
}

// layout places the nodes, whose links are all there: each part by itself, side by side.
func (p *plan) layout() placement {
	for i := range p.near {
		slices.Sort(p.near[i])
		p.near[i] = slices.Compact(p.near[i])
	}
	all := placement{make([]point, len(p.near)), p.widths, p.level}
	right := 0.0 // of the parts that have been placed
	for _, part := range p.parts() {
		sub := p.sub(part)
		placed := sub.place()
		low, _ := bounds(placed)
		shift := point{right - low.x + sub.widest()/2, -low.y}
		for i, node := range part {
			all.at[node], all.widths[node], all.level[node] = placed[i].plus(shift), sub.widths[i], sub.level[i]
			right = max(right, all.at[node].x+sub.widest()/2+partGap)
		}
	}
	return all
}

const partGap = 40 // pixels between parts that no link joins

// parts are the nodes that are joined by links, in the order of their first.
func (p *plan) parts() [][]int {
	seen := make([]bool, len(p.near))
	var parts [][]int
	for i := range p.near {
		if !seen[i] {
			distance := p.distances(i)
			var part []int
			for j, d := range distance {
				if d >= 0 {
					seen[j] = true
					part = append(part, j)
				}
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// sub is the plan of some of the nodes, which are joined to no others.
func (p *plan) sub(nodes []int) *plan {
	s := &plan{reach: p.reach}
	number := make(map[int]int, len(nodes))
	for i, n := range nodes {
		number[n] = i
	}
	for _, n := range nodes {
		s.kinds, s.widths = append(s.kinds, p.kinds[n]), append(s.widths, p.widths[n])
		s.level, s.ports = append(s.level, -1), append(s.ports, p.ports[n])
		var near []int
		for _, m := range p.near[n] {
			near = append(near, number[m])
		}
		s.near = append(s.near, near)
	}
	return s
}

// distances counts the links from some nodes to each; -1 is out of reach.
func (p *plan) distances(from ...int) []int {
	d := slices.Repeat([]int{-1}, len(p.near))
	for _, n := range from {
		d[n] = 0
	}
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		for _, m := range p.near[queue[0]] {
			if d[m] < 0 {
				d[m] = d[queue[0]] + 1
				queue = append(queue, m)
			}
		}
	}
	return d
}

func (p *plan) widest() float64 { return slices.Max(p.widths) }

// place chooses how to lay out nodes that are all joined.
func (p *plan) place() []point {
	if row := p.row(); row != nil {
		return p.inRow(row)
	}
	if ring := p.ring(); ring != nil {
		return p.inRing(ring)
	}
	if hub := p.hub(); hub >= 0 {
		return p.aroundHub(hub)
	}
	if layers := p.layers(); layers != nil {
		return p.inLayers(layers)
	}
	if len(p.near) > mostStress || p.dense() {
		return p.inRing(all(len(p.near)))
	}
	return p.byStress()
}

func all(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// row is the order of nodes that make a line; nil if they do not.
func (p *plan) row() []int {
	ends, links := []int{}, 0
	for i, near := range p.near {
		links += len(near)
		if len(near) > 2 {
			return nil
		}
		if len(near) < 2 {
			ends = append(ends, i)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	return p.walk(ends[0])
}

// ring is the order of nodes that make a ring; nil if they do not.
func (p *plan) ring() []int {
	for _, near := range p.near {
		if len(near) != 2 {
			return nil
		}
	}
	return p.walk(0)
}

// walk goes on from node to node along the first link to one where it was not.
func (p *plan) walk(from int) []int {
	order := []int{from}
	for {
		last := order[len(order)-1]
		i := slices.IndexFunc(p.near[last], func(n int) bool { return !slices.Contains(order, n) })
		if i < 0 {
			return order
		}
		order = append(order, p.near[last][i])
	}
}

// hub is the node that all others are joined to, and to no other; -1 if there is none.
func (p *plan) hub() int {
	hub := -1
	for i, near := range p.near {
		switch {
		case len(near) == 1:
		case hub >= 0:
			return -1
		default:
			hub = i
		}
	}
	return hub
}

// dense reports whether there are so many links that a ring shows them best.
func (p *plan) dense() bool {
	links := 0
	for _, near := range p.near {
		links += len(near)
	}
	n := len(p.near)
	return links*2 >= n*(n-1) // half of the possible ones
}

// inRow places nodes from left to right.
func (p *plan) inRow(order []int) []point {
	places := make([]point, len(order))
	x := 0.0
	for i, n := range order {
		if i > 0 {
			x += p.widths[order[i-1]]/2 + p.widths[n]/2 + p.reach
		}
		places[n] = point{x, 0}
	}
	return places
}

// mostStep is up to how far apart neighbours of a ring are for the labels between them.
const mostStep = 190

// inRing places nodes on a circle, the first one above.
func (p *plan) inRing(order []int) []point {
	n := float64(len(order))
	links := 0 // at the node that has the most
	for _, near := range p.near {
		links = max(links, len(near))
	}
	step := max(p.widest()+16*float64(min(links, 16)), min(p.widest()/2+p.reach, mostStep))
	radius := max(110, p.reach*0.8, step*n/(2*math.Pi))
	places := make([]point, len(order))
	for i, node := range order {
		places[node] = at(2 * math.Pi * float64(i) / n).times(radius)
	}
	return places
}

// aroundHub places one node in the middle and the others on a circle.
func (p *plan) aroundHub(hub int) []point {
	var others []int
	for i := range p.near {
		if i != hub {
			others = append(others, i)
		}
	}
	n := float64(len(others))
	radius := max(p.widths[hub]/2+p.reach, (p.widest()+16)*n/(2*math.Pi))
	places := make([]point, len(p.near))
	for i, node := range others {
		// Names are wide: a circle that is wider than high has room for them.
		a := at(2 * math.Pi * float64(i) / n).times(radius)
		places[node] = point{a.x, a.y * 0.8}
	}
	return places
}
