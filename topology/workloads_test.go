package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// joinedLab is a lab of hosts at one switch.
const joinedLab = `topology:
  nodes: {a: , b: , c: , d1: , d2: , s: {kind: switch}}
  links: [{endpoints: [a:e, s:1]}, {endpoints: [b:e, s:2]}, {endpoints: [c:e, s:3]}, {endpoints: [d1:e, s:4]}, {endpoints: [d2:e, s:5]}]
`

// flowsOf are flows from how they are written: "a-b b-a".
func flowsOf(text string) []Flow {
	var flows []Flow
	for word := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(word, "-")
		flows = append(flows, Flow{from, to})
	}
	return flows
}

func TestWorkloads(t *testing.T) {
	tests := []struct {
		file string // of a workload without its name
		want Workload
	}{
		{"operation: read, from: a, to: b, size: 4KiB, count: 5", Workload{Operation: Read, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"),
			Size: 4096, Measure: Bandwidth, Depth: 1, QPs: 1, Count: 5}},
		{"operation: send, pattern: pair, from: a, to: b, size: 64B, measure: latency, duration: 2s, qps: 3, inline: true, srq: true, completion: poll, rate: 1gbit, warmup: 1s, verify: true, reconnect: true, start: 3s",
			Workload{Operation: Send, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"), Size: 64, Measure: Latency, Depth: 1, QPs: 3, Inline: true, SRQ: true,
				Polling: true, Rate: 1e9, Duration: 2 * time.Second, WarmUp: time.Second, Verify: true, Reconnect: true, Start: 3 * time.Second}},
		{"operation: write, pattern: ring, nodes: [c, a, b], size: [1B, 3B, 2B], count: 1, start: manual, completion: event", Workload{Operation: Write, Pattern: Ring, Nodes: []string{"c", "a", "b"},
			Flows: flowsOf("c-a a-b b-c"), Size: 3, Sizes: []uint64{1, 3, 2}, Measure: Bandwidth, Depth: 1, QPs: 1, Count: 1, Manual: true}},
		{"operation: write, pattern: ring, nodes: [a, b], size: [7B], count: 1", Workload{Operation: Write, Pattern: Ring, Nodes: []string{"a", "b"},
			Flows: flowsOf("a-b b-a"), Size: 7, Measure: Bandwidth, Depth: 1, QPs: 1, Count: 1}},
		{"operation: write, pattern: all-to-all, nodes: [b, 'd?'], size: {mix: [1B, 2B]}, count: 1, depth: 8", Workload{Operation: Write, Pattern: AllToAll, Nodes: []string{"b", "d1", "d2"},
			Flows: flowsOf("b-d1 b-d2 d1-b d1-d2 d2-b d2-d1"), Size: 2, Sizes: []uint64{1, 2}, Mixed: true, Measure: Bandwidth, Depth: 8, QPs: 1, Count: 1}},
		{"operation: write, pattern: incast, to: c, nodes: ['*', c, a], size: 0B, count: 1", Workload{Operation: Write, Pattern: Incast, Nodes: []string{"c", "a", "b", "d1", "d2"},
			Flows: flowsOf("a-c b-c d1-c d2-c"), Measure: Bandwidth, Depth: 1, QPs: 1, Count: 1}},
		{"operation: write, pattern: broadcast, from: b, nodes: a, size: 1B, count: 1", Workload{Operation: Write, Pattern: Broadcast, Nodes: []string{"b", "a"},
			Flows: flowsOf("b-a"), Size: 1, Measure: Bandwidth, Depth: 1, QPs: 1, Count: 1}},
		{"operation: write, pattern: permutation, nodes: [a, b], size: 1B, count: 1", Workload{Operation: Write, Pattern: Permutation, Nodes: []string{"a", "b"},
			Size: 1, Measure: Bandwidth, Depth: 1, QPs: 1, Count: 1}},
		{"operation: connect, from: a, to: b, count: 2000", Workload{Operation: Connect, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"), Depth: 16, QPs: 16, Count: 2000}},
		{"operation: connect, from: a, to: b, depth: 64, qps: 1000, duration: 1s", Workload{Operation: Connect, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"), Depth: 64, QPs: 1000, Duration: time.Second}},
		{"operation: connect, from: a, to: b, depth: 64, count: 1", Workload{Operation: Connect, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"), Depth: 64, QPs: 64, Count: 1}},
		{"operation: storage, from: a, to: b, size: {mix: [4KiB]}, depth: 4, qps: 2, count: 1, verify: true, reconnect: true", Workload{Operation: Storage, Pattern: Pair, From: "a", To: "b", Flows: flowsOf("a-b"),
			Size: 4096, Sizes: []uint64{4096}, Mixed: true, Depth: 4, QPs: 2, Count: 1, Verify: true, Reconnect: true}},
		{"operation: allreduce, nodes: [a, b, c], size: 1MiB, count: 3", Workload{Operation: AllReduce, Pattern: Ring, Nodes: []string{"a", "b", "c"}, Flows: flowsOf("a-b b-c c-a"),
			Size: 1 << 20, Depth: 1, QPs: 1, Count: 3}},
		{"operation: rping, from: b, to: a, size: 64B, count: 3, verify: true", Workload{Operation: Rping, Pattern: Pair, From: "b", To: "a", Flows: flowsOf("b-a"), Size: 64, Depth: 1, QPs: 1, Count: 3, Verify: true}},
		{"operation: exec, nodes: 'd*', command: ls | wc, timeout: 3s", Workload{Operation: Program, Nodes: []string{"d1", "d2"}, Command: []string{"sh", "-c", "ls | wc"}, Timeout: 3 * time.Second}},
		{"operation: exec, nodes: a, command: [ls, -l, '']", Workload{Operation: Program, Nodes: []string{"a"}, Command: []string{"ls", "-l", ""}, Timeout: 10 * time.Minute}},
		{"exec: {b: [ib_write_bw], a: ib_write_bw b}", Workload{Operation: Program, Nodes: []string{"b", "a"}, Commands: [][]string{{"ib_write_bw"}, {"sh", "-c", "ib_write_bw b"}}, Timeout: 10 * time.Minute}},
		{"exec: {c: [x], 'd*': [y], '*': [z]}, ready: started, timeout: 2s, start: manual", Workload{Operation: Program, Nodes: []string{"c", "d1", "d2", "a", "b"},
			Commands: [][]string{{"x"}, {"y"}, {"y"}, {"z"}, {"z"}}, Ready: Readiness{Started: true}, Timeout: 2 * time.Second, Manual: true}},
		{"exec: {a: [x], b: [y]}, ready: 5201", Workload{Operation: Program, Nodes: []string{"a", "b"}, Commands: [][]string{{"x"}, {"y"}}, Ready: Readiness{Port: 5201}, Timeout: 10 * time.Minute}},
		{"exec: {a: [x], b: [y]}, ready: listening", Workload{Operation: Program, Nodes: []string{"a", "b"}, Commands: [][]string{{"x"}, {"y"}}, Timeout: 10 * time.Minute}},
	}
	for _, test := range tests {
		got, err := Parse("f.yaml", []byte(joinedLab+"workloads:\n  - {name: w, "+test.file+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", test.file, err)
			continue
		}
		test.want.Name = "w"
		if diff := cmp.Diff([]Workload{test.want}, got.Workloads, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.file, diff)
		}
	}
}

// "all" is the sizes of perftest's -a.
func TestSweep(t *testing.T) {
	got, err := Parse("f.yaml", []byte(joinedLab+"workloads: [{name: w, operation: read, from: a, to: b, size: all, count: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := got.Workloads[0]
	if len(w.Sizes) != 23 || w.Sizes[0] != 2 || w.Sizes[22] != 8<<20 || w.Size != 8<<20 || w.Mixed {
		t.Errorf("%+v", w)
	}
}

// The cost of many nodes and names is bounded.
func TestManyPartners(t *testing.T) {
	star := func(hosts int) string {
		var nodes, links strings.Builder
		for i := range hosts {
			fmt.Fprintf(&nodes, "n%d: , ", i)
			fmt.Fprintf(&links, "{endpoints: [n%d:e, s:e%d]}, ", i, i)
		}
		return "topology:\n  nodes: {" + nodes.String() + "s: {kind: switch}}\n  links: [" + links.String() + "]\n"
	}
	for _, test := range manyPartners {
		_, err := Parse("f.yaml", []byte(star(test.hosts)+"workloads: ["+test.workloads+"]\n"))
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%d hosts: got %v\nwant %s", test.hosts, err, test.want)
		}
	}
}

var manyPartners = []struct {
	hosts     int
	workloads string
	want      string
}{
	{256, "{name: w, operation: send, pattern: all-to-all, nodes: '*', size: 1B, count: 1}", ""},
	{256, "{name: w, operation: send, pattern: all-to-all, nodes: '*', size: 1B, count: 1}, {name: x, operation: exec, nodes: '*', command: x}, {name: y, operation: exec, nodes: '*', command: x}, {name: z, operation: exec, nodes: '*', command: x}",
		"f.yaml:4:180: the workloads have more than 65536 flows with this one, expected fewer"},
	{1000, "{name: w, operation: exec, command: x, nodes: [&x '*'" + strings.Repeat(",*x", 17000) + "]}",
		"f.yaml:4:60: the file has too many lists of names and patterns, expected fewer or shorter ones"},
}
