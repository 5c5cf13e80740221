package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

// Record takes the latency of a message.
func (l *Latencies) Record(latency time.Duration) {
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
	if l.histogram == nil {
		l.histogram = newHistogram()
	}
	l.bound(more.LatencyMin, more.LatencyMax)
	broken := errors.New("histogram of latencies: it is broken")
	b := more.Histogram
	if b[0] != histogramForm {
		return broken
	}
	index := uint64(0)
	for b = b[1:]; len(b) > 0; {
		step, n := binary.Uvarint(b)
		count, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || step > 1<<20 || count > math.MaxInt64 {
			return broken
		}
		b = b[n+m:]
		index += step
		if err := l.histogram.RecordValues(bucketStart(index), int64(count)); err != nil {
			return fmt.Errorf("histogram of latencies: %w", err)
		}
	}
	return nil
}

// take adds other latencies, and leaves none there.
func (l *Latencies) take(more *Latencies) {
	if l.Count() == 0 {
		*l = *more
	} else if more.Count() > 0 {
		l.bound(more.shortest, more.longest)
		l.histogram.Merge(more.histogram)
	}
	*more = Latencies{}
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

// histogramForm begins an encoded histogram. There follow, for each bucket with
// messages, how far it is behind the one before and how many messages it has, as varints.
// The library's own form goes through a compressor, whose memory of 1.3 MiB took longer
// to come by than all else in the processes of a thousand nodes that exchange some messages.
const histogramForm = 1

// Encode is the form of the latencies in which they leave the process.
func (l *Latencies) Encode() Latency {
	if l.Count() == 0 {
		return Latency{}
	}
	b, last := []byte{histogramForm}, 0
	for i, count := range l.histogram.Export().Counts {
		if count > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i-last)), uint64(count))
			last = i
		}
	}
	return Latency{l.shortest, l.longest, b}
}

// bucketStart is the least value of a bucket of newHistogram's, by its index. Values up to
// 2,047 have buckets of their own; above, each doubling of the value has 1,024.
func bucketStart(index uint64) int64 {
	const half = 1 << 10
	if index < 2*half {
		return int64(index)
	}
	return int64((index%half + half) << min(index/half-1, 52))
}
