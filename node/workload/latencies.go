package workload

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies is how long messages took: those of a client as it goes, or those of several
// results together. The zero value is none. Not for concurrent use.
type Latencies struct {
	histogram         *hdrhistogram.Histogram // nanoseconds, to three digits; nil: none so far
	shortest, longest time.Duration           // exact
}

// longestLatency is as far as latencies are told apart; longer ones count as this.
const longestLatency = time.Minute

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longestLatency), 3) }

// Count is how many messages there are.
func (l *Latencies) Count() uint64 {
	if l.histogram == nil {
		return 0
	}
	return uint64(l.histogram.TotalCount())
}

// record takes the latency of a message.
func (l *Latencies) record(latency time.Duration) {
	if l.histogram == nil {
		l.histogram = newHistogram()
	}
	l.bound(latency, latency)
	// The histogram refuses only what is out of its range.
	_ = l.histogram.RecordValue(int64(max(1, min(latency, longestLatency))))
}

// bound takes the shortest and the longest latency of messages that are then counted.
func (l *Latencies) bound(shortest, longest time.Duration) {
	if l.Count() == 0 || shortest < l.shortest {
		l.shortest = shortest
	}
	l.longest = max(l.longest, longest)
}

// Add adds the messages of a client, or of a step of its sweep.
func (l *Latencies) Add(more Latency) error {
	if len(more.Histogram) == 0 {
		return nil
	}
	histogram, err := hdrhistogram.Decode(more.Histogram)
	if err != nil {
		return fmt.Errorf("histogram of latencies: %w", err)
	}
	l.merge(&Latencies{histogram, more.LatencyMin, more.LatencyMax})
	return nil
}

// merge adds other latencies.
func (l *Latencies) merge(more *Latencies) {
	if more.Count() == 0 {
		return
	}
	if l.histogram == nil {
		l.histogram = newHistogram()
	}
	l.bound(more.shortest, more.longest)
	l.histogram.Merge(more.histogram)
}

// Micros is the latency, in microseconds, that a percentage of the messages took at
// most; 0 if there are none. 0 and 100 are exact, others to three digits.
func (l *Latencies) Micros(percentile float64) float64 {
	if l.Count() == 0 {
		return 0
	}
	switch percentile {
	case 0:
		return float64(l.shortest) / 1e3
	case 100:
		return float64(l.longest) / 1e3
	}
	// A bucket of the histogram may begin below the shortest latency and end above the
	// longest.
	ns := l.histogram.ValueAtQuantile(percentile)
	return float64(min(max(ns, int64(l.shortest)), int64(l.longest))) / 1e3
}

// encoded is the form of the latencies in which they leave the process.
func (l *Latencies) encoded() (Latency, error) {
	if l.Count() == 0 {
		return Latency{}, nil
	}
	histogram, err := l.histogram.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return Latency{}, fmt.Errorf("histogram of latencies: %w", err)
	}
	return Latency{l.shortest, l.longest, histogram}, nil
}
