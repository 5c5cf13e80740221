package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scenarioLab is joinedLab with workloads.
const scenarioLab = joinedLab + `workloads:
  - {name: w, operation: write, from: a, to: b, size: 1B, count: 1, verify: true}
  - {name: m, operation: exec, nodes: a, command: ls, start: manual}
`

func parseScenario(t *testing.T, text string) *Topology {
	t.Helper()
	lab, err := ParseWith(Options{Read: readSamples}, "dir/f.yaml", []byte(scenarioLab+text))
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

func TestTimeline(t *testing.T) {
	bound := func(m Metric, relation string, value float64, text string) Bound {
		return Bound{m, relation, value, text}
	}
	tests := []struct {
		entry string
		want  Event
	}{
		{"at: 1s, link: 'b:e', set: {loss: 1%}, from: b", Event{At: time.Second, Link: 1, From: "b", Set: Change{Loss: &Loss{Rate: 0.01}}}},
		{"at: 1s, link: 'b:e', cut: true, from: b, repeat: 3, every: 2s", Event{At: time.Second, Link: 1, From: "b", Set: Change{Cut: new(true)}, Repeat: 3, Every: 2 * time.Second}},
		{"at: 0s, link: 's:3', heal: true", Event{Link: 2, Set: Change{Cut: new(false)}}},
		{"at: 0s, heal: true", Event{Heal: true}},
		{"at: 0s, link: 'b:e', down: true", Event{Link: 1, Down: true}},
		{"at: 0s, link: 'b:e', up: true", Event{Link: 1, Up: true}},
		{"at: 0s, link: 'b:e', reset: true", Event{Link: 1, Reset: true}},
		{"at: 0s, partition: [[a, s], [b, c]]", Event{Partition: [][]string{{"a", "s"}, {"b", "c"}}}},
		{"at: 0s, stop: a", Event{Node: "a", NodeAction: StopNode}},
		{"at: 0s, start: a", Event{Node: "a", NodeAction: StartNode}},
		{"at: 0s, restart: b", Event{Node: "b", NodeAction: RestartNode}},
		{"at: 0s, kill: b", Event{Node: "b", NodeAction: KillNode}},
		{"at: 0s, pause: b", Event{Node: "b", NodeAction: PauseNode}},
		{"at: 0s, resume: b", Event{Node: "b", NodeAction: ResumeNode}},
		{"at: 0s, storm: b, for: 5ms", Event{Node: "b", Storm: &Storm{Priority: 3, For: 5 * time.Millisecond}}},
		{"at: 0s, storm: d1, priority: 0, for: 1s", Event{Node: "d1", Storm: &Storm{For: time.Second}}},
		{"at: 0s, stop: w", Event{Workload: "w", Stop: true}},
		{"at: 0s, start: m", Event{Workload: "m"}},
		{"name: x, at: 0s, exec: ls | wc, node: d1", Event{Name: "x", Node: "d1", Command: []string{"sh", "-c", "ls | wc"}, Timeout: time.Minute}},
		{"at: 0s, exec: [ls, -l], node: d1, timeout: 3s", Event{Node: "d1", Command: []string{"ls", "-l"}, Timeout: 3 * time.Second}},
		{"at: 0s, snapshot: x", Event{Snapshot: "x"}},
		{"at: 0s, mark: half of it", Event{Mark: "half of it"}},
		{"when: {workload: w, state: failed}, mark: x", Event{When: &Trigger{Workload: "w", State: WorkloadFailed}, Mark: "x"}},
		{"when: {workload: w, messages: '>= 10'}, wait: 2s, mark: x",
			Event{At: 2 * time.Second, When: &Trigger{Workload: "w", Bound: bound(MessageCount, ">=", 10, ">= 10")}, Mark: "x"}},
		{"when: {counter: timeouts, value: 3}, mark: x", Event{When: &Trigger{Counter: "timeouts", Bound: bound("", "==", 3, "3")}, Mark: "x"}},
		{"when: {counter: Connect, node: c, value: '> 3'}, mark: x", Event{When: &Trigger{Counter: "Connect", Node: "c", Bound: bound("", ">", 3, "> 3")}, Mark: "x"}},
		{"after: first, wait: 500ms, mark: x", Event{After: "first", At: 500 * time.Millisecond, Mark: "x"}},
	}
	for _, test := range tests {
		lab := parseScenario(t, "timeline:\n  - {name: first, at: 1s, mark: first}\n  - {"+test.entry+"}\n")
		if diff := cmp.Diff(test.want, lab.Timeline[1], compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.entry, diff)
		}
	}
}

