// Package metrics translates what a monitor observes of a lab (report.Observation) into families of
// Prometheus metrics.
//
// Counters of adapters have the names, units and labels of node_exporter's InfiniBand collector
// (node_infiniband_*), also of its counters of mlx5, so that dashboards for clusters work for labs.
// Names of other metrics begin with ndklab_. All metrics have the label lab. Units are those of
// Prometheus: seconds, bytes, and ratios from 0 to 1.
//
// The package does no I/O, and is linked by the program ndklab-monitor alone: the libraries of
// Prometheus would make the start of each process of a lab longer.
//
// Start reading at Families. Each file has the metrics of one noun in a table, of which Catalogue is
// the sum.
package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	dto "github.com/prometheus/client_model/go"
)

// A Metric describes a family of metrics.
type Metric struct {
	Name   string
	Type   Type
	Unit   string // of the values: seconds, bytes, packets ...
	Labels []string
	Help   string // what it counts or measures, as one sentence without its full stop
}

// A Type is a type of metrics.
type Type = dto.MetricType

// The types that there are here.
const (
	Counter   = dto.MetricType_COUNTER
	Gauge     = dto.MetricType_GAUGE
	Histogram = dto.MetricType_HISTOGRAM
)

// Catalogue describes all families that Families may return, in the order of their names.
func Catalogue() []Metric {
	all := slices.Concat(described(labRows), described(nodeRows), described(adapterRows), described(linkRows), described(workloadRows))
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Families returns the metrics of a lab, in the order of their names. took is the time that it took to
// observe the lab. A family of which there is nothing is left out.
func Families(o *report.Observation, took time.Duration) []*dto.MetricFamily {
	lab := pair("lab", o.Lab)
	var all []*dto.MetricFamily
	all = collect(all, labRows, []subject[labTaken]{{labTaken{o, took}, []*dto.LabelPair{lab}}})
	all = collect(all, nodeRows, nodesOf(o, lab))
	all = collect(all, adapterRows, adaptersOf(o, lab))
	all = collect(all, linkRows, directionsOf(o, lab))
	all = collect(all, workloadRows, workloadsOf(o, lab))
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// A subject is something that metrics are about, with the labels that all of these have.
type subject[T any] struct {
	of     T
	labels []*dto.LabelPair
}

// A row is a family of metrics about subjects of a kind, and how to get the values. One of the
// functions is set.
type row[T any] struct {
	Metric
	// value returns the value; false if there is none, or it is not known.
	value func(of T) (float64, bool)
	// values calls put for each value, with the labels that come after the subject's.
	values func(of T, put func(value float64, labels ...*dto.LabelPair))
	// bars returns the buckets of a histogram by Bounds; nil if there are none.
	bars func(of T) *histogram.Bars
}

// described returns the descriptions of rows.
func described[T any](rows []row[T]) (all []Metric) {
	for i := range rows {
		all = append(all, rows[i].Metric)
	}
	return all
}

// collect adds the families of rows about subjects.
func collect[T any](all []*dto.MetricFamily, rows []row[T], subjects []subject[T]) []*dto.MetricFamily {
	for i := range rows {
		r := &rows[i]
		f := &dto.MetricFamily{Name: &r.Name, Help: &r.Help, Type: r.Type.Enum(), Metric: make([]*dto.Metric, 0, len(subjects))}
		for j := range subjects {
			s := &subjects[j]
			switch {
			case r.value != nil:
				if v, ok := r.value(s.of); ok {
					f.Metric = append(f.Metric, r.metric(v, s.labels))
				}
			case r.values != nil:
				r.values(s.of, func(v float64, more ...*dto.LabelPair) {
					f.Metric = append(f.Metric, r.metric(v, slices.Concat(s.labels, more)))
				})
			default:
				if b := r.bars(s.of); b != nil {
					f.Metric = append(f.Metric, &dto.Metric{Label: s.labels, Histogram: histogramOf(b)})
				}
			}
		}
		if len(f.Metric) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// metric returns a metric of the row's family.
func (r *row[T]) metric(value float64, labels []*dto.LabelPair) *dto.Metric {
	if r.Type == Counter {
		return &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &value}}
	}
	return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}}
}

// Bounds are the upper bounds of the buckets of histograms, in nanoseconds: from what a link of
// a laptop takes to what a link around the world and a workload that waits do.
func Bounds() []int64 { return slices.Clone(bounds) }

var bounds = []int64{
	10e3, 25e3, 50e3, 100e3, 250e3, 500e3, 1e6, 2.5e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9, 2.5e9,
}

// upperBounds are Bounds in seconds.
var upperBounds = func() []float64 {
	all := make([]float64, len(bounds))
	for i, b := range bounds {
		all[i] = float64(b) / 1e9
	}
	return all
}()

// histogramOf returns the histogram of durations in nanoseconds, in seconds.
func histogramOf(b *histogram.Bars) *dto.Histogram {
	sum := b.Sum / 1e9
	h := &dto.Histogram{SampleCount: &b.Count, SampleSum: &sum, Bucket: make([]*dto.Bucket, len(bounds))}
	buckets := make([]dto.Bucket, len(bounds))
	for i := range buckets {
		buckets[i].UpperBound, buckets[i].CumulativeCount = &upperBounds[i], &b.UpTo[i]
		h.Bucket[i] = &buckets[i]
	}
	return h
}

// pair returns a label.
func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// labelled returns a label for each value of a set that is known.
func labelled(name string, values ...string) []*dto.LabelPair {
	all := make([]*dto.LabelPair, len(values))
	for i, value := range values {
		all[i] = pair(name, value)
	}
	return all
}

// known returns a value that may not be known.
func known[N uint64 | float64](value *N) (float64, bool) {
	if value == nil {
		return 0, false
	}
	return float64(*value), true
}

// truth returns 1 for true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
