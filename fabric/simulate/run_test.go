package simulate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// read is a topology file.
func read(t testing.TB, file string) *topology.Topology {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	topo, err := topology.ParseWith(topology.Options{Read: func(name string) ([]byte, error) { return os.ReadFile(name) }}, file, text)
	if err != nil {
		t.Fatal(err)
	}
	if !topo.HasSeed {
		topo.Seed, topo.HasSeed = 1, true
	}
	return topo
}

// lines are a report as JSON, but for what may differ from run to run.
func lines(t testing.TB, r *report.Run) string {
	t.Helper()
	same := *r
	same.Started, same.Host, same.WallSeconds = "", "", 0
	text, err := json.MarshalIndent(same, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The examples that take no machine pass, each run like the other.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.ndklab.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			topo := read(t, file)
			if err := Refuse(topo); err != nil {
				t.Skip(err)
			}
			run := func() *report.Run {
				r, err := Run(t.Context(), topo, Options{})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := run()
			if !first.Passed {
				t.Errorf("not passed: %s", lines(t, first))
			}
			if diff := cmp.Diff(lines(t, first), lines(t, run())); diff != "" {
				t.Errorf("again (-first +second):\n%s", diff)
			}
		})
	}
}
