package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/machine"
)

// Results are all that a run found, as the JSON file has it.
type Results struct {
	machine.Facts
	machine.Pace
	MTU     int               `json:"veth_mtu"`
	Commit  string            `json:"commit"`
	Tools   map[string]string `json:"tools"`   // version of each, or why it is absent
	Started string            `json:"started"` // RFC 3339
	Seconds float64           `json:"seconds"`
	Rounds  int               `json:"rounds"`
	Figures []Figure          `json:"figures"`
	// Values are all that was measured, by name, also what no figure is made of.
	Values map[string]*Spread `json:"values"`
	// Failures lists what went wrong, in words, each with its probe and round.
	Failures []string `json:"failures,omitempty"`

	began time.Time
}

// head prints what the machine is.
func (r *Results) head(w io.Writer) {
	fmt.Fprintf(w, "%s, %d x %s, %s, load %s, commit %s\n", r.Kernel, r.Cores, r.CPU, r.Go, r.Load, r.Commit)
	fmt.Fprintln(w, r.Pace)
	for _, t := range tools {
		if says, ok := r.Tools[t.name]; ok {
			fmt.Fprintf(w, "%s: %s\n", t.name, says)
		}
	}
}

// table prints the figures.
func (r *Results) table(w io.Writer) {
	row := func(cells ...string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-26s %-10s %10s %-19s %10s %-19s %7s %-8s %-7s %s", anys(cells)...), " "))
	}
	row("FIGURE", "UNIT", "NDKLAB", "SPREAD", "REFERENCE", "SPREAD", "RATIO", "GOAL", "", "")
	for i := range r.Figures {
		f := &r.Figures[i]
		row(f.Name, f.Unit, number(f.Ndklab), spread(f.NdklabSpread), number(f.Reference), spread(f.ReferenceSpread), number(f.Ratio), f.asked(), f.verdict(), f.remark())
	}
}

func anys(cells []string) []any {
	all := make([]any, len(cells))
	for i, c := range cells {
		all[i] = c
	}
	return all
}

// number has four digits, or is "-" if there is none.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 1000 || *v == 0:
		return fmt.Sprintf("%.0f", *v)
	case *v < 0.001:
		return fmt.Sprintf("%.2g", *v)
	}
	return fmt.Sprintf("%.4g", *v)
}

func spread(s *Spread) string {
	if s == nil || len(s.Rounds) < 2 {
		return ""
	}
	return number(&s.Min) + ".." + number(&s.Max)
}

// asked returns the goal as the table has it.
func (f *Figure) asked() string {
	if f.Goal == nil {
		return ""
	}
	return map[string]string{higher: ">= ", lower: "<= "}[f.Better] + number(f.Goal)
}

func (f *Figure) verdict() string {
	switch {
	case f.Lacks != "":
		return "absent"
	case f.Met == nil:
		return ""
	case *f.Met:
		return "met"
	}
	return "MISSED"
}

func (f *Figure) remark() string {
	if f.Lacks != "" {
		return f.Lacks
	}
	return f.ReferenceName
}

// sum prints the last line: how many of the goals were met.
func (r *Results) sum(w io.Writer) {
	met, missed, absent := 0, 0, 0
	for i := range r.Figures {
		switch r.Figures[i].verdict() {
		case "met":
			met++
		case "MISSED":
			missed++
		case "absent":
			absent++
		}
	}
	fmt.Fprintf(w, "%d rounds in %.0f s: %d goals met, %d missed, %d figures absent\n", r.Rounds, r.Seconds, met, missed, absent)
}
