package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/bench/internal/machine"
	"github.com/ndklab/ndklab/bench/internal/statistics"
)

// A figure is a probe's value, or its ratio to that of another one, held against a goal.
type figure struct {
	Name      string `json:"name"`
	Unit      string `json:"unit"`
	probe     string
	Reference string  `json:"reference,omitempty"` // the other probe
	Lower     bool    `json:"lower_is_better,omitempty"`
	Goal      float64 `json:"goal"` // 0: none
	// busy limits the value on a busy machine, too; 0: nothing does.
	busy float64

	Value float64 `json:"value"` // median of the rounds; 0: there is none
	Ratio float64 `json:"ratio,omitempty"`
	Met   *bool   `json:"met,omitempty"`
}

// figures are all that there are. Goals are for a machine that does nothing else, with two processors for both ends.
var figures = []figure{
	{Name: "write-64KiB/provider", Unit: "Gb/s", probe: "write-64KiB", Reference: "provider write-64KiB", Goal: 0.9, busy: 0.05},
	{Name: "write-64KiB/ucx-tcp", Unit: "Gb/s", probe: "write-64KiB", Reference: "tcp tag-64KiB", Goal: 1, busy: 0.05},
	{Name: "read-64KiB", Unit: "Gb/s", probe: "read-64KiB", busy: 0.5},
	{Name: "send-64KiB", Unit: "Gb/s", probe: "send-64KiB", busy: 0.5},
	{Name: "apart-write-64KiB", Unit: "Gb/s", probe: "apart write-64KiB", Goal: 20, busy: 0.5},
	{Name: "send-64B", Unit: "M/s", probe: "send-64B", Goal: 1, busy: 0.01},
	{Name: "write-64B", Unit: "M/s", probe: "write-64B", Goal: 1, busy: 0.01},
	{Name: "send-lat", Unit: "us", probe: "send-lat", Lower: true, Goal: 5, busy: 2000},
	{Name: "write-lat", Unit: "us", probe: "write-lat", Lower: true, Goal: 30, busy: 5000},
	{Name: "write-lat-p99", Unit: "us", probe: "write-lat p99", Lower: true, Goal: 500},
	{Name: "apart-send-lat", Unit: "us", probe: "apart send-lat", Lower: true, busy: 5000},
	{Name: "ucx-tag-lat/tcp", Unit: "us", probe: "verbs tag-lat", Reference: "tcp tag-lat", Lower: true, Goal: 1},
	{Name: "open", Unit: "ms", probe: openTime, Lower: true, Goal: 10, busy: 500},
	{Name: "open-memory", Unit: "MiB", probe: openMemory, Lower: true, Goal: 8, busy: 8},
}

// results are all that a run found, as the JSON file has it.
type results struct {
	machine.Facts
	User     int                  `json:"uid"`
	Started  string               `json:"started"` // RFC 3339
	Figures  []figure             `json:"figures"`
	Values   map[string][]float64 `json:"values"`             // of each probe, one of each round
	Lacks    map[string]string    `json:"lacks,omitempty"`    // why a probe did not run
	Failures []string             `json:"failures,omitempty"` // in words
}

// choose takes the figures whose names match.
func (r *results) choose(only *regexp.Regexp) error {
	var names []string
	for _, f := range figures {
		names = append(names, f.Name)
		if only.MatchString(f.Name) {
			r.Figures = append(r.Figures, f)
		}
	}
	if len(r.Figures) == 0 {
		return fmt.Errorf("-only %q: there is no such figure; those that there are: %s", only, strings.Join(names, " "))
	}
	return nil
}

// needs reports whether a probe's value is part of a figure that was chosen.
func (r *results) needs(probe string) bool {
	return slices.ContainsFunc(r.Figures, func(f figure) bool { return f.probe == probe || f.Reference == probe })
}

// judge works out the figures.
func (r *results) judge() {
	for i := range r.Figures {
		f := &r.Figures[i]
		f.Value = statistics.Median(r.Values[f.probe])
		held := f.Value
		if f.Reference != "" {
			f.Ratio = 0
			if reference := statistics.Median(r.Values[f.Reference]); reference > 0 {
				f.Ratio = f.Value / reference
			}
			held = f.Ratio
		}
		if held > 0 && f.Goal > 0 {
			met := f.holds(held, f.Goal)
			f.Met = &met
		}
	}
}

// holds reports whether a value is on the right side of a limit.
func (f *figure) holds(v, limit float64) bool {
	if f.Lower {
		return v <= limit
	}
	return v >= limit
}

// table prints the figures.
func (r *results) table(w io.Writer) {
	fmt.Fprintf(w, "%s, %d x %s, uid %d, load %s\n", r.Kernel, r.Cores, r.CPU, r.User, r.Load)
	fmt.Fprintf(w, "%-22s %-5s %9s %9s %7s %8s\n", "FIGURE", "UNIT", "NDKLAB", "REFERENCE", "RATIO", "GOAL")
	for _, f := range r.Figures {
		number := func(v float64) string {
			if v == 0 {
				return "-"
			}
			return fmt.Sprintf("%.3g", v)
		}
		goal, verdict := "", ""
		if f.Goal > 0 {
			goal = map[bool]string{false: ">= ", true: "<= "}[f.Lower] + number(f.Goal)
		}
		switch {
		case r.Lacks[f.probe] != "":
			verdict = r.Lacks[f.probe]
		case f.Met != nil:
			verdict = map[bool]string{true: "met", false: "MISSED"}[*f.Met]
		}
		line := fmt.Sprintf("%-22s %-5s %9s %9s %7s %8s %s", f.Name, f.Unit, number(f.Value), number(statistics.Median(r.Values[f.Reference])), number(f.Ratio), goal, verdict)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// failed returns an error that says what could not be measured, and, with busy, what is beyond what a busy machine excuses.
func (r *results) failed(busy bool) error {
	wrong := slices.Clone(r.Failures)
	for _, f := range r.Figures {
		held := f.Value
		if f.Reference != "" {
			held = f.Ratio
		}
		if busy && f.busy > 0 && held > 0 && !f.holds(held, f.busy) {
			wrong = append(wrong, fmt.Sprintf("%s: %.3g, limit of a busy machine %.3g", f.Name, held, f.busy))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "\n  "))
}
