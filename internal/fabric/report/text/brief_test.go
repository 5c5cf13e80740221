package text

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// many is a run of so many nodes around a switch, each with a workload and a check.
func many(n int) *report.Run {
	r := &report.Run{Lab: "many", Passed: true}
	for i := range n {
		name := fmt.Sprintf("h%d", i)
		r.Workloads = append(r.Workloads, report.Workload{Name: fmt.Sprintf("w%d", i), From: name, To: "h0", Operation: "write", Size: 4096,
			Messages: 100, Bytes: 409600, Gbps: 1 + float64(i), Seconds: 1, Verified: true})
		r.Nodes = append(r.Nodes, report.Node{NodeState: report.NodeState{Name: name, State: core.NodeIsReady}, Kind: "host",
			Counters: map[string]uint64{"Connect": 1}, Transport: map[string]uint64{"packets_sent": 10}})
		r.Links = append(r.Links, report.Link{Endpoints: [2]string{name + ":eth0", fmt.Sprintf("sw:eth%d", i)}, Engine: "linkem", State: "up"})
		r.Checks = append(r.Checks, report.Check{Name: fmt.Sprintf("w%d errors", i), Passed: true, Expected: "0", Got: "0"})
		r.Events = append(r.Events, event.Event{Kind: event.WorkloadStarted, Text: "workload started"})
	}
	return r
}

