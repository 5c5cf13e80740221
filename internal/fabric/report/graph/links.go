package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// A curve is the line of a link: a quadratic Bézier curve, from one end to the other.
type curve struct{ from, bend, to point }

func (c curve) at(t float64) point {
	return c.from.times((1 - t) * (1 - t)).plus(c.bend.times(2 * t * (1 - t))).plus(c.to.times(t * t))
}

// links draws the links below the nodes.
func (p *picture) links() {
	curves := p.curves()
	for i := range p.Links {
		l, c := &p.Links[i], curves[i]
		class := "wire"
		if l.Down {
			class += " bad"
		}
		fmt.Fprintf(p, "<g class=\"%s\"><title>%s</title><path class=\"link\" d=\"M%.0f %.0fQ%.0f %.0f %.0f %.0f\"/></g>\n", class, words.XML(p.about(l)),
			c.from.x, c.from.y, c.bend.x, c.bend.y, c.to.x, c.to.y)
		p.cover(c.at(0.5), c.at(0.5))
	}
	// Texts come after all lines, which would cross them.
	for i := range p.Links {
		l := &p.Links[i]
		for end := range l.Ends {
			if where, ok := p.ifacePlace(l, end, curves[i]); ok && p.Nodes[l.Ends[end].Node].Kind != External {
				p.textAt("iface", ifaceChar, where, l.Ends[end].Interface)
			}
		}
		if lines := p.shown(l, p.usual); len(lines) > 0 {
			class := ""
			if l.Down {
				class = "bad"
			}
			fmt.Fprintf(p, "<g class=\"%s\">", class)
			tries := []float64{0.5, 0.36, 0.64}
			if p.crosses(curves, i) {
				tries = []float64{0.36, 0.64, 0.5}
			}
			if lower := p.lowerEnd(l); lower >= 0 { // at which links are farther apart
				tries, lines = []float64{0.36, 0.5, 0.24, 0.64}, split(lines)
				for i, t := range tries {
					if lower == 1 {
						tries[i] = 1 - t
					}
				}
			}
			p.textAt("label", labelChar, p.free(curves[i], tries, lines), lines...)
			p.WriteString("</g>\n")
		}
	}
}

// crosses reports whether the middle of a link is also that of another one.
func (p *picture) crosses(curves []curve, link int) bool {
	for i, c := range curves {
		if i != link && c.at(0.5).minus(curves[link].at(0.5)).length() < line {
			return true
		}
	}
	return false
}

// free is the first of some places on a link where a label covers no other one, or else
// the first.
func (p *picture) free(c curve, tries []float64, lines []string) point {
	var half point
	for _, text := range lines {
		half.x = max(half.x, labelChar*float64(chars(text))/2)
	}
	half.y = line * float64(len(lines)) / 2
	for _, t := range tries {
		where := c.at(t)
		if !slices.ContainsFunc(p.labelled, func(o [2]point) bool {
			return math.Abs(o[0].x-where.x) < half.x+o[1].x && math.Abs(o[0].y-where.y) < half.y+o[1].y
		}) {
			p.labelled = append(p.labelled, [2]point{where, half})
			return where
		}
	}
	return c.at(tries[0])
}

// split is a label with a line for each part of it.
func split(lines []string) []string { return strings.Split(strings.Join(lines, ", "), ", ") }

// lowerEnd is the end of a link between layers that is in the lower one; -1 if the link
// is not between layers.
func (p *picture) lowerEnd(l *Link) int {
	a, b := p.placed.level[l.Ends[0].Node], p.placed.level[l.Ends[1].Node]
	switch {
	case a < 0 || b < 0 || a == b:
		return -1
	case a < b:
		return 0
	default:
		return 1
	}
}

// curves returns the curves of the links. Those between layers end at the edges of their nodes,
// side by side; others in the middle of the nodes. Several between the same nodes lie beside
// each other, and none runs through a third node.
func (p *picture) curves() []curve {
	beside := map[[2]int][]int{} // links by their nodes, the lower first
	for i := range p.Links {
		a, b := p.Links[i].Ends[0].Node, p.Links[i].Ends[1].Node
		pair := [2]int{min(a, b), max(a, b)}
		beside[pair] = append(beside[pair], i)
	}
	ports := p.ports()
	curves := make([]curve, len(p.Links))
	for i := range p.Links {
		l := &p.Links[i]
		a, b := l.Ends[0].Node, l.Ends[1].Node
		from, to := p.placed.at[a].plus(ports[i][0]), p.placed.at[b].plus(ports[i][1])
		c := curve{from, between(from, to, 0.5), to}
		pair := [2]int{min(a, b), max(a, b)}
		n := len(beside[pair])
		across := p.placed.at[pair[1]].minus(p.placed.at[pair[0]])
		switch {
		case a == b: // a loop above the node
			c = curve{from.plus(point{-12, 0}), from.plus(point{0, -6 * height}), from.plus(point{12, 0})}
		case p.lowerEnd(l) >= 0:
		case n > 1:
			offset := float64(slices.Index(beside[pair], i)) - float64(n-1)/2
			lines := 1
			for _, j := range beside[pair] {
				lines = max(lines, len(p.shown(&p.Links[j], p.usual)))
			}
			// The curve comes half as far as what bends it.
			c.bend = c.bend.plus(normal(across).times(2 * offset * (line*float64(lines) + 16)))
		case p.through(l):
			up := normal(across)
			if up.y > 0 {
				up = up.times(-1)
			}
			c.bend = c.bend.plus(up.times(60 + 0.12*across.length()))
		}
		curves[i] = c
	}
	return curves
}

