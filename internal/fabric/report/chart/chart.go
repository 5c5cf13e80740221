// Package chart draws what sweeps have measured as pictures (SVG) that need nothing else, for
// browsers and for papers: lines with their spread, and heat maps.
//
// It does no I/O, and the same data always make the same picture. Colours are those that the
// colour-blind tell apart (Okabe and Ito for lines, cividis for heat), and lines also have signs of
// their own. Axes have units, and a logarithmic scale where their values span decades.
//
// The ticks of axes are of go-moremath. A library for whole plots was measured and left out:
// gonum/plot adds 7 MiB to the binary, and 2 ms to the start of every process of a lab.
//
// Start reading at Lines and Heat.
package chart

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/scale"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// An Axis has the name and the unit of one side of a picture.
type Axis struct {
	Name string
	Unit string // "s", "B", "bit/s", or "" of numbers
}

// title returns the name with the unit.
func (a Axis) title() string {
	if a.Unit == "" {
		return a.Name
	}
	return a.Name + " (" + a.Unit + ")"
}

// label returns a value of an axis with the prefix of its unit that suits it.
func (a Axis) label(x float64) string { return words.Quantity(x, a.Unit) }

// decades is the ratio of the largest to the smallest value from which on a scale is logarithmic.
const decades = 20

// spansDecades reports whether values are to be on a logarithmic scale.
func spansDecades(values []float64) bool {
	return len(values) > 0 && slices.Min(values) > 0 && slices.Max(values)/slices.Min(values) >= decades
}

// A side maps values to places between two of a picture.
type side struct {
	to       func(x float64) float64 // 0 to 1
	from, by float64                 // in the picture
	ticks    []float64
}

func (s *side) at(x float64) float64 { return s.from + s.by*s.to(x) }

// sideOf returns the side that has all of some values, from one place of the picture to another.
func sideOf(values []float64, from, to float64) *side {
	s := &side{from: from, by: to - from}
	if len(values) == 0 {
		values = []float64{0, 1}
	}
	low, high := slices.Min(values), slices.Max(values)
	options := scale.TickOptions{Max: 7}
	if spansDecades(values) {
		log, err := scale.NewLog(low, high, 10)
		if err == nil { // it fails of values that are not positive alone
			log.Nice(options)
			major, minor := log.Ticks(options)
			if s.ticks = major; len(major) < 3 {
				s.ticks = every(minor, options.Max)
			}
			s.to = log.Map
			return s
		}
	}
	low = min(low, 0)
	if high == low {
		high = low + 1
	}
	linear := scale.Linear{Min: low, Max: high}
	linear.Nice(options)
	s.ticks, _ = linear.Ticks(options)
	s.to = linear.Map
	return s
}

// every returns so many of some ticks at most, with equal numbers of others between them.
func every(ticks []float64, most int) []float64 {
	step := (len(ticks) + most - 1) / most
	var some []float64
	for i := 0; i < len(ticks); i += max(step, 1) {
		some = append(some, ticks[i])
	}
	return some
}

// A drawing is a picture as it is made.
type drawing struct{ strings.Builder }

const (
	ink   = "#1b1f24"
	dim   = "#57606a"
	faint = "#d8dee4"
)

// begin opens a picture of a size, with what it is called.
func begin(width, height float64, title string) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" role="img" font-family="Helvetica, Arial, sans-serif" font-size="12">`,
		width, height, width, height)
	fmt.Fprintf(d, "\n<title>%s</title>\n"+`<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", words.XML(title), width, height)
	return d
}

func (d *drawing) end() string {
	d.WriteString("</svg>\n")
	return d.String()
}

func (d *drawing) line(x1, y1, x2, y2 float64, colour string, width float64) {
	fmt.Fprintf(d, `<line x1="%.2f" y1="%.2f" x2="%.2f" y2="%.2f" stroke="%s" stroke-width="%g"/>`+"\n", x1, y1, x2, y2, colour, width)
}

// text writes a text whose anchor is start, middle or end.
func (d *drawing) text(x, y float64, anchor, colour, text, more string) {
	fmt.Fprintf(d, `<text x="%.2f" y="%.2f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, colour, more, words.XML(text))
}

// heading writes a title, cut to what fits.
func (d *drawing) heading(x, width float64, title string) {
	d.text(x, 22, "start", ink, fitting(title, width, 7.6), ` font-size="14" font-weight="bold"`)
}

// fitting returns the beginning of a text that fits, at so many units for each character.
func fitting(text string, width, each float64) string {
	most := max(int(width/each), 2)
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
