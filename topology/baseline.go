package topology

import (
	"encoding/json"
	"slices"
	"sync"

	"gopkg.in/yaml.v3"
)

// This file is the keys of the baseline.

// A baselineMap is a baseline, with the words for its workloads.
type baselineMap struct {
	Baseline
	workloads []val[string]
}

const defaultBaselineTolerance = 0.1

// baselineMetrics are those of workloads that can be better or worse.
func baselineMetrics() []Metric {
	var all []Metric
	for _, m := range workloadMetrics() {
		if !slices.Contains([]Metric{Errors, MessageCount, Connections, Reconnects}, m.metric) {
			all = append(all, m.metric)
		}
	}
	return all
}

var baselineTable = sync.OnceValue(func() *keyTable[baselineMap] {
	return &keyTable[baselineMap]{
		what: "the baseline", noun: "baseline", def: "baseline", required: []string{"file"}, initial: baselineMap{Baseline: Baseline{Tolerance: defaultBaselineTolerance}},
		keys: []key[baselineMap]{
			one("file", anyText, func(m *baselineMap) *string { return &m.File }, "the report, as `ndklab run -o json` prints it; a relative path is from the topology's folder"),
			one("tolerance", probability, func(m *baselineMap) *float64 { return &m.Tolerance }, "by which a metric may be worse").orElse(FormatPercent(defaultBaselineTolerance)),
			one("metrics", metricList, func(m *baselineMap) *[]Metric { return &m.Metrics }, "which: `throughput`, `message_rate`, `connect_rate`, any `latency_`, `recovered`, `fairness`").orElse("`throughput` and `latency_p99`"),
			one("workloads", nameList, func(m *baselineMap) *[]val[string] { return &m.workloads }, "whose, by name or by patterns").orElse("all that both have"),
		},
	}
})

// metricList is a metric that can be better or worse, or a list of them.
var metricList = form[[]Metric]{
	schema: func() schema { return oneOrList(oneWord(texts(baselineMetrics())...), 1<<30) },
	read: func(r *reader, n *yaml.Node) (all []Metric) {
		for _, name := range nameList.of(r, n).is {
			all = append(all, manyWords(baselineMetrics).of(r, name.at).is)
		}
		return all
	},
}

// baseline reads the file of a baseline, so that an error in it is told with a line.
// The contents are for others to interpret.
func baseline(r *reader, m *mapping[baselineMap], t *Topology) *Baseline {
	if m == nil {
		return nil
	}
	b := m.is.Baseline
	b.Place = m.where()
	known, names := t.workloadsByName()
	b.Workloads, _ = r.named(m.is.workloads, "workload", names, func(v val[string]) bool {
		if known[v.is] == nil {
			r.unknown(v, "workload", names)
		}
		return known[v.is] != nil
	})
	if m.ok("file") {
		b.File, b.Content = report(r, m.word("file"))
	}
	return &b
}

// report is the path and the content of a file that is an earlier run's report.
func report(r *reader, v val[string]) (path string, content []byte) {
	path = r.path(v.is)
	content, ok := r.content(v.at, path, maxReferred, "no baseline", "no baseline: %v; expected a report, which \"ndklab run -o json\" makes")
	if ok && !json.Valid(content) {
		r.errorf(v.at, "%s is no JSON, expected a report, which \"ndklab run -o json\" makes", path)
		return path, nil
	}
	return path, content
}
