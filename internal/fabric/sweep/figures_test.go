package sweep

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// made is the report of a run with one workload of a name, with that throughput.
func made(workload string, gbps float64, passed bool) *report.Run {
	return &report.Run{Lab: "f", Passed: passed, Seconds: 1, Workloads: []report.Workload{{
		Name: workload, Operation: "write", Messages: 10, Bytes: 1000, Seconds: .5, Gbps: gbps, Latency: report.Latency{Min: 1, P50: 315.135, P99: 400, P9999: 500, Max: 600},
	}}}
}

// A CSV is the same however the runs came about: in whichever order they were made.
func TestSameInAnyOrder(t *testing.T) {
	write := func(order []int) string {
		s := planned(t, 2, "link.delay=1ms,10ms")
		for _, i := range order {
			name := "bulk"
			if i == 3 {
				name = "another" // which only one run has
			}
			Take(s, i, made(name, float64(i+1), i != 2))
		}
		Finish(s)
		var b bytes.Buffer
		if err := WriteCSV(&b, s); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := write([]int{0, 1, 2, 3})
	if diff := cmp.Diff(first, write([]int{3, 1, 0, 2})); diff != "" {
		t.Error(diff)
	}
	rows, err := csv.NewReader(strings.NewReader(first)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"run", "link.delay_s", "repeat", "seed", "result", "error", "bulk.throughput_bit_per_s"},
		{"1", "0.001", "1", "7", "pass", "", "1e+09"}, {"2", "0.001", "2", "8", "pass", "", "2e+09"},
		{"3", "0.01", "1", "7", "fail", "", "3e+09"}, {"4", "0.01", "2", "8", "pass", "", ""},
	}
	for i := range rows {
		if diff := cmp.Diff(want[i], rows[i][:7]); diff != "" {
			t.Error(diff)
		}
	}
	if !strings.Contains(first, ",0.000315135,") {
		t.Errorf("a time has digits that nobody has measured:\n%s", first)
	}
	if strings.Count(first, "\r\n") != 5 {
		t.Errorf("lines do not end as RFC 4180 has them:\n%q", first)
	}
}

// No spreadsheet takes a name or a value for a formula, and no picture takes it for markup.
func TestHostile(t *testing.T) {
	const bad = `=HYPERLINK("x")</title><script>alert(1)</script>` + "\x01"
	s := planned(t, 1, `workload["<a>"].x==SUM(1),-1+1`, "b=-5,5")
	for i := range s.Runs {
		Take(s, i, made(bad, float64(i+1), true))
	}
	s.Runs[1].Error = "+1: " + bad
	Finish(s)
	var b bytes.Buffer
	if err := WriteCSV(&b, s); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsRune("=+@", rune(cell[0])) || strings.HasPrefix(cell, "-1+") {
				t.Errorf("a cell is %q", cell)
			}
		}
	}
	if rows[1][2] != "-5" {
		t.Errorf("a number has become %q", rows[1][2])
	}
	plots := Plots(s)
	if len(plots) == 0 {
		t.Fatal("there are no plots")
	}
	for _, p := range plots {
		wellFormed(t, p)
		if strings.ContainsAny(p.File, "</\"= ") || strings.HasPrefix(p.File, ".") {
			t.Errorf("a file is called %q", p.File)
		}
	}
}

// wellFormed reads a plot as XML, in which nothing runs.
func wellFormed(t *testing.T, p Plot) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(p.SVG)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", p.File, err, p.SVG)
		}
		if e, ok := token.(xml.StartElement); ok {
			if e.Name.Local == "script" || e.Name.Local == "foreignObject" {
				t.Errorf("%s has an element %s", p.File, e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || a.Name.Local == "href" {
					t.Errorf("%s has an attribute %s", p.File, a.Name.Local)
				}
			}
		}
	}
}

// A figure has lines over the first axis of numbers, a line for each value of the next axis, and a heat map;
// each value of a third axis has plots of its own. Counts that are always 0 have none.
func TestPlots(t *testing.T) {
	s := planned(t, 2, "mode=a,b", "link.delay=1ms,10ms,100ms", "third=x,y")
	for i := range s.Runs {
		Take(s, i, made("bulk", float64(i+1), true))
	}
	Finish(s)
	var files []string
	for _, p := range Plots(s) {
		if p.Figure.What == "throughput" {
			files = append(files, p.File+" "+p.Title)
		}
		if p.Figure.What == "errors" {
			t.Error("errors have a plot, and there are none")
		}
		wellFormed(t, p)
	}
	want := []string{
		"bulk.throughput_bit_per_s-lines.svg bulk: throughput third=x", "bulk.throughput_bit_per_s-heat.svg bulk: throughput third=x",
		"bulk.throughput_bit_per_s-lines-2.svg bulk: throughput third=y", "bulk.throughput_bit_per_s-heat-2.svg bulk: throughput third=y",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	l := layoutOf(s)
	// The point mode=b, delay=10ms, third=y is that of runs 19 and 20.
	if spread := l.at("bulk.throughput_bit_per_s", 1, 1, []string{"y"}); spread == nil || spread.Min != 19e9 || spread.Max != 20e9 || spread.Runs != 2 {
		t.Errorf("%+v", spread)
	}
}

// Quartiles are those of R's default and of NumPy.
func TestSpread(t *testing.T) {
	want := report.Spread{Runs: 5, Min: 1, P25: 2, Median: 4, P75: 8, Max: 16}
	if diff := cmp.Diff(want, SpreadOf([]float64{16, 1, 8, 2, 4})); diff != "" {
		t.Error(diff)
	}
	if s := SpreadOf([]float64{1, 2, 3, 10}); s.P25 != 1.75 || s.Median != 2.5 || s.P75 != 4.75 {
		t.Errorf("%+v", s)
	}
	if s := SpreadOf([]float64{3}); s.Min != 3 || s.P25 != 3 || s.Max != 3 {
		t.Errorf("%+v", s)
	}
}
