package text_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
)

// written returns the report of a run for people.
func written(t *testing.T, r *report.Run, detail text.Detail) string {
	t.Helper()
	var b strings.Builder
	if err := text.WriteRun(&b, r, detail); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A report that has not all rows has the worst queues and pauses, says so, and tells how to have all.
func TestWorstBuffers(t *testing.T) {
	r := sample.Incast()
	brief, full := written(t, r, text.Brief), written(t, r, text.Full)
	for _, want := range []string{"the worst 5", "of 7 queues", "ndklab run -v", "shared 7"} {
		if !strings.Contains(brief, want) {
			t.Errorf("%q is not in\n%s", want, brief)
		}
		if want != "shared 7" && strings.Contains(full, want) {
			t.Errorf("%q is in\n%s", want, full)
		}
	}
	if quiet := "tor2:eth2 "; strings.Contains(brief, quiet) || !strings.Contains(full, quiet) {
		t.Errorf("the shortest queue is in the brief report, or not in the full one:\n%s\n%s", brief, full)
	}
	r.Buffers = nil
	if none := written(t, r, text.Full); strings.Contains(none, "queue") {
		t.Errorf("a run without buffers has queues:\n%s", none)
	}
}

// The section of a large fabric fits a screen.
func TestManyBuffersFitAScreen(t *testing.T) {
	r := &report.Run{Lab: "fabric", Passed: true}
	empty := strings.Count(written(t, r, text.Brief), "\n")
	for i := range 64 {
		b := sample.Incast().Buffers[3]
		b.Node = fmt.Sprintf("tor%d", i)
		r.Buffers = append(r.Buffers, b)
		r.Deadlocks = append(r.Deadlocks, sample.Ring().Deadlocks[0])
		r.Buffers = append(r.Buffers, report.Buffer{Node: fmt.Sprintf("host%d", i), Peak: 1 << 40})
	}
	if b := written(t, r, text.Brief); strings.Contains(b, "host") || !strings.Contains(b, "ndklab run -v") {
		t.Errorf("hosts, which have no bound, come before switches, or the report does not say that rows are left out:\n%s", b)
	}
	if lines := strings.Count(written(t, r, text.Brief), "\n") - empty; lines > 40 {
		t.Errorf("%d buffers take %d lines", len(r.Buffers), lines)
	}
	if lines := strings.Count(written(t, r, text.Full), "\n") - empty; lines < 5*64 {
		t.Errorf("a full report of %d buffers, half as many pauses and deadlocks, and as many queues has %d lines", len(r.Buffers), lines)
	}
}
