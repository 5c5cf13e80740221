package text_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/golden"
)

// A scenario's report has its flows, sweeps, events and evidence, and fits 100 columns.
func TestScenarioText(t *testing.T) {
	for name, r := range map[string]*report.Run{"flap": sample.Flap(), "sweep": sample.Sweep(), "storm": sample.Storm(), "incast": sample.Incast(), "ring": sample.Ring()} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := text.WriteRun(&got, r, text.Full); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name+".golden", got.String())
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
