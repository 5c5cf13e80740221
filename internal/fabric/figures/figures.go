// Package figures reads what programs that measure a network print: perftest, fio,
// ucx_perftest, qperf, the pingpongs of ibverbs-utils, and iperf3 with JSON. The text
// itself tells which program has printed it, so that a shell around the program does not
// matter.
//
// It reads text and does nothing else. Package report says what figures mean in a report.
//
// Start reading at Parse.
package figures

import (
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Figures have the measurements of a program. Those that it has not made are 0.
type Figures struct {
	Messages uint64 // completed
	Bytes    uint64 // payload of those
	// Gbps is payload, 10^9 bits per second, and MessageRate messages per second, as the
	// program has worked them out.
	Gbps        float64
	MessageRate float64
	Latency     report.Latency // as the program means it: of perftest and UCX half of a round trip
	Steps       []report.Step  // of a program that goes through several sizes, one for each
}

// A parser reads what one kind of program prints. Known is false if this is not of that
// kind, or has no figure.
type parser func(output string) (f Figures, known bool)

var parsers = []parser{perftest, fio, iperf3, ucx, qperf, pingpong}

// Parse reads the figures in what a program has printed on its standard output. Known is
// false if there are none that it knows.
func Parse(output string) (f Figures, known bool) {
	for _, parse := range parsers {
		if f, known = parse(output); known {
			return f, true
		}
	}
	return Figures{}, false
}

// Add adds what another program has measured at the same time: rates add up, and of
// latencies the slowest counts, since percentiles of two programs do not.
func (f *Figures) Add(other *Figures) {
	first := f.none()
	f.Messages += other.Messages
	f.Bytes += other.Bytes
	f.Gbps += other.Gbps
	f.MessageRate += other.MessageRate
	f.Latency = slower(f.Latency, other.Latency)
	f.Steps = append(f.Steps, other.Steps...)
	if !first { // the sizes of two programs have nothing to do with each other
		f.Steps = nil
	}
}

func (f *Figures) none() bool {
	return f.Messages == 0 && f.Bytes == 0 && f.Gbps == 0 && f.MessageRate == 0 && f.Latency == (report.Latency{}) && len(f.Steps) == 0
}

// slower returns the larger of two latencies, figure by figure, and the smaller of their minima.
func slower(a, b report.Latency) report.Latency {
	least := min(a.Min, b.Min)
	if least == 0 { // one of them has none
		least = max(a.Min, b.Min)
	}
	return report.Latency{
		Min: least, Mean: max(a.Mean, b.Mean), P50: max(a.P50, b.P50), P90: max(a.P90, b.P90), P99: max(a.P99, b.P99),
		P999: max(a.P999, b.P999), P9999: max(a.P9999, b.P9999), Max: max(a.Max, b.Max),
	}
}

// numbers returns the numbers that a line's words are. Known is false if there is another word.
func numbers(words []string) (all []float64, known bool) {
	for _, word := range words {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil || n < 0 || n != n {
			return nil, false
		}
		all = append(all, n)
	}
	return all, len(all) > 0
}