func TestChaos(t *testing.T) {
	hosts := []string{"a", "b", "c", "d1", "d2"}
	tests := []struct {
		entry string
		want  Chaos
	}{
		{"kind: down, every: 1s, for: 100ms, until: 9s", Chaos{Kind: DownLink, Every: time.Second, For: 100 * time.Millisecond, Until: 9 * time.Second, Links: []int{0, 1, 2, 3, 4}}},
		{"kind: impair, every: 1s, for: 1s, start: 2s, until: 9s, links: ['b:e', 's:1', 'd?:e', 's:2'], set: {loss: 1%}",
			Chaos{Kind: ImpairLink, Every: time.Second, For: time.Second, Start: 2 * time.Second, Until: 9 * time.Second, Links: []int{1, 0, 3, 4}, Set: Change{Loss: &Loss{Rate: 0.01}}}},
		{"kind: kill, every: 1s, for: 1s, until: 9s", Chaos{Kind: KillAny, Every: time.Second, For: time.Second, Until: 9 * time.Second, Nodes: hosts}},
		{"kind: pause, every: 1s, for: 1s, until: 9s, nodes: [c, 'd*', c]", Chaos{Kind: PauseAny, Every: time.Second, For: time.Second, Until: 9 * time.Second, Nodes: []string{"c", "d1", "d2"}}},
		{"kind: restart, every: 1s, until: 9s, nodes: b", Chaos{Kind: RestartAny, Every: time.Second, Until: 9 * time.Second, Nodes: []string{"b"}}},
	}
	for _, test := range tests {
		lab := parseScenario(t, "chaos: [{"+test.entry+"}]\n")
		if diff := cmp.Diff([]Chaos{test.want}, lab.Chaos, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.entry, diff)
		}
	}
}

