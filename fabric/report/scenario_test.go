package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/fabric/report/sample"
)

// A scenario's report has its flows, sweeps, events and evidence, and fits 100 columns.
func TestScenarioText(t *testing.T) {
	for name, r := range map[string]*report.Run{"flap": sample.Flap(), "sweep": sample.Sweep(), "storm": sample.Storm()} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := report.WriteText(&got, r); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden")
			if flag.Lookup("update").Value.String() == "true" {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for line := range strings.Lines(got.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 && !strings.HasPrefix(line, "replay:") { // which is to be copied
					t.Errorf("%d columns, at most 100 wanted:\n%s", n, line)
				}
			}
		})
	}
}

// What a program or a peer said cannot fill a report, nor move the cursor.
func TestBoundedText(t *testing.T) {
	r := sample.Hostile(strings.Repeat("x\x1b[2J\n", 100_000))
	r.Lab, r.Replay, r.Artifacts = "", "", "" // the user's own
	var got bytes.Buffer
	if err := report.WriteText(&got, r); err != nil {
		t.Fatal(err)
	}
	if n := got.Len(); n > 1_000_000 {
		t.Errorf("the report has %d bytes", n)
	}
	if bytes.ContainsRune(got.Bytes(), '\x1b') {
		t.Error("the report has an escape character")
	}
}

// Of many flows those that failed and the slowest are shown.
func TestSlowest(t *testing.T) {
	w := report.Workload{Flows: []report.Flow{{From: "a", Gbps: 3}, {From: "b", Gbps: 1}, {From: "c", Gbps: 9, Errors: 1}, {From: "d", Gbps: 2}, {From: "e", Gbps: 4, Errors: 5}}}
	var got []string
	for _, f := range w.Slowest(3) {
		got = append(got, f.From)
	}
	if diff := cmp.Diff([]string{"e", "c", "b"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(w.Slowest(5)); n != 5 || w.Slowest(5)[0].From != "a" {
		t.Errorf("%d flows, in another order", n)
	}
}

// A mix is not told as if all messages had the largest of its sizes.
func TestWhat(t *testing.T) {
	for want, w := range map[string]report.Workload{
		"write 64 KiB":             {Operation: "write", Size: 64 << 10},
		"send mix up to 8 KiB x16": {Operation: "send", Size: 8 << 10, Mixed: true, QPs: 16},
		"read-lat sweep":           {Operation: "read", Measure: "latency", Size: 8 << 10, Steps: make([]report.Step, 2)},
	} {
		if got := w.What(); got != want {
			t.Errorf("%+v is %q, want %q", w, got, want)
		}
	}
}