// normal is of length 1, at a right angle to v.
func normal(v point) point {
	return point{-v.y, v.x}.times(1 / max(v.length(), 1))
}

// through reports whether the straight line of a link would run through a third node.
func (p *picture) through(l *Link) bool {
	a, b := p.placed.at[l.Ends[0].Node], p.placed.at[l.Ends[1].Node]
	way := b.minus(a)
	for i, at := range p.placed.at {
		if i == l.Ends[0].Node || i == l.Ends[1].Node {
			continue
		}
		t := (at.minus(a).x*way.x + at.minus(a).y*way.y) / max(way.length()*way.length(), 1)
		if t <= 0 || t >= 1 {
			continue
		}
		nearest := at.minus(between(a, b, t))
		if math.Abs(nearest.x) < p.placed.widths[i]/2 && math.Abs(nearest.y) < height/2 {
			return true
		}
	}
	return false
}

// portGap returns the distance between the ends of links at a node whose interfaces have names
// of so many characters.
func portGap(longest int) float64 { return ifaceChar*float64(longest) + 7 }

// widestPorts bounds the width to which nodes may grow so that all their interfaces have names.
const widestPorts = 420

// ports returns the places of the ends of each link, as seen from the middle of their nodes:
// side by side at the upper and lower edges for links between layers, in the order of the nodes
// at the other ends.
func (p *picture) ports() [][2]point {
	ports := make([][2]point, len(p.Links))
	for node := range p.Nodes {
		for _, side := range []float64{-1, 1} { // up, down
			ends := p.endsAt(node, side)
			slices.SortStableFunc(ends, func(a, b [2]int) int {
				x := func(e [2]int) float64 { return p.placed.at[p.Links[e[0]].Ends[1-e[1]].Node].x }
				switch {
				case x(a) < x(b):
					return -1
				case x(a) > x(b):
					return 1
				}
				return 0
			})
			gap := min(p.gapAt(ends), (p.placed.widths[node]-8)/float64(max(len(ends), 1)))
			for i, e := range ends {
				ports[e[0]][e[1]] = point{gap * (float64(i) - float64(len(ends)-1)/2), side * height / 2}
			}
		}
	}
	return ports
}

// endsAt are the links of a node that go to the layer above (side -1) or below (1): their
// numbers, and which of their ends it is.
func (p *picture) endsAt(node int, side float64) [][2]int {
	var ends [][2]int
	for i := range p.Links {
		l := &p.Links[i]
		lower := p.lowerEnd(l)
		if lower < 0 {
			continue
		}
		end := lower
		if side > 0 {
			end = 1 - lower
		}
		if l.Ends[end].Node == node {
			ends = append(ends, [2]int{i, end})
		}
	}
	return ends
}

func (p *picture) gapAt(ends [][2]int) float64 {
	longest := 0
	for _, e := range ends {
		longest = max(longest, chars(p.Links[e[0]].Ends[e[1]].Interface))
	}
	return portGap(longest)
}

// ifacePlace returns the place of the name of an interface: at its end of the link, outside the
// node. ok is false if there is no room.
func (p *picture) ifacePlace(l *Link, end int, c curve) (where point, ok bool) {
	name, node := l.Ends[end].Interface, l.Ends[end].Node
	if lower := p.lowerEnd(l); lower >= 0 {
		side := 1.0
		if end == lower {
			side = -1
		}
		ends := p.endsAt(node, side)
		if p.gapAt(ends)*float64(len(ends)) > p.placed.widths[node]+1 {
			return point{}, false
		}
		at := c.from
		if end == 1 {
			at = c.to
		}
		return at.plus(point{0, side * 8}), true
	}
	away := point{p.placed.widths[node]/2 + ifaceChar*float64(chars(name))/2 + 4, height/2 + 8}
	for t := 0.02; t < 0.45; t += 0.01 {
		along := t
		if end == 1 {
			along = 1 - t
		}
		from := c.at(along).minus(p.placed.at[node])
		if math.Abs(from.x) > away.x || math.Abs(from.y) > away.y {
			return c.at(along), true
		}
	}
	return point{}, false
}