func TestChecks(t *testing.T) {
	tests := []struct {
		entry string
		want  Check
	}{
		{"workload: w, errors: 0, verified: true", Check{Workload: "w", Verified: true, Bounds: []Bound{{Errors, "==", 0, "0"}}}},
		{"workload: w, verified: true", Check{Workload: "w", Verified: true}},
		{"workload: w, throughput: '>= 1gbit', messages: '> 5', message_rate: '> 1.5', connections: 3, connect_rate: '>= 500', reconnects: '>= 1'", Check{Workload: "w", Bounds: []Bound{
			{Throughput, ">=", 1e9, ">= 1gbit"}, {MessageCount, ">", 5, "> 5"}, {MessageRate, ">", 1.5, "> 1.5"},
			{Connections, "==", 3, "3"}, {ConnectRate, ">=", 500, ">= 500"}, {Reconnects, ">=", 1, ">= 1"}}}},
		{"workload: w, latency_min: '> 1ns', latency_p50: '< 1us', latency_p90: '< 2us', latency_p99: '< 3us', latency_p999: '< 4us', latency_p9999: '< 5us', latency_max: '< 6us', latency_jitter: '< 7us', recovered: '<= 2s', fairness: '>= 0.9'",
			Check{Workload: "w", Bounds: []Bound{{LatencyMin, ">", 1, "> 1ns"}, {LatencyP50, "<", 1e3, "< 1us"}, {LatencyP90, "<", 2e3, "< 2us"}, {LatencyP99, "<", 3e3, "< 3us"},
				{LatencyP999, "<", 4e3, "< 4us"}, {LatencyP9999, "<", 5e3, "< 5us"}, {LatencyMax, "<", 6e3, "< 6us"},
				{LatencyJitter, "<", 7e3, "< 7us"}, {Recovered, "<=", 2e9, "<= 2s"}, {Fairness, ">=", 0.9, ">= 0.9"}}}},
		{"counter: timeouts, value: '>= 3', node: b, at: 2s", Check{Counter: "timeouts", Node: "b", At: 2 * time.Second, Bounds: []Bound{{"", ">=", 3, ">= 3"}}}},
		{"counter: Connect, value: 7, snapshot: early", Check{Counter: "Connect", Snapshot: "early", Bounds: []Bound{{"", "==", 7, "7"}}}},
		{"link: 'b:e', from: s, dropped: '> 0', loss: '<= 2%', rate: '>= 1mbit', delay: '<= 1ms', delay_p99: '<= 2ms', overruns: 0", Check{OfLink: true, Link: 1, From: "s", Bounds: []Bound{
			{LinkDropped, ">", 0, "> 0"}, {LinkLoss, "<=", 0.02, "<= 2%"}, {LinkRate, ">=", 1e6, ">= 1mbit"}, {LinkDelay, "<=", 1e6, "<= 1ms"},
			{LinkDelayP99, "<=", 2e6, "<= 2ms"}, {LinkOverruns, "==", 0, "0"}}}},
		{"leftovers: 0", Check{Left: true, Bounds: []Bound{{Leftovers, "==", 0, "0"}}}},
		{"open_connections: '<= 3', node: c", Check{Left: true, Node: "c", Bounds: []Bound{{OpenConnections, "<=", 3, "<= 3"}}}},
		{"exec: ls, node: a", Check{Command: []string{"sh", "-c", "ls"}, Node: "a", Timeout: time.Minute}},
		{"exec: [ls], node: a, status: 2, output: '^x+$', timeout: 2s", Check{Command: []string{"ls"}, Node: "a", Status: 2, Output: "^x+$", Timeout: 2 * time.Second}},
	}
	for _, test := range tests {
		lab := parseScenario(t, "timeline: [{at: 1s, snapshot: early}]\nchecks: [{"+test.entry+"}]\n")
		if diff := cmp.Diff([]Check{test.want}, lab.Checks, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.entry, diff)
		}
	}
}

