package topology

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"

	"gopkg.in/yaml.v3"
)

// This file is the keys of the baseline.

type baselineMap struct {
	at        *yaml.Node
	file      val[string]
	tolerance val[float64]
	metrics   val[[]Metric]
	workloads val[[]val[string]]
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
		what: "the baseline", noun: "baseline", def: "baseline", required: []string{"file"},
		keys: []key[baselineMap]{
			one("file", anyText, func(m *baselineMap) *val[string] { return &m.file }, "the report, as `ndklab run -o json` prints it; a relative path is from the topology's folder"),
			one("tolerance", probability, func(m *baselineMap) *val[float64] { return &m.tolerance }, "by which a metric may be worse").orElse(FormatPercent(defaultBaselineTolerance)),
			one("metrics", metricList, func(m *baselineMap) *val[[]Metric] { return &m.metrics }, "which: `throughput`, `message_rate`, `connect_rate`, any `latency_`, `recovered`, `fairness`").orElse("`throughput` and `latency_p99`"),
			one("workloads", nameList, func(m *baselineMap) *val[[]val[string]] { return &m.workloads }, "whose, by name or by patterns").orElse("all that both have"),
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

var baselineForm = mapOf(baselineTable, func(_ *reader, n *yaml.Node, m *baselineMap) *baselineMap {
	m.at = n
	return m
})

// baseline reads the file of a baseline, so that what is wrong with it is said with a
// line. What is in it is for others to know.
func (r *reader) baseline(m *baselineMap, t *Topology) *Baseline {
	if m == nil {
		return nil
	}
	b := &Baseline{Tolerance: m.tolerance.orElse(defaultBaselineTolerance), Metrics: m.metrics.is, Place: Place{r.file, m.at.Line, m.at.Column}}
	known, names := t.workloadsByName()
	b.Workloads, _ = r.named(m.workloads.is, "workload", names, func(v val[string]) bool {
		if known[v.is] == nil {
			r.errorf(v.at, "no workload has the name %s, %s", quote(v.is), r.expectation(v.is, names))
		}
		return known[v.is] != nil
	})
	if m.file.ok {
		b.File, b.Content = r.report(m.file)
	}
	return b
}

// report is the path and the content of a file that is an earlier run's report.
func (r *reader) report(v val[string]) (path string, content []byte) {
	path = v.is
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.file), path)
	}
	if r.Read == nil {
		r.errorf(v.at, "files are not read here, expected no baseline")
		return path, nil
	}
	content, err := r.Read(path)
	switch {
	case err != nil:
		r.errorf(v.at, "no baseline: %v; expected a report, which \"ndklab run -o json\" makes", err)
	case len(content) > MaxSize:
		r.errorf(v.at, "%s has more than %d bytes (4 MiB), expected no more", path, MaxSize)
	case !json.Valid(content):
		r.errorf(v.at, "%s is no JSON, expected a report, which \"ndklab run -o json\" makes", path)
	default:
		return path, content
	}
	return path, nil
}
