package metrics

import (
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	dto "github.com/prometheus/client_model/go"
)

// labTaken is a lab and the time that it took to observe it.
type labTaken struct {
	*report.Observation
	took time.Duration
}

// ready is Observation.State of a lab whose nodes are all ready, as package lab has it.
const ready = "ready"

var labRows = []row[labTaken]{
	{
		Metric: Metric{"ndklab_lab_info", Gauge, "", []string{"lab", "seed"}, "1, with the seed of all of the lab's randomness"},
		values: func(l labTaken, put func(float64, ...*dto.LabelPair)) {
			put(1, pair("seed", strconv.FormatUint(l.Seed, 10)))
		},
	},
	{
		Metric: Metric{"ndklab_lab_ready", Gauge, "0 or 1", []string{"lab"}, "Whether all nodes of the lab have become ready"},
		value:  func(l labTaken) (float64, bool) { return truth(l.State == ready), true },
	},
	{
		Metric: Metric{"ndklab_lab_uptime_seconds", Gauge, "seconds", []string{"lab"}, "How long ago all nodes had become ready; 0 before"},
		value:  func(l labTaken) (float64, bool) { return l.Up, true },
	},
	{
		Metric: Metric{"ndklab_scrape_duration_seconds", Gauge, "seconds", []string{"lab"}, "How long the lab took to answer this scrape"},
		value:  func(l labTaken) (float64, bool) { return l.took.Seconds(), true },
	},
}
