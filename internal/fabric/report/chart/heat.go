package chart

import (
	"fmt"
	"math"

	"github.com/ndklab/ndklab/internal/fabric/report"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// A Heat is a figure over the values of two axes.
type Heat struct {
	Title   string
	X, Y    Axis
	Value   Axis // of the figure
	XLabels []string
	YLabels []string
	Spread  [][]*report.Spread // by place along y, then x; nil: nothing is known
}

// cividis are colours of the map of that name, from dark to bright, at equal distances: it looks
// the same to the colour-blind (Nuñez, Anderton and Renslow, 2018).
var cividis = [][3]float64{{0, 34, 78}, {18, 53, 112}, {59, 73, 108}, {87, 93, 109}, {112, 113, 115}, {138, 134, 120}, {165, 156, 116}, {195, 179, 105}, {225, 204, 85}, {254, 232, 56}}

// heatColour returns the colour of a place from 0 to 1, and that of text upon it.
func heatColour(at float64) (colour, textColour string) {
	at = min(max(at, 0), 1) * float64(len(cividis)-1)
	i := min(int(at), len(cividis)-2)
	var c [3]int
	for j := range c {
		c[j] = int(math.Round(cividis[i][j] + (at-float64(i))*(cividis[i+1][j]-cividis[i][j])))
	}
	textColour = "#ffffff"
	if at > 5 {
		textColour = "#000000"
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]), textColour
}

// SVG draws the map: a square for each point, coloured and named by its median.
func (h *Heat) SVG() string {
	const left, top, bottom, scaleWidth, narrow = 120.0, 44.0, 74.0, 110.0, 60.0
	cellWidth := max(narrow, 520/float64(len(h.XLabels)))
	cellHeight := max(30, min(90, 300/float64(len(h.YLabels))))
	right, floor := left+cellWidth*float64(len(h.XLabels)), top+cellHeight*float64(len(h.YLabels))
	width, height := right+scaleWidth, floor+bottom
	d := begin(width, height, h.Title)
	d.heading(16, width-32, h.Title)
	var values []float64
	for _, row := range h.Spread {
		for _, p := range row {
			if p != nil {
				values = append(values, p.Median)
			}
		}
	}
	heat := sideOf(values, 0, 1)
	for i, row := range h.Spread {
		y := floor - cellHeight*float64(i+1)
		d.text(left-8, y+cellHeight/2+4, "end", ink, fitting(h.YLabels[i], left-36, 7), "")
		for j, p := range row {
			x := left + cellWidth*float64(j)
			if p == nil {
				fmt.Fprintf(d, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="#ffffff" stroke="%s"/>`+"\n", x, y, cellWidth, cellHeight, faint)
				d.text(x+cellWidth/2, y+cellHeight/2+4, "middle", dim, "–", "")
				continue
			}
			colour, textColour := heatColour(heat.at(p.Median))
			fmt.Fprintf(d, `<g><title>%s</title><rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s" stroke="#ffffff"/>`+"\n",
				words.XML(fmt.Sprintf("%s, %s: median %s, %s to %s, runs: %d", h.XLabels[j], h.YLabels[i], h.Value.label(p.Median), h.Value.label(p.Min), h.Value.label(p.Max), p.Runs)),
				x, y, cellWidth, cellHeight, colour)
			d.text(x+cellWidth/2, y+cellHeight/2+4, "middle", textColour, fitting(h.Value.label(p.Median), cellWidth, 6.5), ` font-size="11"`)
			d.WriteString("</g>\n")
		}
	}
	for j, label := range h.XLabels {
		d.text(left+cellWidth*(float64(j)+.5), floor+20, "middle", ink, fitting(label, cellWidth, 7), "")
	}
	d.text((left+right)/2, floor+44, "middle", ink, fitting(h.X.title(), right-left, 7), "")
	d.text(0, 0, "middle", ink, fitting(h.Y.title(), floor-top, 7), fmt.Sprintf(` transform="translate(18 %.2f) rotate(-90)"`, (top+floor)/2))
	d.text(16, height-8, "start", dim, fitting("medians of "+h.Value.title(), width-32, 6), ` font-size="10"`)
	const steps = 40
	for i := range steps {
		colour, _ := heatColour((float64(i) + .5) / steps)
		each := (floor - top) / steps
		fmt.Fprintf(d, `<rect x="%.2f" y="%.2f" width="16" height="%.2f" fill="%s"/>`+"\n", right+18, floor-each*float64(i+1), each+.5, colour)
	}
	for _, tick := range heat.ticks {
		d.text(right+40, floor-(floor-top)*heat.at(tick)+4, "start", ink, h.Value.label(tick), ` font-size="10"`)
	}
	return d.end()
}
