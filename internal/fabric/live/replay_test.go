package live

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/series"
)

// over is a run of two seconds: a host writes to another and reads from it over a switch, and to a third over either of two switches.
func over() *report.Run {
	r := &report.Run{Lab: "x", Seed: 3, Seconds: 2}
	for _, n := range [][2]string{{"a", "host"}, {"b", "host"}, {"c", "host"}, {"s", "switch"}, {"t", "switch"}} {
		r.Nodes = append(r.Nodes, report.Node{NodeState: report.NodeState{Name: n[0], State: "ready"}, Kind: n[1]})
	}
	for _, l := range [][2]string{{"a:0", "s:a"}, {"s:b", "b:0"}, {"a:1", "t:a"}, {"c:0", "s:c"}, {"c:1", "t:c"}} {
		r.Links = append(r.Links, report.Link{Endpoints: l, State: "up", Directions: [2]report.Direction{{Settings: []string{"rate=1gbit"}, Set: &report.Quality{RateGbps: new(1.0)}}, {}}})
	}
	piece := func(at, seconds float64, messages, bytes uint64, p50 float64) report.Sample {
		return report.Sample{At: at, Seconds: seconds, Messages: messages, Bytes: bytes, P50: p50, P99: 2 * p50}
	}
	r.Workloads = []report.Workload{
		{Name: "write", From: "a", To: "b", Operation: "write", Series: []report.Sample{piece(0, 1, 10, 25e6, 100), piece(1, 1, 20, 50e6, 300)}},
		{Name: "read", From: "a", To: "b", Operation: "read", Series: []report.Sample{piece(0, 2, 4, 1e6, 50)}},
		{Name: "flows", Operation: "send", Bytes: 4000, Flows: []report.Flow{{From: "a", To: "c", Bytes: 3000}, {From: "b", To: "c", Bytes: 1000}}, Series: []report.Sample{piece(1, 1, 2, 4000, 0)}},
		{Name: "program", Operation: "exec"},
	}
	r.Events = []event.Event{
		{At: 1500 * time.Millisecond, Kind: event.LinkChanged, Link: "s:b", Text: "link s:b is down"},
		{At: 1600 * time.Millisecond, Kind: event.NodePaused, Node: "c", Text: "node c is paused"},
		{At: 1700 * time.Millisecond, Kind: event.LinkChanged, Link: "a:0", Text: "link a:0: rate 1gbit"},
	}
	r.Links[1].State = "down"
	r.Series = &series.Series{PeriodUS: 500e3, Points: 4, Queues: []series.QueueSeries{
		{Endpoint: "s:b", Class: 0, Bytes: []uint64{10, 20, 30, 5}}, {Endpoint: "s:b", Class: 3, Bytes: []uint64{100, 0, 0, 0}}, {Endpoint: "a:0", Class: 3, Paused: []float64{0.5, 0, 0, 1}},
	}, Watched: &series.Series{PeriodUS: 400e3, Points: 4,
		Pairs: []series.PairSeries{{Node: "b", Peer: "a", QP: 9, BPS: []uint64{4, 3, 2, 1}, Target: []uint64{8, 8, 8, 8}, Window: []uint64{0, 0, 50, 60}, CNPs: []uint64{0, 0, 2, 2}, Retransmitted: []uint64{1, 1, 4, 0}}, {Node: "gone", QP: 1}},
		Links: []series.DirectionSeries{{From: "b:0", Dropped: []uint64{0, 0, 6, 0}, Lost: []uint64{0, 0, 0, 8}}, {From: "gone:0"}},
	}}
	return r
}

