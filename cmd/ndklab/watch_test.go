package main

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A watcher is ndklab counters --watch, running.
type watcher struct {
	*exec.Cmd
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

func startWatch(t *testing.T, args ...string) *watcher {
	t.Helper()
	w := &watcher{Cmd: exec.CommandContext(t.Context(), "ndklab", append([]string{"counters", "--watch"}, args...)...)}
	stdout, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Stderr, w.stdout = &w.stderr, bufio.NewScanner(stdout)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// until reads lines up to one that ok is content with.
func (w *watcher) until(t *testing.T, ok func(line string) bool) {
	t.Helper()
	for w.stdout.Scan() {
		if ok(w.stdout.Text()) {
			return
		}
	}
	t.Fatalf("the watch ended: %v: %s", w.Wait(), &w.stderr)
}

// ended waits for the end and wants an exit code and what is said of it.
func (w *watcher) ended(t *testing.T, code int, text string) {
	t.Helper()
	for w.stdout.Scan() {
		continue // what it still has to say
	}
	err := w.Wait()
	if w.ProcessState.ExitCode() != code || w.stderr.String() != text {
		t.Errorf("ended with %v: %q, want exit code %d and %q", err, &w.stderr, code, text)
	}
}

// Watching counters shows what is counted, and Ctrl-C is how it ends.
func TestWatch(t *testing.T) {
	run := startRun(t, "watch")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		w := startWatch(t, run.lab+"/a", "20ms")
		w.until(t, func(line string) bool { return strings.HasPrefix(line, "RDMAOutOctets ") })
		if err := w.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		w.ended(t, exitOK, "")
	}

	w := startWatch(t, "-o", "json", run.lab, "20ms")
	lines := 0
	w.until(t, func(line string) bool {
		var c report.Changes
		d := stdjson.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if c.Lab != run.lab || c.Seconds <= 0 || c.Time.IsZero() || len(c.Nodes) != 2 || c.Nodes[1].Name != "b" || c.Nodes[0].Counters["ActiveConnection"] != 1 {
			t.Errorf("line %s", line)
		}
		lines++
		return lines > 1 && c.Nodes[0].Counters["RDMAOutFrames"] > 0 && c.Nodes[0].Counters["Connect"] == 0
	})

	// It ends with the lab.
	if out, err := exec.Command("ndklab", "down", run.lab).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.ended(t, exitUsage, fmt.Sprintf("ndklab: lab %s was taken down\n", run.lab))
	run.ended(t)
}