func brief(t *testing.T, r *report.Run, detail Detail) string {
	t.Helper()
	var b strings.Builder
	if err := WriteRun(&b, r, detail); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A report that fits a screen is shown row by row.
func TestFits(t *testing.T) {
	flows := func(n int) *report.Run {
		return &report.Run{Workloads: []report.Workload{{Flows: make([]report.Flow, n)}}}
	}
	for name, tt := range map[string]struct {
		of   *report.Run
		want bool
	}{
		"the example":       {pair(), true},
		"nothing":           {&report.Run{}, true},
		"6 of each":         {many(6), true}, // 5 rows each
		"7 of each":         {many(7), false},
		"15 links":          {&report.Run{Links: make([]report.Link, 15)}, true},
		"16 links":          {&report.Run{Links: make([]report.Link, 16)}, false},
		"30 workloads":      {&report.Run{Workloads: make([]report.Workload, 30)}, true},
		"31 workloads":      {&report.Run{Workloads: make([]report.Workload, 31)}, false},
		"many events":       {&report.Run{Events: make([]event.Event, 1000)}, true}, // of which the first and last are
		"many flows of one": {flows(1000), true},                                    // of which the slowest are shown
	} {
		if got := fits(tt.of); got != tt.want {
			t.Errorf("%s: fits is %v", name, got)
		}
	}
}

// The report of a run of many nodes fits a screen, and has what went wrong among them.
func TestBriefOfMany(t *testing.T) {
	r := many(64)
	good := brief(t, r, Brief)
	if n := strings.Count(good, "\n"); n > 24 {
		t.Errorf("%d lines, when all is well, are more than a terminal has:\n%s", n, good)
	}
	for _, want := range []string{"64 workloads: none failed, 64 verified; 6400 messages", "64 nodes: 64 ready", "64 links: all up", "64 checks: all passed", "ndklab run -v", "PASS"} {
		if !strings.Contains(good, want) {
			t.Errorf("%q is not in\n%s", want, good)
		}
	}

	r.Passed = false
	r.Workloads[40].Errors, r.Workloads[40].Error = 2, "the peer did not answer"
	r.Nodes[41].State, r.Nodes[41].Reason = core.NodeIsDown, "it was killed"
	r.Links[42].Directions[1].Lost = 7
	r.Checks[43].Passed, r.Checks[43].Got = false, "2"
	r.Problems = []string{"one", "two", "three", "four", "five", "six", "seven"}
	bad := brief(t, r, Brief)
	if n := strings.Count(bad, "\n"); n > 50 {
		t.Errorf("%d lines are more than a screen:\n%s", n, bad)
	}
	for _, want := range []string{"1 failed, with 2 errors", "w40: the peer did not answer", "h41: down (it was killed)", "sw:eth42 -> h42:eth0", "7 lost", "64 checks: 1 failed", "FAIL w43 errors", "and 2 more"} {
		if !strings.Contains(bad, want) {
			t.Errorf("%q is not in\n%s", want, bad)
		}
	}
	for _, other := range []string{"w39 ", "h39:", "sw:eth39", "seven"} {
		if strings.Contains(bad, other) {
			t.Errorf("%q is in\n%s", other, bad)
		}
	}
	full := brief(t, r, Full)
	for _, want := range []string{"w39 ", "h39:", "sw:eth39", "w39 errors", "seven"} {
		if !strings.Contains(full, want) {
			t.Errorf("%q is not in the full report", want)
		}
	}
	if strings.Contains(full, "left out") {
		t.Error("the full report says that something is left out")
	}
}

// A run that fits is the same, brief or full, but for what is told of links.
func TestBriefOfFew(t *testing.T) {
	if diff := cmp.Diff(brief(t, pair(), Full), brief(t, pair(), Brief)); diff != "" {
		t.Errorf("-full +brief:\n%s", diff)
	}
}

// Failed ones come first, then the slowest of those that move payload.
func TestWorstWorkloads(t *testing.T) {
	of := func(name string, bytes, errors uint64, gbps float64) report.Workload {
		return report.Workload{Name: name, Bytes: bytes, Errors: errors, Gbps: gbps}
	}
	var got []string
	for _, w := range worstWorkloads([]report.Workload{of("fast", 1, 0, 9), of("storm", 0, 0, 0), of("bad", 1, 1, 5), of("slow", 1, 0, 1), of("worse", 1, 7, 8), of("faster", 1, 0, 10), of("slower", 1, 0, 0.5)}) {
		got = append(got, w.Name)
	}
	if diff := cmp.Diff([]string{"worse", "bad", "slower", "slow", "fast"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A node that is down comes before one whose connections failed, that before one whose
// packets did, and none is shown of which nothing is to be said.
func TestWorstNodes(t *testing.T) {
	of := func(name, state string, failures, timeouts uint64) report.Node {
		return report.Node{NodeState: report.NodeState{Name: name, State: state}, Counters: map[string]uint64{"ConnectionError": failures},
			Transport: map[string]uint64{"timeouts": timeouts, "packets_sent": 1000}}
	}
	var got []string
	for _, n := range worstNodes([]report.Node{of("well", "ready", 0, 0), of("late", "ready", 0, 3), of("failed", "ready", 2, 0), of("down", "down", 0, 0)}) {
		got = append(got, n.Name)
	}
	if diff := cmp.Diff([]string{"down", "failed", "late"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A direction out of its tolerance comes first, then what is down, then what lost most.
func TestWorstSides(t *testing.T) {
	of := func(name, state string, lost, dropped uint64, overruns int) side {
		l := &report.Link{Endpoints: [2]string{name, "x"}, State: state}
		l.Directions[0] = report.Direction{Lost: lost, Dropped: dropped, Overruns: make([]report.Overrun, overruns)}
		return side{l, 0}
	}
	var got []string
	for _, s := range worstSides([]side{of("well", "up", 0, 0, 0), of("lossy", "up", 0, 9, 0), of("full", "up", 3, 0, 0), of("down", "down", 0, 0, 0), of("overrun", "up", 0, 0, 1)}) {
		got = append(got, s.Endpoints[0])
	}
	if diff := cmp.Diff([]string{"overrun", "down", "full", "lossy"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The lateness of packets is told of directions out of their tolerance alone, unless
// the report is full.
func TestLatenessOutOfTolerance(t *testing.T) {
	r := pair()
	d := &r.Links[0].Directions[0]
	d.Lateness = &report.Lateness{P10: 3, P50: 20, P99: 300, Packets: 1000, Late: []report.Late{{LimitUS: 1000, Packets: 600, Tolerated: 0.5}}}
	if text := brief(t, r, Brief); strings.Contains(text, " late at the ") {
		t.Errorf("it is said within the tolerance:\n%s", text)
	}
	if text := brief(t, r, Full); !strings.Contains(text, "lateness, most at client:eth0 -> server:eth0: left 3.00 us late") {
		t.Errorf("it is not said in full:\n%s", text)
	}
	d.Overruns = []report.Overrun{{Figure: "packets more than 1 ms late"}}
	if text := brief(t, r, Brief); !strings.Contains(text, "lateness, most at client:eth0 -> server:eth0: left 3.00 us late") {
		t.Errorf("it is not said out of the tolerance:\n%s", text)
	}
}
