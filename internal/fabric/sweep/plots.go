package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/chart"
)

// A Plot is a picture of a figure of a sweep.
type Plot struct {
	Figure report.Figure
	File   string // its name
	Title  string
	SVG    string
}

const (
	// mostFacets bounds the combinations of the third axis and those behind it that have plots, and
	// mostLines the lines of one.
	mostFacets = 12
	mostLines  = 12
)

// Plots returns the plots of a finished sweep: for each figure lines over one axis, of which each has a
// value of a second axis, and a heat map of these two. Each combination of the other axes has plots of its
// own, up to twelve. Counts that are 0 in all runs have none.
//
// The first axis whose values are numbers is along x, else the first.
func Plots(s *report.Sweep) []Plot {
	l := layoutOf(s)
	var plots []Plot
	taken := map[string]bool{}
	add := func(f report.Figure, kind, facet, title, svg string) {
		name := fileName(f.Name + "-" + kind)
		for n := 2; taken[name]; n++ {
			name = fileName(f.Name+"-"+kind) + "-" + strconv.Itoa(n)
		}
		taken[name] = true
		plots = append(plots, Plot{Figure: f, File: name + ".svg", Title: strings.TrimSpace(title + " " + facet), SVG: svg})
	}
	for _, f := range s.Figures {
		if !f.Plotted || f.Exact && !occurs(s, f.Name) {
			continue
		}
		title := f.What
		if f.Workload != "" {
			title = f.Workload + ": " + title
		}
		for _, facet := range l.facets {
			of := l.facetText(facet)
			whole := title
			if of != "" {
				whole += " (" + of + ")"
			}
			add(f, "lines", of, title, l.lines(f, whole, facet).SVG())
			if l.series >= 0 && len(s.Vary[l.x].Values) > 1 && len(s.Vary[l.series].Values) > 1 {
				add(f, "heat", of, title, l.heat(f, whole, facet).SVG())
			}
		}
	}
	return plots
}

// occurs reports whether a figure is other than 0 in any run.
func occurs(s *report.Sweep, figure string) bool {
	return slices.ContainsFunc(s.Runs, func(r report.SweepRun) bool { return r.Figures[figure] != 0 })
}

// A layout says which axis of a sweep is where.
type layout struct {
	of     *report.Sweep
	x      int // the index of the axis along x
	series int // of that of the lines; -1: there is none
	others []int
	facets [][]string // a value of each of the others, by combination
}

func layoutOf(s *report.Sweep) *layout {
	l := &layout{of: s, series: -1}
	for i, axis := range s.Vary {
		if _, ok := ScaleOf(axis); ok && len(axis.Values) > 1 {
			l.x = i
			break
		}
	}
	l.facets = [][]string{nil}
	for i, axis := range s.Vary {
		switch {
		case i == l.x:
		case l.series < 0:
			l.series = i
		default:
			l.others = append(l.others, i)
			var more [][]string
			for _, facet := range l.facets {
				for _, value := range axis.Values {
					more = append(more, append(slices.Clone(facet), value))
				}
			}
			l.facets = more[:min(len(more), mostFacets)]
		}
	}
	return l
}

// facetText returns what the plots of a combination have in common.
func (l *layout) facetText(facet []string) string {
	var texts []string
	for i, value := range facet {
		texts = append(texts, l.of.Vary[l.others[i]].Path+"="+value)
	}
	return strings.Join(texts, ", ")
}

// at returns the spread of a figure at a point; nil: it was not measured there.
func (l *layout) at(figure string, x, series int, facet []string) *report.Spread {
	number := 0
	for i, axis := range l.of.Vary {
		at := 0
		switch {
		case i == l.x:
			at = x
		case i == l.series:
			at = series
		default:
			at = indexOf(axis.Values, facet[slices.Index(l.others, i)])
		}
		number = number*len(axis.Values) + at
	}
	spread, has := l.of.Points[number].Figures[figure]
	if !has {
		return nil
	}
	return &spread
}

// axis returns an axis of a plot, and where its values are, if they are numbers.
func (l *layout) axis(i int) (chart.Axis, []float64) {
	scale, ok := ScaleOf(l.of.Vary[i])
	if !ok {
		return chart.Axis{Name: l.of.Vary[i].Path}, nil
	}
	return chart.Axis{Name: l.of.Vary[i].Path, Unit: ""}, scale.Numbers // its labels have their units
}

func valueAxis(f report.Figure) chart.Axis { return chart.Axis{Name: f.What, Unit: f.Unit} }

func (l *layout) lines(f report.Figure, title string, facet []string) *chart.Lines {
	x, numbers := l.axis(l.x)
	c := &chart.Lines{Title: title, X: x, Y: valueAxis(f), Labels: l.of.Vary[l.x].Values, Numbers: numbers}
	names := []string{""}
	if l.series >= 0 {
		names = nil
		for _, value := range l.of.Vary[l.series].Values[:min(mostLines, len(l.of.Vary[l.series].Values))] {
			names = append(names, lastKey(l.of.Vary[l.series].Path)+" "+value)
		}
	}
	for series, name := range names {
		line := chart.Series{Name: name}
		for i := range l.of.Vary[l.x].Values {
			line.Spread = append(line.Spread, l.at(f.Name, i, series, facet))
		}
		c.Series = append(c.Series, line)
	}
	return c
}

func (l *layout) heat(f report.Figure, title string, facet []string) *chart.Heat {
	x, _ := l.axis(l.x)
	y, _ := l.axis(l.series)
	c := &chart.Heat{Title: title, X: x, Y: y, Value: valueAxis(f), XLabels: l.of.Vary[l.x].Values, YLabels: l.of.Vary[l.series].Values}
	for series := range c.YLabels {
		var row []*report.Spread
		for i := range c.XLabels {
			row = append(row, l.at(f.Name, i, series, facet))
		}
		c.Spread = append(c.Spread, row)
	}
	return c
}

// lastKey returns the last key of a path.
func lastKey(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// fileName returns a text as a part of a file's name: letters, digits, dots and dashes.
func fileName(text string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, text)
	return fmt.Sprintf("%.100s", strings.TrimLeft(safe, ".-"))
}
