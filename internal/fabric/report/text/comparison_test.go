package text

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A comparison shows what differs, in full all figures, and by what that was decided.
func TestComparison(t *testing.T) {
	of := func(min, median, max float64) *report.Spread {
		return &report.Spread{Runs: 4, Min: min, Median: median, Max: max}
	}
	c := &report.Comparison{Threshold: .05, Significance: .05, Rows: []report.ComparedFigure{
		{Values: []string{"1ms", "4KiB"}, Name: "w.latency_p50_s", Unit: "s", A: of(.001, .002, .003), B: of(.004, .004, .004), Change: new(1.0), P: new(.029), Differ: true},
		{Values: []string{"1ms", "4KiB"}, Name: "w.errors", A: of(0, 0, 0), B: of(2, 2, 2), P: new(.01), Differ: true},
		{Values: []string{"1ms", "4KiB"}, Name: "w.messages", A: of(5, 5, 5), B: of(5, 5, 5), Change: new(0.0), P: new(1.0)},
		{Values: []string{"9ms", "4KiB"}, Name: "v.messages", B: of(5, 5, 5), Differ: true},
	}}
	show := func(detail Detail) string {
		var b strings.Builder
		if err := WriteComparison(&b, c, detail); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	want := `figure                       A     B  change      p
1ms, 4KiB
  w.latency_p50_s  2 ms ± 50 %  4 ms  +100 %  0.029  differs
  w.errors                   0     2  from 0  0.010  differs
9ms, 4KiB
  v.messages                 -     5       -      -  differs

  A figure differs if its medians do by 5.00 % or more and, of four repeats or more on both sides,
    the two-sided Mann-Whitney U test has p < 0.05.
DIFFERENT: 3 of 4 figures
`
	if diff := cmp.Diff(want, show(Brief)); diff != "" {
		t.Error(diff)
	}
	if full := show(Full); !strings.Contains(full, "  w.messages                 5     5     0 %  1.000\n") {
		t.Error(full)
	}
	for i := range c.Rows {
		c.Rows[i].P, c.Rows[i].Differ = nil, false
	}
	c.Same, c.Unlike = true, "the lab"
	text := show(Brief)
	for _, want := range []string{"not of the same thing: the lab\n", "too few repeats", "SAME: none of 4 figures differs\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
