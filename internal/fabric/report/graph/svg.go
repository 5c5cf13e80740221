package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// Sizes of a picture, in pixels. Names are in a font whose characters all have one width,
// so that it is known how wide they are: 0.6 of its size.
const (
	nameChar  = 0.6 * 12
	labelChar = 0.6 * 10
	ifaceChar = 0.6 * 9
	height    = 28 // of a node
	margin    = 24
	line      = 12 // of labels
)

// style has the colours of a picture, light or dark as the reader's system wants. Its
// rules hold below the class of the picture alone, as a page may contain it.
const style = `.ndklab-graph { --back: #ffffff; --text: #1f2328; --dim: #59636e; --line: #8c959f; --bad: #d1242f;
  --host: #ddf4ff; --host-edge: #0969da; --switch: #fff1c2; --switch-edge: #9a6700; --router: #dafbe1; --router-edge: #1a7f37;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px }
@media (prefers-color-scheme: dark) { .ndklab-graph { --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #6e7681; --bad: #ff7b72;
  --host: #12233d; --host-edge: #4493f8; --switch: #332a12; --switch-edge: #d29922; --router: #12301f; --router-edge: #3fb950 } }
.ndklab-graph text { fill: var(--text); text-anchor: middle; dominant-baseline: central }
.ndklab-graph .title { font-size: 14px; font-weight: bold; text-anchor: start }
.ndklab-graph .key { font-size: 10px; text-anchor: start }
.ndklab-graph .label { font-size: 10px }
.ndklab-graph .iface { font-size: 9px; fill: var(--dim) }
.ndklab-graph .back { fill: var(--back) }
.ndklab-graph .link { fill: none; stroke: var(--line); stroke-width: 1.5 }
.ndklab-graph .shape { stroke-width: 1.5 }
.ndklab-graph .host .shape { fill: var(--host); stroke: var(--host-edge) }
.ndklab-graph .switch .shape { fill: var(--switch); stroke: var(--switch-edge) }
.ndklab-graph .router .shape { fill: var(--router); stroke: var(--router-edge) }
.ndklab-graph .external .shape { fill: var(--back); stroke: var(--dim); stroke-dasharray: 4 3 }
.ndklab-graph .bad .shape, .ndklab-graph .bad .link { stroke: var(--bad); stroke-dasharray: 5 4 }
.ndklab-graph .bad .label, .ndklab-graph .bad .name { fill: var(--bad) }
`

// width returns the width that a node needs for its name.
func (n *Node) width() float64 {
	return max(44, nameChar*float64(max(chars(n.name()), chars(n.Trouble)))+18)
}

func chars(s string) int { return len([]rune(s)) }

// room returns the length of a link that has to be seen between two nodes side by side.
func (g *Graph) room(l *Link, u usual) float64 {
	label := 0
	for _, text := range g.shown(l, u) {
		label = max(label, chars(text))
	}
	return labelChar*float64(label) + ifaceChar*float64(chars(l.Ends[0].Interface)+chars(l.Ends[1].Interface)) + 40
}

// A picture is a graph while it is being drawn.
type picture struct {
	*Graph
	strings.Builder
	placed placement
	usual  usual
	low    point // what has been drawn is from here
	up     point // to here

	labelled [][2]point // where labels of links are: their middles, and half their sizes
}

