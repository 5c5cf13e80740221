package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/live"
)

// A message is one of a stream.
type message struct{ kind, data string }

// stream returns what the page is sent of the lab, or of a run, until it is nil.
func (p page) stream(t testing.TB, run int) func() *message {
	t.Helper()
	resp, err := http.Get(string(p) + "api/stream?run=" + strconv.Itoa(run))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return func() *message {
		var m message
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				m.kind = kind
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				m.data = data
			}
			if lines.Text() == "" && m.kind != "" {
				return &m
			}
		}
		return nil
	}
}

// await reads a stream to a message that is wanted.
func await(t testing.TB, next func() *message, wanted func(m *message) bool) {
	t.Helper()
	for m := next(); m != nil; m = next() {
		if wanted(m) {
			return
		}
	}
	t.Fatal("the stream has ended")
}

// The page sees what happens: a change by the command line, a workload, another topology, and the end.
func TestStream(t *testing.T) {
	lab := up(t, 2)
	c, p := openPage(t, lab)
	next := p.stream(t, 0)
	var m live.Map
	await(t, next, func(got *message) bool { return got.kind == "map" && json.Unmarshal([]byte(got.data), &m) == nil })
	if len(m.Nodes) != 3 || len(m.Links) != 2 || m.Lab != lab {
		t.Errorf("%+v", m)
	}
	sample := func(got *message) *live.Sample {
		var s live.Sample
		if got.kind != "sample" {
			return &s
		}
		if err := json.Unmarshal([]byte(got.data), &s); err != nil || len(s.Nodes) != len(m.Nodes) || len(s.Links) != len(m.Links) {
			t.Fatalf("%v: %s", err, got.data)
		}
		return &s
	}
	ndklab(t, "link", "set", lab+"/h0:eth0", "loss=3%")
	await(t, next, func(got *message) bool { return strings.Contains(fmt.Sprintf("%+v", sample(got).Links), "loss=3%") })
	d := p.change(t, &live.Change{Act: "perf", Node: "h0", To: "h1", Settings: []string{"test=write-bw", "duration=3s"}})
	if want := "ndklab perf " + lab + " write-bw --from h0 --to h1 --duration=3s"; d.Command != want {
		t.Errorf("%s, want %s", d.Command, want)
	}
	seen, over := false, false
	await(t, next, func(got *message) bool {
		if s := sample(got); len(s.Workloads) > 0 && s.Nodes[1].Out > 0 && s.Links[0].Ends[0].Rate > 0 {
			seen = true
		}
		over = over || got.kind == "event" && strings.Contains(got.data, `"kind":"workload-done"`)
		return seen && over
	})
	var ended struct{ Reason string }
	down := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), "down", lab)
	if err := down.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, next, func(got *message) bool {
		if strings.Contains(got.data, "cannot be seen") {
			t.Errorf("beside the end: %s", got.data)
		}
		return got.kind == "ended" && json.Unmarshal([]byte(got.data), &ended) == nil
	})
	if want := "lab " + lab + " was taken down"; ended.Reason != want {
		t.Errorf("%q, want %q", ended.Reason, want)
	}
	c.ends(t, 2, "ndklab: "+ended.Reason)
	if err := down.Wait(); err != nil {
		t.Error(err)
	}
	ndklab(t, "up", fileOf(t, lab, 2)) // which the test's end takes down
}

// Reports of runs are played back, two of them beside each other. There is no lab, and nothing to be changed.
func TestReports(t *testing.T) {
	folder := t.TempDir()
	text := "seed: 1\ntopology:\n  nodes: {a: {}, b: {}}\n  links: [{endpoints: [\"a:eth0\", \"b:eth0\"], delay: 1ms, rate: 1gbit}]\nworkloads: [{name: w, operation: write, from: a, to: b, size: 64KiB, duration: 300ms}]\n"
	var reports []string
	for _, name := range []string{"before", "after"} {
		file, report := filepath.Join(folder, name+".ndklab.yaml"), filepath.Join(folder, name+".json")
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.WriteFile(report, []byte(ndklab(t, "run", file, "--name", name, "--simulate", "-o", "json")), 0o644)); err != nil {
			t.Fatal(err)
		}
		reports = append(reports, report)
	}
	c, p := openPage(t, reports...)
	for run, name := range []string{"before", "after"} {
		next := p.stream(t, run)
		var m live.Map
		if first := next(); first == nil || first.kind != "map" || json.Unmarshal([]byte(first.data), &m) != nil || m.Lab != name || !m.Replay || m.Runs != 2 || len(m.Nodes) != 2 {
			t.Errorf("%d: %+v, %+v", run, first, m)
		}
		await(t, next, func(got *message) bool { return got.kind == "sample" && strings.Contains(got.data, `"workloads":[{`) })
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", string(p)+"api/change", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", p.origin())
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %+v", err, resp)
	} else {
		resp.Body.Close()
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 0, "")

	nonsense := filepath.Join(folder, "nonsense.json")
	if err := os.WriteFile(nonsense, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "ui", reports[0], nonsense).ends(t, 2, "ndklab: "+nonsense+": no report: it has neither workloads nor labs; expected what `ndklab run -o json` prints")
	for _, missing := range []string{filepath.Join(folder, "missing.json"), "missing.json"} {
		start(t, "ui", missing).ends(t, 2, "ndklab: there is no file "+missing)
	}
}
