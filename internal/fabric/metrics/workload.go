package metrics

import (
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	dto "github.com/prometheus/client_model/go"
)

// workloadsOf returns the workloads whose clients run in nodes of a lab, by node.
func workloadsOf(o *report.Observation, lab *dto.LabelPair) (all []subject[*report.ObservedWorkload]) {
	names := map[string]*dto.LabelPair{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for j := range n.Workloads {
			w := &n.Workloads[j]
			if names[w.Name] == nil {
				names[w.Name] = pair("workload", w.Name)
			}
			all = append(all, subject[*report.ObservedWorkload]{w, []*dto.LabelPair{lab, pair("node", n.Name), names[w.Name]}})
		}
	}
	return all
}

var workloadLabels = []string{"lab", "node", "workload"}

var workloadRows = []row[*report.ObservedWorkload]{
	workload("ndklab_workload_clients", Gauge, "clients", "Clients of the workload that run in the node", func(w *report.ObservedWorkload) float64 { return float64(w.Clients) }),
	workload("ndklab_workload_messages_total", Counter, "messages", "Messages of those clients that have completed, also while warming up", func(w *report.ObservedWorkload) float64 { return float64(w.Messages) }),
	workload("ndklab_workload_bytes_total", Counter, "bytes", "Payload of those messages", func(w *report.ObservedWorkload) float64 { return float64(w.Bytes) }),
	workload("ndklab_workload_errors_total", Counter, "errors", "Failures that those clients have met", func(w *report.ObservedWorkload) float64 { return float64(w.Errors) }),
	{
		Metric: Metric{"ndklab_workload_latency_seconds", Histogram, "seconds", workloadLabels,
			"How long messages of those clients took from post to completion, or half of a round trip if the workload measures latency; not while warming up"},
		bars: func(w *report.ObservedWorkload) *histogram.Bars {
			if w.Latency.Count == 0 {
				return nil
			}
			return &w.Latency
		},
	},
}

// workload is a row of workloads, which are there while their clients run.
func workload(name string, kind Type, unit, help string, value func(*report.ObservedWorkload) float64) row[*report.ObservedWorkload] {
	return row[*report.ObservedWorkload]{
		Metric: Metric{name, kind, unit, workloadLabels, help},
		value:  func(w *report.ObservedWorkload) (float64, bool) { return value(w), true },
	}
}
