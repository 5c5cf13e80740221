package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/bench/internal/statistics"
)

// Directions of figures.
const (
	higher = "higher"
	lower  = "lower"
)

// A figure describes what the data path is to reach, in terms of what probes measure.
type figure struct {
	name   string
	unit   string
	better string // higher or lower
	value  string // of ndklab
	// references has the divisors of value, of which the one with the best median is
	// taken. None: the goal is of the value itself.
	references []reference
	goal       float64 // 0: none, the figure is for information
}

// A reference is a value of a peer, or of ndklab itself, and what it is.
type reference struct{ value, name string }

// References of figures.
var (
	floorReference     = reference{"floor-crc-copy", "UDP GSO/GRO with CRC32 and copy"}
	floorMiBReference  = reference{"floor-crc-copy-1MiB", "UDP GSO/GRO with CRC32 and copy"}
	tagReference       = reference{"ucx-tag-bw", "ucx_perftest tag_bw over TCP"}
	putReference       = reference{"ucx-put-bw", "ucx_perftest ucp_put_bw over TCP"}
	iperfReference     = reference{"iperf3", "iperf3 over TCP"}
	ucxRateReference   = reference{"ucx-rate-64B messages", "ucx_perftest tag_bw over TCP"}
	udpPollReferences  = []reference{{"udp-poll", "UDP ping-pong, polling"}, {"sockperf-poll", "sockperf, polling"}}
	udpBlockReferences = []reference{{"udp-block", "UDP ping-pong, blocking"}, {"sockperf-block", "sockperf, blocking"}}
)

// figures returns all figures, in the order of the table.
func figures() []figure {
	all := []figure{}
	for _, op := range []string{"write", "read"} {
		all = append(all,
			figure{op + "-64KiB/floor", "Gb/s", higher, op + "-64KiB", []reference{floorReference}, 0.8},
			figure{op + "-1MiB/floor", "Gb/s", higher, op + "-1MiB", []reference{floorMiBReference}, 0.9},
			figure{op + "-64KiB/ucx-tag", "Gb/s", higher, op + "-64KiB", []reference{tagReference}, 1},
			figure{op + "-64KiB/ucx-put", "Gb/s", higher, op + "-64KiB", []reference{putReference}, 2},
			figure{op + "-64KiB/iperf3", "Gb/s", higher, op + "-64KiB", []reference{iperfReference}, 1.7})
	}
	for _, floor := range [][2]string{{"floor-plain", "UDP GSO/GRO"}, {"floor-crc", "UDP GSO/GRO with CRC32"}, {"floor-copy", "UDP GSO/GRO with copy"}, {"floor-blocking", "UDP GSO/GRO with CRC32 and copy, blocking"}} {
		all = append(all, figure{"write-64KiB/" + floor[0], "Gb/s", higher, "write-64KiB", []reference{{floor[0], floor[1]}}, 0})
	}
	all = append(all,
		figure{"send-64KiB/write", "Gb/s", higher, "send-64KiB", []reference{{"write-64KiB", "WRITE"}}, 0.9},
		figure{"send-1MiB/write", "Gb/s", higher, "send-1MiB", []reference{{"write-1MiB", "WRITE"}}, 0.9},

		figure{"lat-poll/ucx", "us", lower, "lat-poll", []reference{{"ucx-tag-lat latency", "ucx_perftest tag_lat over TCP"}}, 1},
		figure{"lat-poll/fi", "us", lower, "lat-poll", []reference{{"fi_pingpong", "fi_pingpong over TCP"}}, 1},
		figure{"lat-poll/udp", "us", lower, "lat-poll", udpPollReferences, 1.4},
		figure{"lat-poll-p99.9/udp", "us", lower, "lat-poll p99.9", suffixed(udpPollReferences, " p99.9"), 0},
		figure{"lat-poll-gc", "us", lower, "lat-poll gc", []reference{{"lat-poll p99.9", "p99.9 of the same"}}, 1},
		figure{"lat-event/udp", "us", lower, "lat-event", udpBlockReferences, 1.2},
		figure{"lat-event-p99.9/udp", "us", lower, "lat-event p99.9", suffixed(udpBlockReferences, " p99.9"), 0},

		figure{"rate-64B", "million/s", higher, "rate-64B messages", nil, 1.5},
		figure{"rate-64B/ucx", "million/s", higher, "rate-64B messages", []reference{ucxRateReference}, 4},
		figure{"rate-64B-poll/ucx", "million/s", higher, "rate-64B-poll messages", []reference{ucxRateReference}, 0})
	for _, n := range crowds {
		all = append(all, figure{fmt.Sprintf("qps-%d", n), "Gb/s", higher, fmt.Sprintf("write-64KiB-qps-%d", n), []reference{{"write-64KiB", "one queue pair"}}, 0.8})
	}
	return append(all,
		figure{"idle-memory", "bytes", lower, "idle bytes", nil, 4096},
		figure{"idle-processors", "processors", lower, "idle processors", nil, idleLimit},
		figure{"post-depth", "ns", lower, "post most", []reference{{"post least", "the depth where it is least"}}, 1.2},
		figure{"linkem-10gbit", "Gb/s", higher, "linkem", []reference{{"linkem capacity", "payload that 10 gbit carry"}}, 0.95},
		figure{"all-to-all", "Gb/s", higher, "all-to-all", []reference{{"write-64KiB", "one pair"}}, 0.7},
		figure{"all-to-all-fairness", "", higher, "all-to-all fairness", nil, 0.95})
}

