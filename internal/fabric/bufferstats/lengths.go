package bufferstats

import (
	"time"

	"github.com/ndklab/ndklab/internal/histogram"
)

// A Lengths is the lengths of a queue, weighted by time, from its first packet to its last.
type Lengths struct {
	since   time.Duration
	bytes   int64
	weights *histogram.Histogram // nanoseconds by bytes; nil: nothing ever waited
}

// lengthPrecision has lengths of queues told apart that differ by a hundredth.
const lengthPrecision = 6

// Observe takes note of a queue's length from now on.
func (l *Lengths) Observe(now time.Duration, bytes int64) {
	if bytes == 0 && l.bytes == 0 {
		return // how long it is empty counts once a packet follows
	}
	if l.weights == nil {
		l.weights, l.since = histogram.New(lengthPrecision), now
	}
	if now > l.since {
		l.weights.Record(l.bytes, uint64(now-l.since))
	}
	l.since, l.bytes = now, bytes
}

// Percentile returns the length that the queue had at most in a share of the time.
func (l *Lengths) Percentile(share float64) uint64 {
	if l.weights == nil || l.weights.Count() == 0 {
		return 0
	}
	rank := max(1, uint64(share*float64(l.weights.Count())))
	return uint64(l.weights.Highest(l.weights.Ranked(rank)))
}
