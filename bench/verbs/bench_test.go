package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/bench/internal/statistics"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// TestProbes: the file that they are run by is right, and every figure is made of probes that there are.
func TestProbes(t *testing.T) {
	topo, err := topology.Parse("bench.yaml", []byte(file(1)))
	if err != nil {
		t.Fatal(err)
	}
	if len(topo.Workloads) != len(probes) {
		t.Fatalf("%d workloads, want %d", len(topo.Workloads), len(probes))
	}
	known := []string{openTime, openMemory, ""}
	for _, p := range probes {
		if slices.Contains(known, p.name) {
			t.Errorf("two probes %q", p.name)
		}
		known = append(known, p.name)
	}
	for _, f := range figures {
		if !slices.Contains(known, f.probe) || !slices.Contains(known, f.Reference) {
			t.Errorf("%s: no probe %q or %q", f.Name, f.probe, f.Reference)
		}
	}
}

// TestChoose takes the figures that are asked for, and what they are made of.
func TestChoose(t *testing.T) {
	r := &results{}
	if err := r.choose(regexp.MustCompile("nonsense")); err == nil || !strings.Contains(err.Error(), "write-64KiB/provider") {
		t.Errorf("nonsense: %v", err)
	}
	if err := r.choose(regexp.MustCompile("^write-64KiB/prov")); err != nil || len(r.Figures) != 1 {
		t.Fatalf("%d figures, %v", len(r.Figures), err)
	}
	if !r.needs("write-64KiB") || !r.needs("provider write-64KiB") || r.needs("send-lat") {
		t.Error("other probes than those of the figure are needed")
	}
}

// TestJudge: a figure is the median of the rounds, held as a ratio where it has a reference.
func TestJudge(t *testing.T) {
	r := &results{
		Figures: []figure{
			{Name: "ratio", probe: "a", Reference: "b", Goal: 0.5, busy: 0.8},
			{Name: "value", probe: "a", Lower: true, Goal: 2},
			{Name: "absent", probe: "c", Goal: 1, busy: 1},
		},
		Values: map[string][]float64{"a": {9, 1, 3}, "b": {6, 4}},
	}
	r.judge()
	if f := r.Figures[0]; f.Value != 3 || f.Ratio != 0.6 || f.Met == nil || !*f.Met {
		t.Errorf("ratio: %+v", f)
	}
	if f := r.Figures[1]; f.Met == nil || *f.Met {
		t.Errorf("value: %+v", f)
	}
	if f := r.Figures[2]; f.Met != nil {
		t.Errorf("absent: %+v", f)
	}
	if err := r.failed(false); err != nil {
		t.Error(err)
	}
	if err := r.failed(true); err == nil || err.Error() != "ratio: 0.6, limit of a busy machine 0.8" {
		t.Errorf("on a busy machine: %v", err)
	}
}

// TestTake refuses a workload that has failed or printed no figure.
func TestTake(t *testing.T) {
	r := &results{Values: map[string][]float64{}}
	p := probe{name: "p", value: gbps}
	for _, w := range []report.Workload{{}, {Gbps: 1, Errors: 1, Error: "exit status 1", Output: "a\nb\n"}} {
		if err := r.take(p, w); err == nil {
			t.Errorf("%+v is taken", w)
		}
	}
	if err := r.take(p, report.Workload{Gbps: 2}); err != nil || statistics.Median(r.Values["p"]) != 2 {
		t.Errorf("%v, %v", r.Values, err)
	}
}
