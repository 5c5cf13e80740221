package scenario

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Of the links on the way, that is told of which bounds a metric most: the slowest one for
// what is counted over time, that with the longest delay for latencies.
func TestLinkThatBoundsMost(t *testing.T) {
	topo := hosts(3) // links n0-n1, n0-n2, n1-n2
	asked := func(rate, delay float64) report.Direction {
		return report.Direction{Asked: report.Quality{RateGbps: &rate, DelayUS: &delay}}
	}
	r := &report.Run{Links: []report.Link{
		{Endpoints: [2]string{"n0:eth0", "n1:eth0"}, Directions: [2]report.Direction{asked(3, 200), asked(2, 300)}},
		{Endpoints: [2]string{"n0:eth1", "n2:eth0"}, Directions: [2]report.Direction{asked(1, 900), asked(5, 100)}},
		{Endpoints: [2]string{"n1:eth1", "n2:eth1"}, Directions: [2]report.Direction{asked(4, 400), asked(6, 500)}},
	}}
	for _, tt := range []struct {
		nodes  []string
		metric topology.Metric
		want   string
	}{
		{[]string{"n0", "n1", "n2"}, topology.Throughput, "link n0:eth1 to n2:eth0, whose rate is 1.00 Gb/s"},
		{[]string{"n0", "n1"}, topology.MessageRate, "link n1:eth0 to n0:eth0, whose rate is 2.00 Gb/s"},
		{[]string{"n0", "n1", "n2"}, topology.LatencyP99, "link n0:eth1 to n2:eth0, whose delay is 900 us"},
		{[]string{"n1", "n2"}, topology.LatencyMax, "link n2:eth1 to n1:eth1, whose delay is 500 us"},
		{[]string{"n0", "n1", "n2"}, topology.Errors, ""},
	} {
		lossy, got := linksBetween(topo, r.Links, tt.nodes, tt.metric)
		if got != tt.want || len(lossy) > 0 {
			t.Errorf("%s of %v: %q, want %q", tt.metric, tt.nodes, got, tt.want)
		}
	}
}

// Every counter that is looked for exists under that name.
func TestTroubleCounters(t *testing.T) {
	for _, name := range troubleCounters {
		if !slices.Contains(topology.Counters(), name) {
			t.Errorf("no node has a counter %s", name)
		}
	}
}
