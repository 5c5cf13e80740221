package live

import (
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
)

// observed is a node that has counted, and clients of a workload in it.
func observed(name string, counters, transport map[string]uint64, workloads ...report.ObservedWorkload) report.ObservedNode {
	n := report.ObservedNode{Node: report.Node{NodeState: report.NodeState{Name: name, State: "ready"}, Kind: "host", Counters: counters, Transport: transport}, Workloads: workloads}
	if counters != nil {
		n.InUse = &provider.Usage{Qps: 3}
	}
	return n
}

// took is a histogram of durations in microseconds.
func took(values ...int64) histogram.Bars {
	h := histogram.New(12)
	for _, v := range values {
		h.Record(v*1000, 1)
	}
	return h.Bars(Bounds())
}

// A sample has what has been counted since the one before, by the fabric's time.
func TestRecord(t *testing.T) {
	gigabit := 1.0
	link := func(packets, bytes, dropped, lost, cut uint64, settings []string, delays histogram.Bars) report.Link {
		return report.Link{Endpoints: [2]string{"a:eth0", "b:eth0"}, State: "up", Directions: [2]report.Direction{
			{Packets: packets, Bytes: bytes, Dropped: dropped, Lost: lost, LostBy: report.LostBy{Cut: cut}, Marked: packets / 10, QueuePeak: new(uint64(900)),
				Set: &report.Quality{RateGbps: &gigabit}, Settings: settings, DelayBars: &delays},
			{},
		}}
	}
	r := NewRecorder(10)
	first := r.Record(&report.Observation{State: "ready", Up: 100, Nodes: []report.ObservedNode{
		observed("a", map[string]uint64{"RDMAOutOctets": 1000, "RDMAOutFrames": 10, "ActiveConnection": 2}, map[string]uint64{"retransmitted": 1},
			report.ObservedWorkload{Name: "w", Messages: 5, Bytes: 5000, Latency: took(10, 10)}),
		observed("b", nil, nil),
	}, Links: []report.Link{link(10, 1000, 0, 0, 0, []string{"rate=1gbit"}, took(50))}})
	if diff := cmp.Diff(&Sample{At: 10, State: "ready", Nodes: []NodeSample{{State: "ready", QPs: 3, Conns: 2}, {State: "ready"}},
		Links:     []LinkSample{{Up: true, Ends: [2]DirectionSample{{Queue: new(900.0), Set: []string{"rate=1gbit"}}, {}}}},
		Workloads: []WorkloadSample{{Name: "w"}}}, first); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	// 20 s of the machine are 2 s of the fabric. b comes, which has counted before, and so does a workload.
	second := r.Record(&report.Observation{State: "ready", Up: 120, Nodes: []report.ObservedNode{
		observed("b", map[string]uint64{"RDMAOutOctets": 9000}, nil),
		observed("a", map[string]uint64{"RDMAOutOctets": 3000, "RDMAInOctets": 500, "RDMAOutFrames": 20, "RDMAInFrames": 4, "CQError": 1, "ConnectFailure": 2, "ConnectionError": 1},
			map[string]uint64{"retransmitted": 5, "cnps_received": 2, "rx_prio3_pause_duration": 500_000, "rx_prio4_pause_duration": 100_000},
			report.ObservedWorkload{Name: "new", Messages: 2, Bytes: 1000},
			report.ObservedWorkload{Name: "w", Messages: 9, Bytes: 9000, Errors: 2, Latency: took(10, 10, 100, 100, 100, 1000)}),
	}, Links: []report.Link{link(110, 1000+250e6, 4, 8, 6, []string{"loss=1%", "rate=1gbit"}, took(50, 200, 200, 200))}})
	p50, p99 := *second.Workloads[1].P50, *second.Workloads[1].P99
	if p50 < 100*0.88 || p50 > 100*1.13 || p99 < 1000*0.88 || p99 > 1000*1.13 {
		t.Errorf("percentiles %g and %g, want 100 and 1000 us", p50, p99)
	}
	want := &Sample{At: 12, Over: 2, State: "ready",
		Nodes: []NodeSample{{State: "ready", QPs: 3}, {State: "ready", Out: 8000, In: 2000, Packets: 7, Resent: 2, Errors: 2, CNPs: 1, Paused: 0.3, QPs: 3}},
		Links: []LinkSample{{Up: true, Ends: [2]DirectionSample{{Rate: 1e9, Packets: 50, Dropped: 2, Lost: 4, Marked: 5, Load: new(1.0), Queue: new(900.0),
			Delay: new(200.0), Cut: true, Set: []string{"loss=1%", "rate=1gbit"}}, {}}}},
		Workloads: []WorkloadSample{{Name: "new", Node: 1, Rate: 4000, Messages: 1}, {Name: "w", Node: 1, Rate: 16000, Messages: 2, Errors: 1, P50: &p50, P99: &p99}},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) })
	if diff := cmp.Diff(want, second, near); diff != "" {
		t.Errorf("second (-want +got):\n%s", diff)
	}
	// b was started again, and a link was cut; what a has counted while it did not answer comes with its answer.
	silent := observed("a", map[string]uint64{}, map[string]uint64{}) // as one that is paused
	if s := r.Record(&report.Observation{Up: 125, Nodes: []report.ObservedNode{silent}}); s.Nodes[0].Out != 0 {
		t.Errorf("a silent node: %+v", s.Nodes[0])
	}
	r.Record(&report.Observation{Up: 130, Nodes: []report.ObservedNode{observed("a", nil, nil)}})
	third := r.Record(&report.Observation{State: "ready", Up: 140, Nodes: []report.ObservedNode{
		observed("a", map[string]uint64{"RDMAOutOctets": 3500}, nil, report.ObservedWorkload{Name: "w", Messages: 1, Bytes: 500, Latency: took(7)}),
		observed("b", map[string]uint64{"RDMAOutOctets": 70}, nil),
	}, Links: []report.Link{link(5, 500, 0, 0, 0, []string{"cut=true"}, took(3))}})
	want = &Sample{At: 14, Over: 1, State: "ready", Nodes: []NodeSample{{State: "ready", Out: 4000, QPs: 3}, {State: "ready", QPs: 3}},
		Links:     []LinkSample{{Up: true, Ends: [2]DirectionSample{{Queue: new(900.0), Cut: true, Set: []string{"cut=true"}}, {}}}},
		Workloads: []WorkloadSample{{Name: "w", Rate: 4000, Messages: 1, P50: new(7.0), P99: new(7.0)}}}
	if diff := cmp.Diff(want, third, near); diff != "" {
		t.Errorf("third (-want +got):\n%s", diff)
	}
	// Counters that went back began anew.
	fourth := r.Record(&report.Observation{State: "ready", Up: 150, Nodes: []report.ObservedNode{
		observed("a", map[string]uint64{"RDMAOutOctets": 100}, map[string]uint64{"retransmitted": 3}), observed("b", map[string]uint64{"RDMAOutOctets": 70}, nil),
	}, Links: []report.Link{link(3, 300, 0, 0, 0, nil, took(9, 9))}})
	if n, l := fourth.Nodes, fourth.Links[0].Ends[0]; n[0].Out != 800 || n[0].Resent != 3 || n[1].Out != 0 || l.Rate != 2400 || l.Packets != 3 || *l.Delay < 8.9 || *l.Delay > 9.1 {
		t.Errorf("counters that began anew: %+v, %+v", n, l)
	}
}