func TestReplay(t *testing.T) {
	replay := ReplayOf(over())
	m := replay.Map
	if !m.Replay || m.Runs != 1 || m.Lab != "x" || m.Seed != 3 || len(m.Nodes) != 5 || len(m.Links) != 5 || m.Width == 0 {
		t.Errorf("%+v", m)
	}
	wantFlows := []Flow{{"write", 0, 1, []Hop{{0, 0}, {1, 0}}, false}, {"read", 0, 1, []Hop{{0, 0}, {1, 0}}, false},
		{"flows", 0, 2, []Hop{{0, 0}, {3, 1}}, true}, {"flows", 1, 2, []Hop{{1, 1}, {3, 1}}, false}}
	if diff := cmp.Diff(wantFlows, m.Flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	set := []string{"rate=1gbit"}
	zero := new(0.0)
	want := []*Sample{
		{At: 1, Over: 1, State: "ready",
			Nodes: []NodeSample{{State: "ready", Out: 200e6, In: 4e6, Paused: 0.25}, {State: "ready", Out: 4e6, In: 200e6, Resent: 4, CNPs: 1, Pairs: []PairSample{{9, "a", 2, 8, 50, 1, 4}}}, {State: "ready"}, {State: "ready"}, {State: "ready"}},
			Links: []LinkSample{
				{Up: true, Ends: [2]DirectionSample{{Rate: 200e6, Load: new(0.2), Queue: zero, Pauses: []PauseSample{{3, 0.25}}}, {Rate: 4e6}}},
				{Up: true, Ends: [2]DirectionSample{{Rate: 200e6, Load: new(0.2), Queue: new(110.0)}, {Rate: 4e6, Dropped: 3}}},
				{Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {}}}, {Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {}}}, {Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {}}},
			},
			Workloads: []WorkloadSample{{Name: "write", Rate: 200e6, Messages: 10, P50: new(100.0), P99: new(200.0)}, {Name: "read", Rate: 4e6, Messages: 2, P50: new(50.0), P99: new(100.0)}}},
		{At: 2, Over: 1, State: "ready",
			Nodes: []NodeSample{{State: "ready", Out: 400e6 + 24000, In: 4e6, Paused: 0.5}, {State: "ready", Out: 4e6 + 8000, In: 400e6, Resent: 2, CNPs: 3, Pairs: []PairSample{{9, "a", 1, 8, 60, 3, 2}}}, {State: "paused", In: 32000}, {State: "ready"}, {State: "ready"}},
			Links: []LinkSample{
				{Up: true, Ends: [2]DirectionSample{{Rate: 400e6, Load: new(0.4), Queue: zero, Set: set, Pauses: []PauseSample{{3, 0.5}}}, {Rate: 4e6}}},
				{Up: false, Ends: [2]DirectionSample{{Rate: 400e6, Load: new(0.4), Queue: new(30.0), Set: set}, {Rate: 4e6 + 8000, Dropped: 3, Lost: 8}}},
				{Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {}}}, {Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {Rate: 8000}}}, {Up: true, Ends: [2]DirectionSample{{Load: zero, Set: set}, {}}},
			},
			Workloads: []WorkloadSample{{Name: "write", Rate: 400e6, Messages: 20, P50: new(300.0), P99: new(600.0)}, {Name: "read", Rate: 4e6, Messages: 2, P50: new(50.0), P99: new(100.0)},
				{Name: "flows", Rate: 32000, Messages: 2, P50: zero, P99: zero}}},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) })
	if diff := cmp.Diff(want, replay.Samples, near); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(over().Events, replay.Events); diff != "" {
		t.Errorf("events:\n%s", diff)
	}
}

// A run that is long has not more samples than a page takes, and one of which nothing is known over time has some.
func TestReplaySamples(t *testing.T) {
	for _, c := range []struct {
		seconds, piece float64
		want           int
	}{{1e6, 0.1, mostSamples}, {5.03, 0.1, 51}, {3, 0, leastSamples}, {0, 0, 1}, {0, 0.1, 1}} {
		r := &report.Run{Seconds: c.seconds}
		if c.piece > 0 {
			r.Workloads = []report.Workload{{Name: "w", From: "a", To: "b", Series: []report.Sample{{Seconds: c.piece}, {Seconds: c.piece / 7}}}}
		}
		s := ReplayOf(r).Samples
		if len(s) != c.want {
			t.Errorf("%g s in pieces of %g s: %d samples, want %d", c.seconds, c.piece, len(s), c.want)
		}
		if last := s[len(s)-1]; last.At < c.seconds || last.Over <= 0 {
			t.Errorf("the last sample is at %g of %g s, over %g", last.At, c.seconds, last.Over)
		}
	}
}