// SVG is the graph as a picture, which needs nothing but itself and can stand in an HTML
// page.
func (g *Graph) SVG() string {
	p := &picture{Graph: g, usual: g.usual()}
	p.placed = g.layout(p.usual)
	if len(g.Nodes) > 0 {
		p.low, p.up = bounds(p.placed.at)
	}
	for i := range g.Nodes {
		half := point{p.placed.widths[i] / 2, height / 2}
		p.cover(p.placed.at[i].minus(half), p.placed.at[i].plus(half))
	}
	p.links()
	p.nodes()
	body := p.String()
	p.Reset()
	p.legend()
	legend := p.String()

	size := p.up.minus(p.low).plus(point{2 * margin, 2*margin + 20})
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ndklab-graph\" role=\"img\" width=\"%.0f\" height=\"%.0f\" viewBox=\"%.0f %.0f %.0f %.0f\">\n",
		size.x, size.y, p.low.x-margin, p.low.y-margin-20, size.x, size.y)
	fmt.Fprintf(&out, "<title>lab %s</title>\n<style>\n%s</style>\n", words.XML(g.Name), style)
	fmt.Fprintf(&out, "<rect class=\"back\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\"/>\n", p.low.x-margin, p.low.y-margin-20, size.x, size.y)
	fmt.Fprintf(&out, "<text class=\"title\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", p.low.x-margin+12, p.low.y-margin, words.XML(g.Name))
	out.WriteString(body)
	out.WriteString(legend)
	out.WriteString("</svg>\n")
	return out.String()
}

// cover makes the picture large enough for a rectangle.
func (p *picture) cover(low, up point) {
	p.low = point{min(p.low.x, low.x), min(p.low.y, low.y)}
	p.up = point{max(p.up.x, up.x), max(p.up.y, up.y)}
}

func (p *picture) nodes() {
	for i := range p.Nodes {
		n, at, w := &p.Nodes[i], p.placed.at[i], p.placed.widths[i]
		class := string(n.Kind)
		if n.Trouble != "" {
			class += " bad"
		}
		fmt.Fprintf(p, "<g class=\"%s\"><title>%s</title>", words.XML(class), words.XML(n.about()))
		p.shape(n.Kind, at, w, height)
		if n.Trouble == "" {
			p.text("name", at, n.name())
		} else {
			p.text("name", at.plus(point{0, -5}), n.name())
			p.text("label", at.plus(point{0, 7}), n.Trouble)
		}
		p.WriteString("</g>\n")
	}
}

func (p *picture) shape(kind Kind, at point, width, height float64) {
	round := map[Kind]float64{Host: 7, Switch: 1, Router: height / 2, External: 7}[kind]
	fmt.Fprintf(p, "<rect class=\"shape\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"%.0f\"/>", at.x-width/2, at.y-height/2, width, height, round)
}

func (p *picture) text(class string, at point, text string) {
	fmt.Fprintf(p, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">%s</text>", class, at.x, at.y, words.XML(text))
}

// textAt writes lines of text around a place, and has the picture cover them.
func (p *picture) textAt(class string, char float64, at point, lines ...string) {
	for i, text := range lines {
		where := at.plus(point{0, line * (float64(i) - float64(len(lines)-1)/2)})
		half := point{char*float64(chars(text))/2 + 2, line / 2}
		// The line of the link would be seen between the words.
		fmt.Fprintf(p, "<rect class=\"back\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\"/>", where.x-half.x, where.y-half.y, 2*half.x, 2*half.y)
		p.text(class, where, text)
		p.cover(where.minus(half), where.plus(half))
	}
}

// legend says below the picture what the shapes are, and what links are like.
func (p *picture) legend() {
	from := point{p.low.x, p.up.y + 28}
	for _, kind := range []Kind{Host, Switch, Router, External} {
		if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Kind == kind }) {
			continue
		}
		fmt.Fprintf(p, "<g class=\"%s\">", kind)
		p.shape(kind, from.plus(point{8, 0}), 16, 10)
		fmt.Fprintf(p, "<text class=\"key\" x=\"%.0f\" y=\"%.0f\">%s</text></g>\n", from.x+21, from.y, kind)
		from.x += 21 + labelChar*float64(len(kind)) + 16
		p.cover(from, from)
	}
	from = point{p.low.x, p.up.y + 18}
	for _, text := range p.sentences(p.usual) {
		fmt.Fprintf(p, "<text class=\"key\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", from.x, from.y, words.XML(text))
		p.cover(from, from.plus(point{labelChar * float64(chars(text)), 0}))
		from.y += line
	}
}
