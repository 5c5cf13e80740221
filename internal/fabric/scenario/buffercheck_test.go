package scenario

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// tor1 is a buffer of which two queues dropped, the longest queue has not the highest peak, and two
// classes were paused.
func tor1() report.Buffer {
	return report.Buffer{Node: "tor1", Ports: []report.BufferPort{
		{Interface: "e0", Peer: "h:eth0", Classes: []report.BufferClass{
			{Class: 0, Packets: 9, Dropped: map[string]uint64{"shared": 2, "egress": 1}, Queue: report.QueueLength{P50: 1, P99: 2, Peak: 400 << 10}},
			{Class: 3, TxPauses: 7, TxPauseUS: 1e9},
		}},
		{Interface: "e1", Peer: "tor2:e0", Classes: []report.BufferClass{
			{Class: 3, Packets: 9, Dropped: map[string]uint64{"headroom": 4}, RxPauses: 6, RxPauseUS: 1500, Queue: report.QueueLength{P50: 100, P99: 200 << 10, Peak: 300 << 10}},
			{Class: 4, RxPauses: 1, RxPauseUS: 800},
		}},
	}}
}

// Drops are summed over ports and classes, and of the rest the worst is held against the bound.
func TestBufferMetrics(t *testing.T) {
	r := &report.Run{
		Buffers: []report.Buffer{{Node: "tor2", Ports: []report.BufferPort{{Interface: "e0", Classes: []report.BufferClass{{Dropped: map[string]uint64{"shared": 99}}}}}}, tor1()},
		Deadlocks: []report.Deadlock{
			{AtUS: 1230, Class: 3, Queues: []string{"tor1:e1", "tor2:e1"}}, {AtUS: 5000, Class: 3, Queues: []string{"tor11:e1", "tor2:e1"}},
		},
	}
	first, second := "deadlock at 1.23 ms: tor1:e1 -> tor2:e1 -> tor1:e1 (class 3)", "deadlock at 5.00 ms: tor11:e1 -> tor2:e1 -> tor11:e1 (class 3)"
	for _, tt := range []struct {
		of         string
		metric     topology.Metric
		is         float64
		got, where string
	}{
		{"tor1", topology.BufferDrops, 7, "7", "queue tor1:e0, class 0: egress 1, shared 2; queue tor1:e1, class 3: headroom 4"},
		{"tor1", topology.QueueP99, 200 << 10, "200KiB", "queue tor1:e1, class 3: 100 B at the median, 200 KiB at the 99th percentile, 300 KiB at most"},
		{"tor1", topology.QueuePeak, 400 << 10, "400KiB", "queue tor1:e0, class 0: 1 B at the median, 2 B at the 99th percentile, 400 KiB at most"},
		{"tor1", topology.PauseTime, 1.5e6, "1.5ms", "tor2:e0, which paused tor1:e1 in class 3, by 6 frames"},
		{"tor1", topology.Deadlocks, 1, "1", first},
		{"", topology.Deadlocks, 2, "2", first + "; " + second},
	} {
		judged := func(relation string) report.Check {
			topo := &topology.Topology{Checks: []topology.Check{{OfBuffer: true, Switch: tt.of, Bounds: []topology.Bound{{Metric: tt.metric, Relation: relation, Value: tt.is, Text: "as asked"}}}}}
			return judge(topo, r, nil)[0]
		}
		name := string(tt.metric)
		if tt.of != "" {
			name = tt.of + " " + name
		}
		if diff := cmp.Diff(report.Check{Name: name, Passed: true, Expected: "as asked", Got: tt.got}, judged("<=")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(report.Check{Name: name, Expected: "as asked", Got: tt.got, Where: tt.where}, judged("<")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A buffer in which nothing happened keeps bounds from above. That of a node that has not told of
// its own keeps none.
func TestBufferUntold(t *testing.T) {
	var bounds []topology.Bound
	for _, m := range []topology.Metric{topology.BufferDrops, topology.QueueP99, topology.QueuePeak, topology.PauseTime, topology.Deadlocks} {
		bounds = append(bounds, topology.Bound{Metric: m, Relation: "==", Value: 0})
	}
	topo := &topology.Topology{Checks: []topology.Check{{OfBuffer: true, Switch: "tor1", Bounds: bounds}}}
	r := &report.Run{Buffers: []report.Buffer{{Node: "tor1"}}, Nodes: []report.Node{{NodeState: report.NodeState{Name: "tor1", State: core.NodeIsDown}}}}
	for _, v := range judge(topo, r, nil) {
		if !v.Passed || v.Where != "" {
			t.Errorf("of an idle buffer: %+v", v)
		}
	}
	r.Buffers = nil
	for _, v := range judge(topo, r, nil)[:4] {
		if v.Passed || v.Got != "nothing was measured" || v.Where != "node tor1, which is down" {
			t.Errorf("of no buffer: %+v", v)
		}
	}
}
