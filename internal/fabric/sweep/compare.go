package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

const (
	// Significance is the p-value below which two sets of repeats differ by more than chance.
	Significance = 0.05
	// testable is the least number of repeats on both sides for which a test can find that: of four and four
	// no two orders are rarer than 2 in 70.
	testable = 4
)

// Compare lays two sweeps side by side: the figures of the points that both have, in the order of the
// first. Where both have four repeats or more, a figure differs if the two-sided Mann-Whitney U test
// has a p-value below Significance and the medians differ by threshold, a fraction, or more. With
// fewer repeats the medians decide alone. Any figure differs that one side has alone.
func Compare(a, b *report.Sweep, threshold float64) *report.Comparison {
	c := &report.Comparison{Same: true, Threshold: threshold, Significance: Significance, Rows: []report.ComparedFigure{}}
	left, right := byPoint(a), byPoint(b)
	for _, p := range a.Points {
		key := pointKey(p.Values)
		if _, both := right[key]; both {
			compareValues(c, p.Values, figuresOf(a, b), left[key], right[key])
		}
	}
	return c
}

// CompareRuns lays two runs side by side.
func CompareRuns(a, b *report.Run, threshold float64) *report.Comparison {
	return Compare(asSweep(a), asSweep(b), threshold)
}

// asSweep returns a run as a sweep of it alone.
func asSweep(r *report.Run) *report.Sweep {
	s := &report.Sweep{Repeat: 1, Runs: []report.SweepRun{{Number: 1, Repeat: 1, Seed: r.Seed}}}
	Take(s, 0, r)
	Finish(s)
	return s
}

// Common returns how many points two sweeps have in common.
func Common(a, b *report.Sweep) (n int) {
	right := byPoint(b)
	for _, p := range a.Points {
		if _, both := right[pointKey(p.Values)]; both {
			n++
		}
	}
	return n
}

// figuresOf returns the figures of both, those of the first sweep first.
func figuresOf(a, b *report.Sweep) []report.Figure {
	all := append([]report.Figure{{Name: "passed", Exact: true}}, a.Figures...)
	for _, f := range b.Figures {
		if !slices.ContainsFunc(all, func(other report.Figure) bool { return other.Name == f.Name }) {
			all = append(all, f)
		}
	}
	return all
}

func pointKey(values []string) string { return strings.Join(values, "\x00") }

// byPoint returns what the runs of each point have measured, by figure. Runs that were not made are left out.
func byPoint(s *report.Sweep) map[string]map[string][]float64 {
	all := map[string]map[string][]float64{}
	for i := range s.Runs {
		r := &s.Runs[i]
		if r.Result != report.RunPassed && r.Result != report.RunFailed {
			continue
		}
		of := all[pointKey(r.Values)]
		if of == nil {
			of = map[string][]float64{}
			all[pointKey(r.Values)] = of
		}
		passed := 0.0
		if r.Result == report.RunPassed {
			passed = 1
		}
		of["passed"] = append(of["passed"], passed)
		for name, value := range r.Figures {
			of[name] = append(of[name], value)
		}
	}
	return all
}

// compareValues adds the figures of one point.
func compareValues(c *report.Comparison, values []string, figures []report.Figure, a, b map[string][]float64) {
	for _, f := range figures {
		x, y := a[f.Name], b[f.Name]
		if x == nil && y == nil {
			continue
		}
		row := report.ComparedFigure{Values: values, Name: f.Name, Unit: f.Unit}
		if x == nil || y == nil {
			row.Differ = true
		} else {
			compareSamples(&row, x, y, c.Threshold)
		}
		if x != nil {
			row.A = new(SpreadOf(x))
		}
		if y != nil {
			row.B = new(SpreadOf(y))
		}
		c.Same = c.Same && !row.Differ
		c.Rows = append(c.Rows, row)
	}
}

// compareSamples decides whether a figure differs.
func compareSamples(row *report.ComparedFigure, x, y []float64, threshold float64) {
	was, is := SpreadOf(x).Median, SpreadOf(y).Median
	far := was != is
	if was != 0 {
		row.Change = new((is - was) / math.Abs(was))
		far = far && math.Abs(*row.Change) >= threshold
	}
	row.Differ = far
	if len(x) < testable || len(y) < testable {
		return
	}
	test, err := stats.MannWhitneyUTest(x, y, stats.LocationDiffers)
	if err != nil { // all values are equal
		row.P, row.Differ = new(1.0), false
		return
	}
	row.P = new(test.P)
	row.Differ = far && test.P < Significance
}

// Unlike returns in words in what two sweeps are not of the same thing; "" if they are. Their seeds and
// repeats may differ.
func Unlike(a, b *report.Sweep) string {
	like := *b
	like.File, like.Seed, like.Repeat = a.File, a.Seed, a.Repeat
	return Differs(a, &like)
}

// UnlikeRuns returns in words in what two runs are not of the same topology, as far as their reports show it;
// "" if they are. Their seeds may differ.
func UnlikeRuns(a, b *report.Run) string {
	for _, of := range []struct {
		what string
		list func(*report.Run) []string
	}{{"the lab", labOf}, {"nodes", nodesOf}, {"links", linksOf}, {"workloads", workloadsOf}} {
		x, y := of.list(a), of.list(b)
		for i := range max(len(x), len(y)) {
			was, is := "nothing", "nothing"
			if i < len(x) {
				was = x[i]
			}
			if i < len(y) {
				is = y[i]
			}
			if was != is {
				return fmt.Sprintf("%s: A has %s, B has %s", of.what, was, is)
			}
		}
	}
	return ""
}

func labOf(r *report.Run) []string {
	mode := map[bool]string{true: "simulated", false: "in a lab"}
	return []string{r.Lab, mode[r.Simulated]}
}

func nodesOf(r *report.Run) (all []string) {
	for i := range r.Nodes {
		all = append(all, r.Nodes[i].Name+" ("+r.Nodes[i].Kind+")")
	}
	return all
}

func linksOf(r *report.Run) (all []string) {
	for _, k := range r.Links {
		text := k.Endpoints[0] + " - " + k.Endpoints[1]
		for _, d := range k.Directions {
			text += " [" + strings.Join(d.Settings, " ") + "]"
		}
		all = append(all, text)
	}
	return all
}

func workloadsOf(r *report.Run) (all []string) {
	for i := range r.Workloads {
		w := &r.Workloads[i]
		all = append(all, fmt.Sprintf("%s %s %s%s%s %v %d bytes, depth %d, QPs %d", w.Name, w.Operation, w.From, w.To, w.Pattern, w.Nodes, w.Size, w.Depth, w.QPs))
	}
	return all
}
