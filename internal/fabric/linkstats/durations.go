package linkstats

import (
	"math"
	"math/bits"

	"github.com/ndklab/ndklab/internal/histogram"
)

// durations are counted in buckets whose width is 1/4096 of their value, or 1 ns.
type durations struct {
	buckets  *histogram.Histogram // nil: there was none
	min, max int64
	last     int64  // of the last ones, which are in buckets when settle was called
	more     uint64 // of that length, that are not
}

const precision = 12 // of the buckets, bits

// record counts a duration n times; a negative one counts as zero. Most are as long as the one before: those are counted
// together.
func (h *durations) record(ns int64, n uint64) {
	ns = max(ns, 0)
	if h.more > 0 && ns == h.last {
		h.more += n
		return
	}
	h.settle()
	if h.buckets == nil {
		h.buckets, h.min = histogram.New(precision), ns
	}
	h.min, h.max = min(h.min, ns), max(h.max, ns)
	h.last, h.more = ns, n
}

// settle has all durations counted in buckets.
func (h *durations) settle() {
	if h.more > 0 {
		h.buckets.Record(h.last, h.more)
		h.more = 0
	}
}

// count returns the number of durations.
func (h *durations) count() uint64 { return h.buckets.Count() + h.more }

// merge adds other durations.
func (h *durations) merge(other *durations) {
	other.settle()
	h.settle()
	if other.buckets == nil {
		return
	}
	if h.buckets == nil {
		h.buckets, h.min = histogram.New(precision), other.min
	}
	h.min, h.max = min(h.min, other.min), max(h.max, other.max)
	h.buckets.Add(other.buckets)
}

// middle is the value in the middle of a bucket.
func (h *durations) middle(bucket int) int64 {
	lowest := h.buckets.Lowest(bucket)
	return lowest + (h.buckets.Highest(bucket)-lowest+1)/2
}

// distribution sums the durations up.
func (h *durations) distribution() Distribution {
	h.settle()
	if h.buckets == nil {
		return Distribution{}
	}
	at := func(quantile float64) int64 {
		rank := max(1, uint64(math.Ceil(quantile*float64(h.buckets.Count()))))
		return min(max(h.middle(h.buckets.Ranked(rank)), h.min), h.max)
	}
	return Distribution{
		Count: h.buckets.Count(), Min: h.min, Max: h.max,
		P1: at(0.01), P10: at(0.1), P50: at(0.5), P99: at(0.99), P999: at(0.999),
	}
}

// above counts the durations longer than limit. Those in its bucket are not.
func (h *durations) above(limit int64) (n uint64) {
	h.settle()
	if h.buckets == nil {
		return 0
	}
	last := h.buckets.Index(limit)
	for bucket, count := range h.buckets.Buckets() {
		if bucket > last {
			n += count
		}
	}
	return n
}

// maxBins bounds the bins of durations that are shown.
const maxBins = 24

// bins sums the durations up for somebody to look at: in bins of the same width,
// a power of two, over the range from P1 to P999. The first and the last have the
// durations below and above that, too.
func (h *durations) bins(d *Distribution) []Bin {
	h.settle()
	if h.buckets == nil {
		return nil
	}
	shift := bits.Len64(uint64((d.P999 - d.P1) / maxBins))
	first := d.P1 >> shift
	bins := make([]Bin, d.P999>>shift-first+1)
	for i := range bins {
		bins[i].From = (first + int64(i)) << shift
	}
	for bucket, n := range h.buckets.Buckets() {
		at := h.middle(bucket)>>shift - first
		bins[min(max(at, 0), int64(len(bins)-1))].Count += n
	}
	return bins
}