// Checks of buffers are about nodes that have one, each by itself, and of deadlocks about the run.
func TestBufferChecks(t *testing.T) {
	lab, err := Parse("f.yaml", []byte(strings.Replace(joinedLab, "s: {kind: switch}", "s: {kind: switch}, s2: {kind: switch}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	lab.FindNode("s").Buffer = &Buffer{}
	schema := compiledSchema(t)
	for entry, want := range map[string]Check{
		"switch: 's*', drops: 0, queue_p99: '<= 300KiB', queue_peak: '< 1MiB', pause_time: '<= 1ms', deadlocks: 0": {OfBuffer: true, Switch: "s", Bounds: []Bound{
			{BufferDrops, "==", 0, "0"}, {QueueP99, "<=", 300 << 10, "<= 300KiB"}, {QueuePeak, "<", 1 << 20, "< 1MiB"}, {PauseTime, "<=", 1e6, "<= 1ms"}, {Deadlocks, "==", 0, "0"}}},
		"switch: s, deadlocks: '> 0'": {OfBuffer: true, Switch: "s", Bounds: []Bound{{Deadlocks, ">", 0, "> 0"}}},
		"deadlocks: 0":                {OfBuffer: true, Bounds: []Bound{{Deadlocks, "==", 0, "0"}}},
		"switch: s2, drops: 0":        {}, // has none
	} {
		r := &reader{file: "f.yaml"}
		root, _ := r.value([]byte("[{" + entry + "}]"))
		if found, text := instanceOf([]byte(joinedLab+"checks: [{"+entry+"}]")).complaints(t, schema); len(found) > 0 {
			t.Errorf("%s: the schema does not take it: %v", entry, text)
		}
		got := indexNodes(r, lab).checks(listOf(checkForm).of(r, root).is)
		if want.Bounds == nil {
			if len(r.errors) != 1 || r.errors[0].Error() != "f.yaml:1:11: s2 has no buffer, expected the key buffer there, or a node that has one (s)" {
				t.Errorf("%s: %v", entry, r.errors)
			}
			continue
		}
		if diff := cmp.Diff([]Check{want}, got, compare); diff != "" || len(r.errors) > 0 {
			t.Errorf("%s: %v (-want +got):\n%s", entry, r.errors, diff)
		}
	}
}

func TestBaseline(t *testing.T) {
	for entry, want := range map[string]Baseline{
		"file: ../report.json": {File: "report.json", Tolerance: 0.1},
		"file: ../report.json, tolerance: 2.5%, metrics: [fairness, latency_p50], workloads: ['*']": {File: "report.json", Tolerance: 0.025, Metrics: []Metric{Fairness, LatencyP50}, Workloads: []string{"w", "m"}},
		"file: /x.n, metrics: throughput": {}, // no JSON
	} {
		lab, err := ParseWith(Options{Read: readSamples}, "dir/f.yaml", []byte(scenarioLab+"baseline: {"+entry+"}\n"))
		if want.File == "" {
			if err == nil {
				t.Errorf("%s: no error", entry)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want.Content = []byte("{}")
		if diff := cmp.Diff(&want, lab.Baseline, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", entry, diff)
		}
	}
	if _, err := Parse("f.yaml", []byte(scenarioLab+"baseline: {file: report.json}\n")); err == nil || err.Error() != "f.yaml:7:18: "+noBaselines {
		t.Errorf("%v", err)
	}
}

// Parts of a scenario that a simulation refuses, and parts that fail, are told with their
// place.
func TestPlaces(t *testing.T) {
	lab := parseScenario(t, `timeline:
  - {at: 1s, exec: ls, node: a}
  -  at: 2s
     mark: x
chaos: [{kind: restart, every: 1s, until: 9s}]
checks: [{leftovers: 0}, {exec: ls, node: a}]
baseline: {file: ../report.json}
`)
	got := []string{
		lab.Workloads[0].Place.String(), lab.Workloads[1].Place.String(), lab.Timeline[0].Place.String(), lab.Timeline[1].Place.String(),
		lab.Chaos[0].Place.String(), lab.Checks[0].Place.String(), lab.Checks[1].Place.String(), lab.Baseline.Place.String(),
	}
	want := []string{
		"dir/f.yaml:5:5", "dir/f.yaml:6:5", "dir/f.yaml:8:5", "dir/f.yaml:9:6",
		"dir/f.yaml:11:9", "dir/f.yaml:12:10", "dir/f.yaml:12:26", "dir/f.yaml:13:11",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	if drawn := lab.Draw(1).Timeline; len(drawn) < 5 || drawn[2].Place.String() != want[4] {
		t.Errorf("%+v", drawn)
	}
}

// Events are tried in the order in which they happen, whatever the order of the file.
func TestInstants(t *testing.T) {
	lab := parseScenario(t, `timeline:
  - {after: b, wait: 1s, mark: x}
  - {name: b, after: a, mark: x, repeat: 2, every: 5s}
  - {name: a, at: 1s, mark: x, repeat: 3, every: 10s}
  - {name: c, when: {workload: w, state: done}, mark: x}
  - {after: c, wait: 1s, mark: x}
  - {at: 7s, mark: x}
`)
	want := []time.Duration{27 * time.Second, 21 * time.Second, time.Second, -1, -1, 7 * time.Second}
	if got := instants(lab.Timeline); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Events that nobody knows the order of may need each other.
func TestUnknownOrder(t *testing.T) {
	parseScenario(t, `timeline:
  - {when: {workload: w, state: done}, link: "a:e", set: {jitter: 1ms}}
  - {when: {workload: w, state: started}, link: "a:e", set: {delay: 2ms}}
`)
}

// Bounds hold what they say.
func TestHolds(t *testing.T) {
	for relation, want := range map[string]string{"==": "=", "<=": "<=", ">=": "=>", "<": "<", ">": ">", "": ""} {
		got := ""
		for _, c := range []struct {
			value float64
			as    string
		}{{1, "<"}, {2, "="}, {3, ">"}} {
			if (Bound{Relation: relation, Value: 2}).Holds(c.value) {
				got += c.as
			}
		}
		if got != want {
			t.Errorf("%s holds for %q, want %q", relation, got, want)
		}
	}
}
