package text_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
)

// A scenario's report has its flows, sweeps, events and evidence, and fits 100 columns.
func TestScenarioText(t *testing.T) {
	for name, r := range map[string]*report.Run{"flap": sample.Flap(), "sweep": sample.Sweep(), "storm": sample.Storm(), "incast": sample.Incast(), "ring": sample.Ring()} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := text.WriteRun(&got, r, text.Full); err != nil {
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

// The text of a program or a peer cannot fill a report, nor move the cursor.
func TestBoundedText(t *testing.T) {
	r := sample.Hostile(strings.Repeat("x\x1b[2J\n", 100_000))
	r.Lab, r.Replay, r.Artifacts = "", "", "" // the user's own
	var got bytes.Buffer
	if err := text.WriteRun(&got, r, text.Full); err != nil {
		t.Fatal(err)
	}
	if n := got.Len(); n > 1_000_000 {
		t.Errorf("the report has %d bytes", n)
	}
	if bytes.ContainsRune(got.Bytes(), '\x1b') {
		t.Error("the report has an escape character")
	}
}
