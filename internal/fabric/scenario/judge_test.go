package scenario

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

func ref[T any](v T) *T { return &v }

func TestPassed(t *testing.T) {
	bound := topology.Bound{Metric: topology.Errors, Relation: "<=", Value: 3, Text: "<= 3"}
	checks := []topology.Check{{Workload: "a", Bounds: []topology.Bound{bound}}}
	for _, tt := range []struct {
		name     string
		checks   []topology.Check
		a, b     uint64
		problems []string
		expected bool
	}{
		{"nothing wrong", checks, 0, 0, nil, true},
		{"errors that a check allows", checks, 3, 0, nil, true},
		{"errors beyond what it allows", checks, 4, 0, nil, false},
		{"errors that no check is about", checks, 0, 1, nil, false},
		{"errors without checks", nil, 1, 0, nil, false},
		{"a problem", checks, 0, 0, []string{"node a is down"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			topo := &topology.Topology{Checks: tt.checks}
			r := &report.Run{Workloads: []report.Workload{{Name: "a", Errors: tt.a}, {Name: "b", Errors: tt.b}}, Problems: tt.problems}
			r.Checks = judge(topo, r, nil)
			if got := passed(&topology.Topology{Checks: tt.checks}, r); got != tt.expected {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Every metric of a workload is held against its bound and told in its file's units.
func TestWorkloadMetrics(t *testing.T) {
	w := report.Workload{
		Name: "w", Messages: 1000, Seconds: 2, Gbps: 1.5, Errors: 7, Error: "message 3: timeout", Connections: 12345, Reconnects: 3, Recovered: 0.25, Fairness: 0.98765,
		Latency: report.Latency{Min: 1, P50: 2000, P90: 2500, P99: 3e6, P999: 3.1e6, P9999: 3.2e6, Max: 6e7}, Flows: make([]report.Flow, 2),
	}
	for _, tt := range []struct {
		metric   topology.Metric
		relation string
		value    float64
		passed   bool
		got      string
	}{
		{topology.Errors, "<=", 7, true, "7"},
		{topology.Throughput, ">=", 1.5e9, true, "1.5gbit"},
		{topology.Throughput, ">", 1.5e9, false, "1.5gbit"},
		{topology.MessageCount, "==", 1000, true, "1000"},
		{topology.MessageRate, ">=", 500, true, "500/s"},
		{topology.Connections, ">", 12345, false, "12345"},
		{topology.ConnectRate, ">=", 7000, false, "6173/s"},
		{topology.Reconnects, ">=", 1, true, "3"},
		{topology.LatencyMin, "<", 1001, true, "1us"},
		{topology.LatencyP50, "<=", 2e6, true, "2ms"},
		{topology.LatencyP90, "<=", 2e6, false, "2.5ms"},
		{topology.LatencyP99, "==", 3e9, true, "3s"},
		{topology.LatencyP999, "<=", 3e9, false, "3.1s"},
		{topology.LatencyP9999, "<=", 3.2e9, true, "3.2s"},
		{topology.LatencyMax, "<=", 59e9, false, "60s"},
		{topology.LatencyJitter, "<=", 2.9e9, false, "2.998s"},
		{topology.Recovered, "<", 250e6, false, "250ms"},
		{topology.Fairness, ">=", 0.99, false, "0.988"},
	} {
		topo := &topology.Topology{Checks: []topology.Check{{Workload: "w", Bounds: []topology.Bound{{Metric: tt.metric, Relation: tt.relation, Value: tt.value, Text: "as asked"}}}}}
		got := judge(topo, &report.Run{Workloads: []report.Workload{w}}, nil)
		want := report.Check{Name: "w " + string(tt.metric), Passed: tt.passed, Expected: "as asked", Got: tt.got}
		if !tt.passed {
			want.Got += "; the first error: message 3: timeout"
			want.Where = "the lab's log"
		}
		if diff := cmp.Diff([]report.Check{want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.metric, diff)
		}
	}
	topo := &topology.Topology{Checks: []topology.Check{{Workload: "w", Bounds: []topology.Bound{{Metric: topology.LatencyMax, Relation: "<=", Value: 1}}}}}
	if none := judge(topo, &report.Run{Workloads: []report.Workload{{Name: "w"}}}, nil)[0]; none.Passed || none.Got != "no message completed" {
		t.Errorf("without a message: %+v", none)
	}
}

// A workload of one flow is fair, and one that took no time has no rate.
func TestMeasuredAtTheEdge(t *testing.T) {
	w := &report.Workload{Messages: 1}
	for metric, want := range map[topology.Metric]float64{topology.Fairness: 1, topology.MessageRate: 0, topology.ConnectRate: 0} {
		if got, known := measured(w, metric); got != want || !known {
			t.Errorf("%s: %v, known: %v, want %v", metric, got, known, want)
		}
	}
}

// All kinds of objects count that a node has left.
func TestLeftovers(t *testing.T) {
	n := &report.Node{NodeState: report.NodeState{Name: "n"}, InUse: &provider.Usage{Qps: 1, Cqs: 2, Mrs: 3, Mws: 4, Srqs: 5, Pds: 6}}
	sum, text, known := remains(n, topology.Leftovers)
	if want := "n: 1 QP and 2 CQs and 3 MRs and 4 MWs and 5 SRQs and 6 PDs"; sum != 21 || text != want || !known {
		t.Errorf("%d, %q, known: %v; want 21, %q", sum, text, known, want)
	}
}

// A node that does not tell what is left over is not taken for one with nothing left over.
func TestLeftoversUntold(t *testing.T) {
	topo := &topology.Topology{Checks: []topology.Check{{Left: true, Bounds: []topology.Bound{{Metric: topology.Leftovers, Relation: "==", Value: 0}}}}}
	r := &report.Run{Nodes: []report.Node{{NodeState: report.NodeState{Name: "n0", State: core.NodeIsPaused}}}}
	if got := judge(topo, r, nil)[0]; got.Passed || got.Got != "all nodes did not tell" || got.Where != "node n0, which is paused" {
		t.Errorf("%+v", got)
	}
}

// The baseline's tolerance is downwards for what more is better of, else upwards.
func TestBaselineDirections(t *testing.T) {
	was := report.Workload{
		Name: "w", Messages: 100, Seconds: 1, Gbps: 1, Connections: 100, Reconnects: 100, Errors: 100, Recovered: 1, Fairness: 0.5,
		Flows: make([]report.Flow, 2), Latency: report.Latency{Min: 100, P50: 100, P90: 100, P99: 100, P999: 100, P9999: 100, Max: 100},
	}
	text, err := json.Marshal(report.Run{Lab: "lab", Workloads: []report.Workload{was}})
	if err != nil {
		t.Fatal(err)
	}
	for metric, relation := range map[topology.Metric]string{
		topology.Throughput: ">=", topology.MessageCount: ">=", topology.MessageRate: ">=", topology.Connections: ">=", topology.ConnectRate: ">=", topology.Fairness: ">=",
		topology.Errors: "<=", topology.Reconnects: "<=", topology.Recovered: "<=", topology.LatencyMin: "<=", topology.LatencyP50: "<=", topology.LatencyP90: "<=",
		topology.LatencyP99: "<=", topology.LatencyP999: "<=", topology.LatencyP9999: "<=", topology.LatencyMax: "<=", topology.LatencyJitter: "<=",
	} {
		b := &topology.Baseline{Content: text, Tolerance: 0.1, Metrics: []topology.Metric{metric}}
		got := compare(&topology.Topology{Baseline: b}, &report.Run{Lab: "lab", Workloads: []report.Workload{was}})
		if len(got) != 1 || !got[0].Passed || !strings.HasPrefix(got[0].Expected, relation+" ") {
			t.Errorf("%s: %+v, want %s", metric, got, relation)
		}
	}
}

// broken is a run in which much went wrong, and a check of each kind that it does not
// pass.
func broken() (*topology.Topology, *report.Run, programExits) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("bulk", time.Second), pair("unverified", time.Second)}
	topo.Workloads[0].Verify = true
	topo.Captures = []topology.Capture{{File: "pair.pcapng", Interfaces: []topology.Endpoint{{Node: "n1", Interface: "eth0"}}}}
	bounds := func(m topology.Metric, relation string, value float64, text string) []topology.Bound {
		return []topology.Bound{{Metric: m, Relation: relation, Value: value, Text: text}}
	}
	at := func(line int) topology.Place { return topology.Place{File: "x.ndklab.yaml", Line: line, Column: 5} }
	topo.Checks = []topology.Check{
		{Workload: "bulk", Bounds: bounds(topology.Throughput, ">=", 1e9, ">= 1gbit"), Place: at(1)},
		{Workload: "bulk", Bounds: bounds(topology.Errors, "==", 0, "0"), Place: at(2)},
		{Workload: "bulk", Verified: true},
		{Workload: "unverified", Verified: true},
		{Counter: "icrc_errors", Bounds: bounds("", "==", 0, "0")},
		{Counter: "icrc_errors", Node: "n0", At: 2 * time.Second, Bounds: bounds("", ">=", 1, ">= 1")},
		{Counter: "icrc_errors", Snapshot: "before", Bounds: bounds("", ">=", 1, ">= 1")},
		{Counter: "icrc_mistakes", Bounds: bounds("", ">=", 1, ">= 1")},
		{OfLink: true, Link: 0, Bounds: bounds(topology.LinkLoss, "<=", 0.01, "<= 1%")},
		{OfLink: true, Link: 0, From: "n1", Bounds: bounds(topology.LinkDelay, "<=", 1e6, "<= 1ms")},
		{OfLink: true, Link: 0, From: "n0", Bounds: bounds(topology.LinkDelayP99, "<=", 1e6, "<= 1ms")},
		{OfLink: true, Link: 0, Bounds: bounds(topology.LinkOverruns, "==", 0, "0")},
		{Left: true, Bounds: bounds(topology.OpenConnections, "==", 0, "0")},
		{Left: true, Bounds: bounds(topology.Leftovers, "==", 0, "0")},
		{Left: true, Node: "n0", Bounds: bounds(topology.Leftovers, "==", 0, "0")},
		{Command: []string{"fsck", "/dev/null"}, Node: "n1", Output: "^clean$"},
		{Command: []string{"fsck"}, Node: "n1"},
		{Command: []string{"sleep", "1h"}, Node: "n1", Timeout: time.Minute},
		{Command: []string{"nothing"}, Node: "n0", Status: 1},
	}
	r := &report.Run{
		Lab: "lab",
		Workloads: []report.Workload{
			{Name: "bulk", From: "n0", To: "n1", Messages: 10, Gbps: 0.0421, Seconds: 1, Began: 0.2, Ended: 1.2, Errors: 2, Error: "message 10: STATUS_IO_TIMEOUT"},
			{Name: "unverified", From: "n0", To: "n1", Messages: 10},
		},
		Nodes: []report.Node{
			{NodeState: report.NodeState{Name: "n0", State: "ready"}, Counters: map[string]uint64{"ActiveConnection": 2}, Transport: map[string]uint64{"retransmitted": 42, "icrc_errors": 0, "receive_overflow": 67}, InUse: &provider.Usage{}},
			{NodeState: report.NodeState{Name: "n1", State: "ready"}, Counters: map[string]uint64{"ActiveConnection": 1}, Transport: map[string]uint64{"icrc_errors": 3}, InUse: &provider.Usage{Qps: 2, Mrs: 1}},
		},
		Links: []report.Link{{
			Endpoints: [2]string{"n0:eth0", "n1:eth0"}, Engine: "linkem",
			Directions: [2]report.Direction{
				{From: "n0:eth0", Packets: 1000, Dropped: 20, LostBy: report.LostBy{Down: 30}, Lost: 30, Asked: report.Quality{RateGbps: ref(0.1)},
					Overruns: []report.Overrun{{Figure: "median delay", Tolerated: "up to 1ms late", Got: "3 ms late", Reason: "the host could not keep up", Remedy: "fewer links"}}},
				{From: "n1:eth0", Packets: 1000, Achieved: report.Quality{DelayUS: ref(1500.0)}},
			},
		}},
		Events: []event.Event{
			{At: 0, Kind: event.WorkloadStarted, Text: "workload bulk: ...", Node: "n0"},
			{At: 100 * time.Millisecond, Kind: event.LinkChanged, Text: "before", Link: "n0:eth0"},
			{At: 1500 * time.Millisecond, Kind: event.LinkChanged, Text: "after", Link: "n0:eth0"},
			{At: 500 * time.Millisecond, Kind: event.LinkChanged, Text: "link n0:eth0 is down", Link: "n0:eth0"},
		},
		Snapshots: map[string][]report.Node{"at 2s": {{NodeState: report.NodeState{Name: "n0", State: "down", Reason: "it was stopped"}}}},
	}
	return topo, r, programExits{
		15: {Exit: Exit{Output: "dirty\n"}},
		16: {Exit: Exit{Status: 8, Errors: "bad superblock\n"}},
		17: {Exit: Exit{Status: 143, TimedOut: true}},
	}
}

// Each check that has failed says what it expected, what it got, and where to look.
func TestBrokenExpectations(t *testing.T) {
	topo, r, found := broken()
	where := "link n0:eth0 is down at 0.500 s; counters of n0: receive_overflow 67, retransmitted 42; n1: icrc_errors 3; " +
		"link n0:eth0 to n1:eth0: 20 dropped by asked-for loss, 30 lost while it was down"
	rate, file := "; link n0:eth0 to n1:eth0, whose rate is 100 Mb/s", "; capture pair.pcapng"
	first := "; the first error: message 10: STATUS_IO_TIMEOUT"
	program := func(text string) string {
		return "the lab's log, and the program itself: `ndklab exec lab/" + text + "` in a lab that `run --keep` leaves up"
	}
	want := []report.Check{
		{Name: "bulk throughput", Expected: ">= 1gbit", Got: "42.1mbit" + first, Where: where + rate + file, At: "x.ndklab.yaml:1:5"},
		{Name: "bulk errors", Expected: "0", Got: "2" + first, Where: where + file, At: "x.ndklab.yaml:2:5"},
		{Name: "bulk verified", Expected: "every payload compared, and right", Got: "2 errors" + first, Where: where + file},
		{Name: "unverified verified", Expected: "every payload compared, and right", Got: "nothing was compared",
			Where: "workload unverified in the file, which has no `verify: true`"},
		{Name: "icrc_errors", Expected: "0", Got: "3 (n1 3)", Where: "the counters of all nodes at the end"},
		{Name: "icrc_errors of n0 at 2s", Expected: ">= 1", Got: "node n0 told no counters", Where: "node n0, which is down: it was stopped"},
		{Name: "icrc_errors in snapshot before", Expected: ">= 1", Got: "no snapshot before", Where: "the timeline, whose snapshot has not come about"},
		{Name: "icrc_mistakes", Expected: ">= 1", Got: "no such counter", Where: "the counters that there are: ActiveConnection, icrc_errors, receive_overflow, retransmitted"},
		{Name: "link n0:eth0 loss", Expected: "<= 1%", Got: "5% from n0:eth0, 0% from n1:eth0",
			Where: "n0:eth0 to n1:eth0, which carried 1000 packets: 20 dropped by asked-for loss, 30 lost while it was down; overrun: median delay: tolerated up to 1ms late, got 3 ms late; the host could not keep up: fewer links"},
		{Name: "link n0:eth0 from n1 delay", Expected: "<= 1ms", Got: "1.5ms from n1:eth0", Where: "n1:eth0 to n0:eth0, which carried 1000 packets"},
		{Name: "link n0:eth0 from n0 delay_p99", Expected: "<= 1ms", Got: "not measured from n0:eth0",
			Where: "n0:eth0 to n1:eth0, on which nothing is measured as long as it has no impairment"},
		{Name: "link n0:eth0 overruns", Expected: "0", Got: "1 from n0:eth0, 0 from n1:eth0",
			Where: "n0:eth0 to n1:eth0, which carried 1000 packets: 20 dropped by asked-for loss, 30 lost while it was down; overrun: median delay: tolerated up to 1ms late, got 3 ms late; the host could not keep up: fewer links"},
		{Name: "open_connections", Expected: "0", Got: "3 (n0 2, n1 1)", Where: "programs that the lab still runs, and workloads that failed: they have not closed what they had made"},
		{Name: "leftovers", Expected: "0", Got: "3 (n1: 2 QPs and 1 MR)", Where: "programs that the lab still runs, and workloads that failed: they have not closed what they had made"},
		{Name: "leftovers of n0", Expected: "0", Got: "0", Passed: true},
		{Name: "`fsck /dev/null` in n1", Expected: `exit status 0 and output that matches "^clean$"`, Got: `exit status 0, and the output was "dirty"`, Where: program("n1 -- fsck /dev/null")},
		{Name: "`fsck` in n1", Expected: "exit status 0", Got: "exit status 8: bad superblock", Where: program("n1 -- fsck")},
		{Name: "`sleep 1h` in n1", Expected: "exit status 0", Got: "it did not end within 60s", Where: program("n1 -- sleep 1h")},
		{Name: "`nothing` in n0", Expected: "exit status 1", Got: "exit status 0", Where: program("n0 -- nothing")},
	}
	got := judge(topo, r, found)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range got {
		if !c.Passed && (c.Got == "" || c.Expected == "" || c.Where == "") {
			t.Errorf("%s does not say enough: %+v", c.Name, c)
		}
	}
}

func TestBaseline(t *testing.T) {
	before := report.Run{Lab: "lab", Workloads: []report.Workload{
		{Name: "a", Messages: 10, Gbps: 10, Latency: report.Latency{P99: 1000}},
		{Name: "b", Messages: 10, Gbps: 1, Latency: report.Latency{P99: 1000}},
		{Name: "gone", Messages: 10, Gbps: 1},
	}}
	one, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	other := before
	other.Lab = "other"
	suite, err := json.Marshal(map[string]any{"labs": []report.Run{{Lab: "another", Workloads: []report.Workload{}}, before}})
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := json.Marshal(map[string]any{"labs": []report.Run{{Lab: "x"}, {Lab: "y"}}})
	if err != nil {
		t.Fatal(err)
	}
	now := &report.Run{Lab: "lab", Workloads: []report.Workload{
		{Name: "a", Messages: 10, Gbps: 9.5, Latency: report.Latency{P99: 1051}},
		{Name: "b", Messages: 10, Gbps: 0.94, Latency: report.Latency{P99: 900}},
		{Name: "new", Messages: 10, Gbps: 1},
	}}
	words := func(all []report.Check) []string {
		var lines []string
		for _, c := range all {
			lines = append(lines, fmt.Sprintf("%v %s: expected %s, got %s; %s %s", c.Passed, c.Name, c.Expected, c.Got, c.Where, c.At))
		}
		return lines
	}
	b := topology.Baseline{File: "base.json", Tolerance: 0.05, Place: topology.Place{File: "x", Line: 9, Column: 1}}
	a := []string{
		"true a throughput against baseline: expected >= 9.5gbit (10gbit less 5%), got 9.5gbit;  x:9:1",
		"false a latency_p99 against baseline: expected <= 1.05ms (1ms plus 5%), got 1.051ms; workload a in base.json; the lab's log x:9:1",
	}
	rest := []string{
		"false b throughput against baseline: expected >= 950mbit (1gbit less 5%), got 940mbit; workload b in base.json; the lab's log x:9:1",
		"true b latency_p99 against baseline: expected <= 1.05ms (1ms plus 5%), got 900us;  x:9:1",
	}
	for name, tt := range map[string]struct {
		content   []byte
		metrics   []topology.Metric
		workloads []string
		want      []string
	}{
		"a run":      {one, nil, nil, append(a[:2:2], rest...)},
		"of a suite": {suite, nil, nil, append(a[:2:2], rest...)},
		"a metric":   {one, []topology.Metric{topology.Throughput}, nil, []string{a[0], rest[0]}},
		"a workload": {one, nil, []string{"a", "new"}, append(a[:2:2], "false new against baseline: expected a workload of that name in the baseline, got none; base.json x:9:1")},
		"strangers":  {strangers, nil, nil, []string{"false baseline: expected the report of an earlier run, got no lab lab, but x, y; base.json x:9:1"}},
		"nothing":    {[]byte("{}"), nil, nil, []string{"false baseline: expected the report of an earlier run, got no report: it has neither workloads nor labs; base.json x:9:1"}},
		"no JSON":    {[]byte("PASS"), nil, nil, []string{"false baseline: expected the report of an earlier run, got no report: invalid character 'P' looking for beginning of value; base.json x:9:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b.Content, b.Metrics, b.Workloads = tt.content, tt.metrics, tt.workloads
			want(t, words(judge(&topology.Topology{Baseline: &b}, now, nil)), tt.want...)
		})
	}
}

// A run whose checks are about all that can be looked at looks at it.
func TestChecksOfARun(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", time.Second)}
	one := func(m topology.Metric, relation string, value float64) []topology.Bound {
		return []topology.Bound{{Metric: m, Relation: relation, Value: value}}
	}
	topo.Timeline = []topology.Event{{At: 200 * time.Millisecond, Snapshot: "early"}}
	topo.Checks = []topology.Check{
		{Counter: "Ticks", Node: "n0", Snapshot: "early", Bounds: one("", "==", 200)},
		{Counter: "Ticks", Node: "n0", At: 3 * time.Second, Bounds: one("", "==", 3000)},
		{Left: true, Bounds: append(one(topology.OpenConnections, "==", 0), one(topology.Leftovers, "==", 2)...)},
		{Command: []string{"test"}, Node: "n0", Status: 3, Output: "ell"},
		{Command: []string{"test"}, Node: "n1", Status: 3},
		{OfLink: true, Bounds: one(topology.LinkDropped, "==", 0)},
	}
	s := newStage(t, topo)
	s.counter["Ticks"] = func() uint64 { return uint64(s.Now() / time.Millisecond) }
	s.inUse = provider.Usage{Cqs: 1}
	s.links = make([]report.Link, 1)
	s.exit = func(string, Command) (Exit, time.Duration) { return Exit{Status: 3, Output: "hello"}, time.Second }
	r := s.play()
	if !r.Passed || len(r.Checks) != 7 {
		t.Errorf("%+v", r.Checks)
	}
	want(t, s.logged("exec"), "3s exec test in n0", "4s exec test in n1")
	if r.Seconds < 3 || r.Seconds > 3.1 || !strings.Contains(r.Checks[1].Name, "at 3s") {
		t.Errorf("%v s, %q", r.Seconds, r.Checks[1].Name)
	}
}
