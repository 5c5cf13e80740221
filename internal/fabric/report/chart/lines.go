package chart

import (
	"fmt"
	"math"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// Lines are lines of one figure over values of an axis.
type Lines struct {
	Title string
	X, Y  Axis
	// Labels are the names of the places along x, and Numbers their values on that axis; nil: the places
	// are next to each other, in equal distances.
	Labels  []string
	Numbers []float64
	Series  []Series
}

// A Series is one line.
type Series struct {
	Name   string
	Spread []*report.Spread // by place along x; nil: nothing is known
}

// colours are Okabe and Ito's, with those left out that are faint on white; each line has a dash
// and a sign of its own, too, for print without colours.
var (
	colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00"}
	dashes  = []string{"", "7 3", "2 3", "9 3 2 3"}
)

// SVG draws the lines: medians, with bars from the least to the largest.
func (l *Lines) SVG() string {
	const width, left, top, bottom = 720.0, 96.0, 44.0, 74.0
	legend := 0.0
	if len(l.Series) > 1 || l.Series[0].Name != "" {
		legend = 170
	}
	height := max(420, top+bottom+20*float64(len(l.Series)))
	right := width - 24 - legend
	d := begin(width, height, l.Title)
	d.heading(16, width-32, l.Title)
	var values []float64
	for _, s := range l.Series {
		for _, p := range s.Spread {
			if p != nil {
				values = append(values, p.Min, p.Max)
			}
		}
	}
	y := sideOf(values, height-bottom, top)
	for _, tick := range y.ticks {
		at := y.at(tick)
		d.line(left, at, right, at, faint, 1)
		d.text(left-8, at+4, "end", ink, l.Y.label(tick), "")
	}
	places := l.places(left+18, right-18)
	d.line(left, height-bottom, right, height-bottom, ink, 1)
	d.line(left, top, left, height-bottom, ink, 1)
	each := (right - left) / float64(max(len(places), 1))
	last := math.Inf(-1)
	for i, at := range places {
		d.line(at, height-bottom, at, height-bottom+5, ink, 1)
		label := fitting(l.Labels[i], max(each, 60), 7)
		if half := 3.6*float64(len(label)) + 3; at-half > last { // or it would cover the one before
			d.text(at, height-bottom+20, "middle", ink, label, "")
			last = at + half
		}
	}
	d.text((left+right)/2, height-bottom+44, "middle", ink, fitting(l.X.title(), right-left, 7), "")
	d.text(0, 0, "middle", ink, fitting(l.Y.title(), height-top-bottom, 7), fmt.Sprintf(` transform="translate(18 %.2f) rotate(-90)"`, (top+height-bottom)/2))
	d.text(16, height-8, "start", dim, "lines: medians; bars: least to largest", ` font-size="10"`)
	for i, s := range l.Series {
		l.series(d, i, s, places, y)
		if legend > 0 {
			at := top + 14 + 20*float64(i)
			fmt.Fprintf(d, `<path d="M%.2f %.2fh26" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", right+16, at-4, colours[i%len(colours)], dashes[i%len(dashes)])
			d.sign(i, right+29, at-4)
			d.text(right+50, at, "start", ink, fitting(s.Name, legend-46, 7), "")
		}
	}
	return d.end()
}

// places returns where along x the values are, between two places.
func (l *Lines) places(from, to float64) []float64 {
	all := make([]float64, len(l.Labels))
	x := &side{from: from, by: to - from}
	if l.Numbers != nil {
		low, high := math.Inf(1), math.Inf(-1)
		for _, n := range l.Numbers {
			low, high = min(low, n), max(high, n)
		}
		if spansDecades(l.Numbers) {
			x.to = func(n float64) float64 { return math.Log(n/low) / math.Log(high/low) }
		} else if high > low {
			x.to = func(n float64) float64 { return (n - low) / (high - low) }
		}
	}
	for i := range all {
		switch {
		case len(all) == 1:
			all[i] = (from + to) / 2
		case x.to != nil:
			all[i] = x.at(l.Numbers[i])
		default:
			all[i] = from + (to-from)*float64(i)/float64(len(all)-1)
		}
	}
	return all
}

// series draws the line of a number.
func (l *Lines) series(d *drawing, number int, s Series, places []float64, y *side) {
	colour := colours[number%len(colours)]
	path, pen := "", "M"
	for _, i := range byPlace(places) {
		p := s.Spread[i]
		if p == nil { // the line has a gap there
			pen = "M"
			continue
		}
		path += fmt.Sprintf("%s%.2f %.2f", pen, places[i], y.at(p.Median))
		pen = "L"
	}
	fmt.Fprintf(d, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", path, colour, dashes[number%len(dashes)])
	for i, p := range s.Spread {
		if p == nil {
			continue
		}
		x := places[i]
		d.WriteString("<g>")
		fmt.Fprintf(d, "<title>%s</title>\n", words.XML(fmt.Sprintf("%s %s: median %s, %s to %s, runs: %d", s.Name, l.Labels[i],
			l.Y.label(p.Median), l.Y.label(p.Min), l.Y.label(p.Max), p.Runs)))
		if p.Max > p.Min {
			d.line(x, y.at(p.Min), x, y.at(p.Max), colour, 1.2)
			d.line(x-4, y.at(p.Min), x+4, y.at(p.Min), colour, 1.2)
			d.line(x-4, y.at(p.Max), x+4, y.at(p.Max), colour, 1.2)
		}
		d.sign(number, x, y.at(p.Median))
		d.WriteString("</g>\n")
	}
}

// byPlace returns the indices of places from left to right.
func byPlace(places []float64) []int {
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
		for j := i; j > 0 && places[order[j]] < places[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}

// sign draws the sign of a line: a disc, a square, a triangle or a diamond.
func (d *drawing) sign(number int, x, y float64) {
	colour := colours[number%len(colours)]
	switch number % 4 {
	case 0:
		fmt.Fprintf(d, `<circle cx="%.2f" cy="%.2f" r="4" fill="%s"/>`+"\n", x, y, colour)
	case 1:
		fmt.Fprintf(d, `<rect x="%.2f" y="%.2f" width="8" height="8" fill="%s"/>`+"\n", x-4, y-4, colour)
	case 2:
		fmt.Fprintf(d, `<path d="M%.2f %.2fl5 9h-10z" fill="%s"/>`+"\n", x, y-5, colour)
	default:
		fmt.Fprintf(d, `<path d="M%.2f %.2fl5 5l-5 5l-5 -5z" fill="%s"/>`+"\n", x, y-5, colour)
	}
}
