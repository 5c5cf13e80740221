package scenario

import (
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Every metric of a link's direction is held against its bound. Lost packets count like
// dropped ones.
func TestLinkMetrics(t *testing.T) {
	topo := hosts(2)
	r := &report.Run{Links: []report.Link{{
		Endpoints: [2]string{"n0:eth0", "n1:eth0"}, Engine: "linkem",
		Directions: [2]report.Direction{{
			Packets: 1000, Dropped: 20, Lost: 30, Overruns: make([]report.Overrun, 2),
			Achieved: report.Quality{RateGbps: ref(0.75), DelayUS: ref(1500.0)},
			Delays:   []report.Delays{{FromUS: 1000, Packets: 900}, {FromUS: 1100, Packets: 80}, {FromUS: 1200, Packets: 15}, {FromUS: 1300, Packets: 5}},
		}},
	}}}
	for _, tt := range []struct {
		metric topology.Metric
		got    string
	}{
		{topology.LinkDropped, "50"},
		{topology.LinkLoss, "5%"},
		{topology.LinkOverruns, "2"},
		{topology.LinkRate, "750mbit"},
		{topology.LinkDelay, "1.5ms"},
		{topology.LinkDelayP99, "1.3ms"}, // the end of the bar with the 990th of 1000
	} {
		topo.Checks = []topology.Check{{OfLink: true, From: "n0", Bounds: []topology.Bound{{Metric: tt.metric, Relation: ">=", Value: 1e-9}}}}
		if got := judge(topo, r, nil)[0]; got.Got != tt.got+" from n0:eth0" || !got.Passed {
			t.Errorf("%s: %+v", tt.metric, got)
		}
	}
}

// A percentile is as exact as the histogram: the end of the bar, and of the last one its
// beginning.
func TestDelayPercentile(t *testing.T) {
	bars := []report.Delays{{FromUS: 10, Packets: 98}, {FromUS: 20, Packets: 1}, {FromUS: 30, Packets: 1}}
	for _, tt := range []struct{ fraction, us float64 }{{0.5, 20}, {0.98, 20}, {0.99, 30}, {1, 30}} {
		if us, known := delayPercentile(bars, tt.fraction); us != tt.us || !known {
			t.Errorf("%v: %v us, known: %v, want %v", tt.fraction, us, known, tt.us)
		}
	}
	if _, known := delayPercentile([]report.Delays{{FromUS: 10}}, 0.5); known {
		t.Error("a percentile of nothing is known")
	}
}
