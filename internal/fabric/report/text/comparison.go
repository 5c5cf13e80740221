package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteComparison writes a comparison as a table for people: what differs or, in full, all figures; and
// by what it was decided. The last line begins with SAME or DIFFERENT.
func WriteComparison(w io.Writer, c *report.Comparison, detail Detail) error {
	p := newPageOf(w, runWidth)
	if c.Unlike != "" {
		p.section()
		p.hanging(p.paint, "not of the same thing: ", c.Unlike)
	}
	t := table{columns: []column{{title: "figure"}, {title: "A", right: true}, {title: "B", right: true}, {title: "change", right: true}, {title: "p", right: true}, {title: "", right: false}}}
	point, differ := "", 0
	for i := range c.Rows {
		f := &c.Rows[i]
		if f.Differ {
			differ++
		} else if detail != Full {
			continue
		}
		name := f.Name
		if at := strings.Join(f.Values, ", "); at != "" {
			if at != point {
				t.add(at)
				point = at
			}
			name = "  " + name
		}
		t.add(name, spreadText(f.A, f.Unit), spreadText(f.B, f.Unit), changeText(f), pText(f), map[bool]string{true: "differs"}[f.Differ])
	}
	if len(t.rows) > 0 {
		p.table(&t)
	}
	p.section()
	p.paragraph("", basis(c))
	verdict := fmt.Sprintf("SAME: none of %s differs", words.Plural(len(c.Rows), "figure"))
	if !c.Same {
		verdict = fmt.Sprintf("DIFFERENT: %d of %s", differ, words.Plural(len(c.Rows), "figure"))
	}
	p.line(verdict)
	return p.flush()
}

// basis says by what figures were taken to differ.
func basis(c *report.Comparison) string {
	text := fmt.Sprintf("A figure differs if its medians do by %s or more", words.Percent(c.Threshold))
	for i := range c.Rows {
		if c.Rows[i].P != nil {
			return text + fmt.Sprintf(" and, of four repeats or more on both sides, the two-sided Mann-Whitney U test has p < %g.", c.Significance)
		}
	}
	return text + ". There are too few repeats to tell that from noise: four on both sides are needed."
}

// spreadText returns a figure's median and, of several values, how far from it the farthest is.
func spreadText(s *report.Spread, unit string) string {
	if s == nil {
		return "-"
	}
	text := words.Quantity(s.Median, unit)
	if far := max(s.Max-s.Median, s.Median-s.Min); far > 0 && s.Median > 0 {
		text += fmt.Sprintf(" ± %.0f %%", 100*far/s.Median)
	}
	return text
}

func changeText(f *report.ComparedFigure) string {
	switch {
	case f.A == nil || f.B == nil:
		return "-"
	case f.Change == nil && f.B.Median == 0, f.Change != nil && *f.Change == 0:
		return "0 %"
	case f.Change == nil:
		return "from 0"
	}
	return fmt.Sprintf("%+.3g %%", *f.Change*100)
}

func pText(f *report.ComparedFigure) string {
	if f.P == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *f.P)
}