// idleLimit bounds the share of a processor that 10,000 idle connections may use at an
// end: as much as the runtime's own timers take.
const idleLimit = 0.001

func suffixed(references []reference, suffix string) []reference {
	all := slices.Clone(references)
	for i := range all {
		all[i].value += suffix
	}
	return all
}

// probeOf returns the name of the probe that measures a value: such as "lat-poll" of
// "lat-poll p99.9".
func probeOf(value string) string {
	name, _, _ := strings.Cut(value, " ")
	return name
}

// needs returns the probes that the figure is made of.
func (f *figure) needs() []string {
	names := []string{probeOf(f.value)}
	for _, r := range f.references {
		names = append(names, probeOf(r.value))
	}
	return names
}

// A Figure is a figure that was measured, as the JSON file has it. An absent value is
// null.
type Figure struct {
	Name          string   `json:"name"`
	Unit          string   `json:"unit"`
	Better        string   `json:"better"` // higher or lower
	Ndklab        *float64 `json:"ndklab"` // median of the rounds
	Reference     *float64 `json:"reference"`
	ReferenceName string   `json:"reference_name,omitempty"`
	Ratio         *float64 `json:"ratio"` // ndklab / reference: see ratioOf
	// Goal is of the ratio or, without a reference, of ndklab: what it is at least, if
	// higher is better, or at most. null: the figure is for information.
	Goal            *float64 `json:"goal"`
	Met             *bool    `json:"met"`
	NdklabSpread    *Spread  `json:"ndklab_spread"`
	ReferenceSpread *Spread  `json:"reference_spread"`
	// Lacks says why something of it is absent.
	Lacks string `json:"lacks,omitempty"`
}

// of makes the figure of what was measured; lacks says why a probe's values are
// absent.
func (f *figure) of(values map[string][]float64, lacks map[string]string) Figure {
	out := Figure{Name: f.name, Unit: f.unit, Better: f.better, Goal: some(f.goal, f.goal != 0)}
	mine := values[f.value]
	if len(mine) == 0 {
		out.Lacks = lacks[probeOf(f.value)]
		return out
	}
	ndklab := statistics.Median(mine)
	out.Ndklab, out.NdklabSpread = &ndklab, spreadOf(mine)
	held := ndklab
	if len(f.references) > 0 {
		best, why := f.best(values, lacks)
		if best == nil {
			out.Lacks = why
			return out
		}
		theirs := statistics.Median(values[best.value])
		held = ratioOf(mine, values[best.value])
		out.Reference, out.ReferenceName, out.ReferenceSpread, out.Ratio = &theirs, best.name, spreadOf(values[best.value]), &held
	}
	if f.goal != 0 {
		met := held >= f.goal
		if f.better == lower {
			met = held <= f.goal
		}
		out.Met = &met
	}
	return out
}

// ratioOf returns the median of the rounds' ratios: a machine that is slow for a while is so for both, and medians by themselves may
// be of different times. Where the two were not measured equally often it is the ratio of their medians.
func ratioOf(mine, theirs []float64) float64 {
	if len(mine) != len(theirs) {
		return statistics.Median(mine) / statistics.Median(theirs)
	}
	ratios := make([]float64, len(mine))
	for i := range mine {
		ratios[i] = mine[i] / theirs[i]
	}
	return statistics.Median(ratios)
}

// best returns the reference with the best median of those that there are; nil and why if
// there is none.
func (f *figure) best(values map[string][]float64, lacks map[string]string) (best *reference, why string) {
	for i := range f.references {
		r := &f.references[i]
		if len(values[r.value]) == 0 {
			why = lacks[probeOf(r.value)]
			continue
		}
		if best == nil || (statistics.Median(values[r.value]) > statistics.Median(values[best.value])) == (f.better == higher) {
			best = r
		}
	}
	return best, why
}

func some(v float64, there bool) *float64 {
	if !there {
		return nil
	}
	return &v
}
