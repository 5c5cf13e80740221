package suite

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

func simulated() *report.Run {
	return &report.Run{
		Lab: "pair", Seed: 7, Passed: true, Simulated: true, Seconds: 1.0 / 3,
		Workloads: []report.Workload{
			{Name: "ping", Messages: 10, Bytes: 640, Seconds: 0.1, Gbps: 0.1 / 3, Latency: report.Latency{Min: 1.5, P99: 3010.559}, Connections: 1},
			{Name: "bulk", Messages: 20},
		},
		Nodes: []report.Node{{Transport: map[string]uint64{"timeouts": 2, "cnps_received": 0}}, {Transport: map[string]uint64{"timeouts": 1}}},
		Links: []report.Link{{Directions: [2]report.Direction{{Packets: 100, Dropped: 1}, {Packets: 50, Lost: 2}}}},
	}
}

// baselineOf writes a baseline of runs and returns it as it is read.
func baselineOf(t *testing.T, runs ...*report.Run) *Baseline {
	t.Helper()
	var text strings.Builder
	if err := WriteBaseline(&text, &report.Suite{Labs: runs}); err != nil {
		t.Fatal(err)
	}
	b, err := ReadBaseline("base.json", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A run that has the same figures passes; each that differs is a check that fails, with
// what it was and is.
func TestBaselineHolds(t *testing.T) {
	other := simulated()
	other.Seed, other.Workloads[0].Messages = 8, 11
	b := baselineOf(t, other, simulated())
	for name, tt := range map[string]struct {
		change func(*report.Run)
		want   []string // name, expected, got of the checks that fail
	}{
		"the same":            {func(*report.Run) {}, nil},
		"what is not kept":    {func(r *report.Run) { r.WallSeconds, r.Started = 3, "now" }, nil},
		"in the tenth digit":  {func(r *report.Run) { r.Seconds += 1e-11 }, nil},
		"in the ninth digit":  {func(r *report.Run) { r.Seconds += 1e-9 }, []string{"seconds: 0.333333333, 0.333333334"}},
		"a latency":           {func(r *report.Run) { r.Workloads[0].Latency.P99 = 3010.56 }, []string{"ping latency_us.p99: 3010.559, 3010.56"}},
		"a count and another": {func(r *report.Run) { r.Workloads[1].Messages, r.Links[0].Directions[1].Lost = 21, 1 }, []string{"bulk messages: 20, 21", "packets.lost: 2, 1"}},
		"a counter goes":      {func(r *report.Run) { clear(r.Nodes[0].Transport); clear(r.Nodes[1].Transport) }, []string{"transport.timeouts: 3, none"}},
		"a counter comes":     {func(r *report.Run) { r.Nodes[1].Transport["naks_sent"] = 1 }, []string{"transport.naks_sent: none, 1"}},
		"another seed":        {func(r *report.Run) { r.Seed = 8 }, []string{"ping messages: 11, 10"}},
		"an unknown seed":     {func(r *report.Run) { r.Seed = 9 }, []string{"figures: those of lab pair with seed 9, none there"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := simulated()
			tt.change(r)
			if err := b.Hold(r); err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, c := range r.Checks {
				if c.Passed {
					continue
				}
				failed = append(failed, strings.TrimSuffix(c.Name, " against baseline")+": "+c.Expected+", "+c.Got)
				if first := len(failed) == 1; first != strings.HasPrefix(c.Where, "base.json") || first != strings.Contains(c.Where, "--write-baseline") {
					t.Errorf("%s: where: %s", c.Name, c.Where)
				}
			}
			if diff := cmp.Diff(tt.want, failed); diff != "" || r.Passed != (failed == nil) || len(r.Checks) == 0 {
				t.Errorf("passed %v (-want +got):\n%s", r.Passed, diff)
			}
		})
	}
}

// No baseline is made of a run that failed or was in real time, nor read from other than
// JSON.
func TestNoBaseline(t *testing.T) {
	for want, change := range map[string]func(*report.Run){
		"lab pair was not simulated": func(r *report.Run) { r.Simulated = false },
		"lab pair has failed":        func(r *report.Run) { r.Passed = false },
	} {
		r := simulated()
		change(r)
		var text strings.Builder
		if err := WriteBaseline(&text, &report.Suite{Labs: []*report.Run{r}}); err == nil || !strings.Contains(err.Error(), want) || text.Len() > 0 {
			t.Errorf("%v, wrote %q; want an error with %q", err, text.String(), want)
		}
	}
	for _, text := range []string{"PASS", `{"labs": [1]}`, `{"labs": 1}`} {
		if _, err := ReadBaseline("base.json", []byte(text)); err == nil || !strings.Contains(err.Error(), "base.json is no baseline: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
