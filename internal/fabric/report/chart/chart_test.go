package chart

import (
	"encoding/xml"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

func spread(min, median, max float64) *report.Spread {
	return &report.Spread{Runs: 3, Min: min, P25: min, Median: median, P75: max, Max: max}
}

// texts returns what a picture says, which must be well-formed.
func texts(t *testing.T, svg string) []string {
	t.Helper()
	var all []string
	d := xml.NewDecoder(strings.NewReader(svg))
	in := ""
	for {
		token, err := d.Token()
		if token == nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			in = x.Name.Local
		case xml.CharData:
			if in == "text" && strings.TrimSpace(string(x)) != "" {
				all = append(all, string(x))
			}
		case xml.EndElement:
			in = ""
		}
	}
	return all
}

// attribute returns the numbers that elements matched by a pattern have.
func attribute(t *testing.T, svg, pattern string) []float64 {
	t.Helper()
	var all []float64
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(svg, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// Values that span decades have a logarithmic scale, along x, too: equal ratios are equal distances.
func TestLogarithmic(t *testing.T) {
	l := &Lines{Title: "t", X: Axis{Name: "delay"}, Y: Axis{Name: "throughput", Unit: "bit/s"}, Labels: []string{"1ms", "10ms", "100ms"}, Numbers: []float64{.001, .01, .1},
		Series: []Series{{Spread: []*report.Spread{spread(1e9, 1e9, 1e9), spread(1e8, 1e8, 1e8), spread(1e7, 1e7, 1e7)}}}}
	svg := l.SVG()
	x, y := attribute(t, svg, `<circle cx="([0-9.]+)"`), attribute(t, svg, `<circle cx="[0-9.]+" cy="([0-9.]+)"`)
	for name, at := range map[string][]float64{"x": x, "y": y} {
		if len(at) != 3 || at[1]-at[0] <= 0 || at[2]-at[1]-(at[1]-at[0]) > .02 || at[1]-at[0]-(at[2]-at[1]) > .02 {
			t.Errorf("along %s points are at %v", name, at)
		}
	}
	want := []string{"t", "10 Mb/s", "100 Mb/s", "1 Gb/s", "1ms", "10ms", "100ms", "delay", "throughput (bit/s)", "lines: medians; bars: least to largest"}
	if diff := cmp.Diff(want, texts(t, svg)); diff != "" {
		t.Error(diff)
	}
}

// Values that do not have a linear one that begins at 0, and words stand at equal distances.
func TestLinear(t *testing.T) {
	l := &Lines{Title: "t", X: Axis{Name: "mode"}, Y: Axis{Name: "latency", Unit: "s"}, Labels: []string{"none", "dcqcn", "dctcp"},
		Series: []Series{{Spread: []*report.Spread{spread(.001, .002, .003), nil, spread(.004, .004, .004)}}}}
	svg := l.SVG()
	said := texts(t, svg)
	if said[1] != "0" || !strings.HasSuffix(said[2], " us") && !strings.HasSuffix(said[2], " ms") {
		t.Errorf("ticks are %q", said)
	}
	if x := attribute(t, svg, `<circle cx="([0-9.]+)"`); len(x) != 2 || x[1] <= x[0] {
		t.Errorf("points are at %v, and the second value is not known", x)
	}
	if n := strings.Count(svg, "L"); n != 0 {
		t.Errorf("a line goes over what is not known:\n%s", svg)
	}
}

// Each of several lines has a colour, a dash and a sign that its neighbours have not, and is named.
func TestApart(t *testing.T) {
	l := &Lines{Title: "t", Labels: []string{"1", "2"}}
	for i := range 4 {
		at := spread(float64(i+1), float64(i+1), float64(i+1))
		l.Series = append(l.Series, Series{Name: "line " + strconv.Itoa(i), Spread: []*report.Spread{at, at}})
	}
	svg := l.SVG()
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`<path d="M[0-9. L]+" fill="none" stroke="([^"]+)" stroke-width="2" stroke-dasharray="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		seen[m[1]] = true
		seen["dash "+m[2]] = true
	}
	if len(seen) != 8 {
		t.Errorf("lines have %v", seen)
	}
	for i := range 4 {
		if !strings.Contains(svg, ">line "+strconv.Itoa(i)+"</text>") {
			t.Errorf("line %d has no name", i)
		}
	}
}

// A heat map has a square for each point, brighter for more, and says the median.
func TestHeat(t *testing.T) {
	h := &Heat{Title: "t", X: Axis{Name: "x"}, Y: Axis{Name: "y"}, Value: Axis{Name: "v", Unit: "s"}, XLabels: []string{"a", "b"}, YLabels: []string{"c", "d"},
		Spread: [][]*report.Spread{{spread(1, 1, 1), spread(2, 2, 2)}, {spread(3, 3, 3), nil}}}
	said := strings.Join(texts(t, h.SVG()), "|")
	for _, want := range []string{"1 s", "2 s", "3 s", "–", "a|b", "medians of v (s)"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
	bright := func(at float64) int64 {
		colour, _ := heatColour(at)
		n, err := strconv.ParseInt(colour[1:], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n>>16 + n>>8&255 + n&255
	}
	for at := 0.0; at < 1; at += .05 {
		if bright(at) > bright(at+.05) {
			t.Errorf("%g is brighter than %g", at, at+.05)
		}
	}
}

// No name breaks a picture, whatever it has, or however long it is.
func TestHostileNames(t *testing.T) {
	bad := `</text><script>&"'` + "\x00\x1b\xff" + strings.Repeat("x", 1000)
	l := &Lines{Title: bad, X: Axis{Name: bad}, Y: Axis{Name: bad, Unit: bad}, Labels: []string{bad}, Series: []Series{{Name: bad, Spread: []*report.Spread{spread(0, 0, 0)}}}}
	h := &Heat{Title: bad, X: Axis{Name: bad}, Y: Axis{Name: bad}, Value: Axis{Name: bad}, XLabels: []string{bad}, YLabels: []string{bad}, Spread: [][]*report.Spread{{spread(0, 0, 0)}}}
	for _, svg := range []string{l.SVG(), h.SVG()} {
		if strings.Contains(svg, "<script") || strings.Contains(svg, "\x00") {
			t.Errorf("%s", svg)
		}
		for _, text := range texts(t, svg) {
			if n := utf8.RuneCountInString(text); n > 120 {
				t.Errorf("a text has %d characters", n)
			}
		}
	}
}
