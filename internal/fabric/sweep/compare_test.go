package sweep

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// swept is a sweep of one point whose runs had those throughputs.
func swept(t *testing.T, gbps ...float64) *report.Sweep {
	t.Helper()
	s := planned(t, len(gbps), "link.delay=1ms")
	for i, g := range gbps {
		Take(s, i, made("bulk", g, true))
	}
	Finish(s)
	return s
}

// throughput returns the row of that figure.
func throughput(t *testing.T, c *report.Comparison) report.ComparedFigure {
	t.Helper()
	for _, row := range c.Rows {
		if row.Name == "bulk.throughput_bit_per_s" {
			return row
		}
	}
	t.Fatal("no throughput is compared")
	return report.ComparedFigure{}
}

// With repeats, a change beyond the threshold is one if the test says so: neither a large change in noise,
// nor a small one without any.
func TestBeyondNoise(t *testing.T) {
	for name, test := range map[string]struct {
		a, b   []float64
		differ bool
		tested bool
	}{
		"the same":           {[]float64{10, 10, 10, 10}, []float64{10, 10, 10, 10}, false, true},
		"noise":              {[]float64{5, 9, 11, 20}, []float64{6, 12, 13, 19}, false, true},
		"small":              {[]float64{10, 10.01, 10.02, 10.03}, []float64{10.1, 10.11, 10.12, 10.13}, false, true},
		"a change":           {[]float64{10, 10.1, 10.2, 10.3}, []float64{12, 12.1, 12.2, 12.3}, true, true},
		"too few":            {[]float64{10, 10, 10}, []float64{12, 12, 12}, true, false},
		"too few, and small": {[]float64{10, 10, 10}, []float64{10.1, 10.2, 10.3}, false, false},
	} {
		c := Compare(swept(t, test.a...), swept(t, test.b...), .05)
		row := throughput(t, c)
		if row.Differ != test.differ || c.Same == test.differ || (row.P != nil) != test.tested {
			t.Errorf("%s: %+v, same %v, p %v", name, row, c.Same, row.P)
		}
	}
	row := throughput(t, Compare(swept(t, 10, 10.1, 10.2, 10.3), swept(t, 12, 12.1, 12.2, 12.3), .05))
	if p := *row.P; p < 2.0/70-1e-9 || p > 2.0/70+1e-9 { // both orders of 8 values that have four first
		t.Errorf("p is %v, want 2/70", p)
	}
}

// Of single runs the threshold decides; what one has alone differs; and a figure that was 0 has no change in percent.
func TestCompareRuns(t *testing.T) {
	a, b := made("bulk", 10, true), made("bulk", 10.4, true)
	if c := CompareRuns(a, b, .05); !c.Same {
		t.Errorf("4 %% differ with a threshold of 5 %%: %+v", c)
	}
	if c := CompareRuns(a, b, .03); c.Same || !throughput(t, c).Differ {
		t.Error("4 % do not differ with a threshold of 3 %")
	}
	b = made("bulk", 10, false)
	b.Workloads[0].Errors = 1
	b.Workloads = append(b.Workloads, made("more", 1, true).Workloads...)
	found := map[string]report.ComparedFigure{}
	for _, row := range CompareRuns(a, b, .05).Rows {
		found[row.Name] = row
	}
	if row := found["bulk.errors"]; !row.Differ || row.Change != nil {
		t.Errorf("errors: %+v", row)
	}
	if row := found["more.messages"]; !row.Differ || row.A != nil || row.B == nil {
		t.Errorf("a workload of B alone: %+v", row)
	}
	if row := found["passed"]; !row.Differ || *row.Change != -1 {
		t.Errorf("the verdict: %+v", row)
	}
}

// A comparison says in what two things are not the same.
func TestUnlike(t *testing.T) {
	if text := Unlike(swept(t, 1, 2), swept(t, 3)); text != "" {
		t.Errorf("repeats: %s", text)
	}
	other := swept(t, 1)
	other.Digest = "x"
	if text := Unlike(swept(t, 1), other); !strings.Contains(text, "has changed") {
		t.Error(text)
	}
	if n := Common(swept(t, 1), planned(t, 1, "link.delay=9ms")); n != 0 {
		t.Errorf("%d points in common", n)
	}
	a, b := made("bulk", 1, true), made("bulk", 2, false)
	if text := UnlikeRuns(a, b); text != "" {
		t.Error(text)
	}
	b.Workloads[0].Size = 5
	if text := UnlikeRuns(a, b); !strings.HasPrefix(text, "workloads: A has bulk write") {
		t.Error(text)
	}
	b.Nodes = []report.Node{{NodeState: report.NodeState{Name: "n"}, Kind: "host"}}
	if text := UnlikeRuns(a, b); text != "nodes: A has nothing, B has n (host)" {
		t.Error(text)
	}
}
