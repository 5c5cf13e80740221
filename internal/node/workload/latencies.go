package workload

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/histogram"
)

// Latencies has the times that messages took: those of a client as it goes, or those of
// several results together. The zero value is none. Not for concurrent use.
type Latencies struct {
	histogram         *histogram.Histogram // nanoseconds, to three digits; nil: none so far
	shortest, longest time.Duration        // exact
}

// longestLatency is as far as latencies are told apart; longer ones count as this.
const longestLatency = time.Minute

// The precisions of histograms which tell values apart to three digits, and to two.
const (
	threeDigits = 10
	twoDigits   = 7
)

// counted returns a latency as histograms have it.
func counted(latency time.Duration) int64 { return int64(max(1, min(latency, longestLatency))) }

// Count returns how many messages there are.
func (l *Latencies) Count() uint64 {
	if l.histogram == nil {
		return 0
	}
	return l.histogram.Count()
}

// Record takes the latency of a message.
func (l *Latencies) Record(latency time.Duration) {
	if l.histogram == nil {
		l.histogram = histogram.New(threeDigits)
	}
	l.bound(latency, latency)
	l.histogram.Record(counted(latency), 1)
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
	if l.histogram == nil {
		l.histogram = histogram.New(threeDigits)
	}
	l.bound(more.LatencyMin, more.LatencyMax)
	broken := errors.New("histogram of latencies: it is broken")
	b := more.Histogram
	if b[0] != histogramForm {
		return broken
	}
	index, last := uint64(0), uint64(l.histogram.Index(int64(longestLatency)))
	for b = b[1:]; len(b) > 0; {
		step, n := binary.Uvarint(b)
		count, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || step > last-index || count > math.MaxInt64 {
			return broken
		}
		b = b[n+m:]
		index += step
		l.histogram.Record(l.histogram.Lowest(int(index)), count)
	}
	return nil
}

// take adds other latencies, and leaves none there.
func (l *Latencies) take(more *Latencies) {
	if l.Count() == 0 {
		*l = *more
	} else if more.Count() > 0 {
		l.bound(more.shortest, more.longest)
		l.histogram.Add(more.histogram)
	}
	*more = Latencies{}
}

// Micros returns the latency, in microseconds, that a percentage of the messages took at
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
	ns := percentileOf(l.histogram, percentile)
	return float64(min(max(ns, int64(l.shortest)), int64(l.longest))) / 1e3
}

// percentileOf returns the highest value of the bucket up to which that percentage of a
// histogram's values are.
func percentileOf(h *histogram.Histogram, percentile float64) int64 {
	rank := uint64(percentile/100*float64(h.Count()) + 0.5)
	return h.Highest(h.Ranked(max(1, rank)))
}

// histogramForm begins an encoded histogram. There follow, for each bucket with
// messages, how far it is behind the one before and how many messages it has, as varints.
// The library's own form goes through a compressor, whose memory of 1.3 MiB took longer
// to come by than all else in the processes of a thousand nodes that exchange some messages.
const histogramForm = 1

// Encode returns the form of the latencies in which they leave the process.
func (l *Latencies) Encode() Latency {
	if l.Count() == 0 {
		return Latency{}
	}
	b, last := []byte{histogramForm}, 0
	for i, count := range l.histogram.Buckets() {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i-last)), count)
		last = i
	}
	return Latency{l.shortest, l.longest, b}
}