// A percentile is between the bounds around it, and the mean where nothing tells more.
func TestMicros(t *testing.T) {
	for _, c := range []struct {
		bars  histogram.Bars
		share float64
		want  float64
	}{
		{took(500), 0.5, 500},
		{took(500, 500, 501), 0.99, 500.333},
		{took(1e8), 0.5, 1e8}, // above all bounds
		{took(1, 1e8), 0.99, 5e7},
		{took(1, 1, 1, 1e6), 0.5, 1 * 2.0 / 3},
		{took(1, 1, 1, 1e6), 0.99, 1e6},
	} {
		got := micros(c.bars, c.share)
		if got == nil || math.Abs(*got-c.want) > 1e-3*c.want {
			t.Errorf("%v of %d values: %v, want %g", c.share, c.bars.Count, *got, c.want)
		}
	}
	if micros(histogram.Bars{}, 0.5) != nil || micros(histogram.Bars{Count: 1, UpTo: []uint64{1}}, 0.5) != nil {
		t.Error("nothing has a percentile")
	}
}

// A queue pair has its rates as they are, and what it has counted since the sample before; an end of a link how long the other one
// paused it, whether its node is a host or the link engine carries it.
func TestRecordPairs(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.9")
	state := func(qpn uint32, bps, cnps, resent uint64) report.ObservedPair {
		return report.ObservedPair{SendState: adapter.SendState{QPN: qpn, Remote: a, BPS: bps, TargetBPS: 2 * bps, Window: 3, CNPs: cnps, Retransmitted: resent}, Peer: map[bool]string{true: "b"}[qpn == 7]}
	}
	look := func(up float64, paused, byHost uint64, pairs ...report.ObservedPair) *report.Observation {
		n := observed("h", map[string]uint64{}, nil)
		n.Sending, n.Pauses = pairs, []adapter.Pause{{Interface: "eth0", Class: 3, US: paused}}
		return &report.Observation{Up: up, Nodes: []report.ObservedNode{n}, Links: []report.Link{{Endpoints: [2]string{"h:eth0", "s:p0"}, State: "up",
			Directions: [2]report.Direction{{}, {Pauses: []bufferstats.ClassPause{{Class: 4, US: byHost}}}}}}}
	}
	r := NewRecorder(1)
	r.Record(look(10, 1e6, 0, state(7, 100, 5, 50)))
	s := r.Record(look(12, 2e6, 500_000, state(7, 40, 9, 54), state(8, 10, 2, 4)))
	if diff := cmp.Diff([]PairSample{{7, "b", 40, 80, 3, 2, 2}, {8, "10.0.0.9", 10, 20, 3, 1, 2}}, s.Nodes[0].Pairs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([2]DirectionSample{{Pauses: []PauseSample{{3, 0.5}}}, {Pauses: []PauseSample{{4, 0.25}}}}, s.Links[0].Ends); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	many := make([]report.ObservedPair, mostPairs+1)
	if s := r.Record(look(13, 2e6, 0, many...)); len(s.Nodes[0].Pairs) != mostPairs {
		t.Errorf("%d queue pairs in a sample", len(s.Nodes[0].Pairs))
	}
}
