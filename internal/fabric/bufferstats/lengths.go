package bufferstats

import (
	"time"

	"github.com/ndklab/ndklab/internal/histogram"
)

// A Lengths is the lengths of a queue, weighted by time, from its first packet to its last.
type Lengths struct {
	since   time.Duration
	bytes   int64
	weights *weights // nil: nothing ever waited
}

// A weights has nanoseconds by bytes. Packets of a queue mostly have one length, so that the queue has few: those of late are
// counted beside the histogram.
type weights struct {
	recent    [1 << recentBits]weight
	histogram histogram.Histogram
}

// A weight counts for how long a queue had a length.
type weight struct {
	bytes int64
	ns    uint64
}

const recentBits = 3

// add counts nanoseconds.
func (w *weights) add(bytes int64, ns uint64) {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: multiples of any length are spread evenly
	r := &w.recent[uint64(bytes)*golden>>(64-recentBits)]
	if r.bytes != bytes {
		w.settle(r)
		r.bytes = bytes
	}
	r.ns += ns
}

// settle counts in the histogram what was counted beside it.
func (w *weights) settle(r *weight) {
	if r.ns > 0 {
		w.histogram.Record(r.bytes, r.ns)
		r.ns = 0
	}
}

// all returns the histogram with all that was counted.
func (w *weights) all() *histogram.Histogram {
	for i := range w.recent {
		w.settle(&w.recent[i])
	}
	return &w.histogram
}

// lengthPrecision has lengths of queues told apart that differ by a hundredth.
const lengthPrecision = 6

// Observe takes note of a queue's length from now on.
func (l *Lengths) Observe(now time.Duration, bytes int64) {
	if bytes == 0 && l.bytes == 0 {
		return // how long it is empty counts once a packet follows
	}
	l.Passed(now)
	l.bytes = bytes
}

// Passed takes note of a packet that comes and leaves at once: how long the queue is empty before it counts.
func (l *Lengths) Passed(now time.Duration) {
	if l.weights == nil {
		l.weights, l.since = &weights{histogram: *histogram.New(lengthPrecision)}, now
	}
	if now > l.since {
		l.weights.add(l.bytes, uint64(now-l.since))
	}
	l.since = now
}

// Percentile returns the length that the queue had at most in a share of the time.
func (l *Lengths) Percentile(share float64) uint64 {
	if l.weights == nil {
		return 0
	}
	all := l.weights.all()
	if all.Count() == 0 {
		return 0
	}
	rank := max(1, uint64(share*float64(all.Count())))
	return uint64(all.Highest(all.Ranked(rank)))
}
