package gauge

import (
	"math"
	"math/bits"
)

// A histogram counts durations in buckets whose width is 1/4096 of their value,
// or 1 ns. Buckets come in pages that are made when first needed: a lab may have
// thousands of directions with three histograms each, and a flat one of this
// resolution (100 ms to within 15 us) has more than a megabyte. So is the table of
// the pages, of 7 KB, by the first duration.
type histogram struct {
	pages    []*[pageLen]uint64 // nil, or pageCount
	count    uint64
	min, max int64
}

const (
	mantissas = 4096
	pageLen   = 256
	pageCount = (maxShift + 2) * mantissas / pageLen
	maxShift  = 63 - 13 // of the largest int64
)

// record counts a duration n times; a negative one counts as zero.
func (h *histogram) record(ns int64, n uint64) {
	ns = max(ns, 0)
	if h.count == 0 || ns < h.min {
		h.min = ns
	}
	h.max = max(h.max, ns)
	h.count += n
	if h.pages == nil {
		h.pages = make([]*[pageLen]uint64, pageCount)
	}
	i := bucket(ns)
	page := h.pages[i/pageLen]
	if page == nil {
		page = new([pageLen]uint64)
		h.pages[i/pageLen] = page
	}
	page[i%pageLen] += n
}

// merge adds the durations of another.
func (h *histogram) merge(other *histogram) {
	if other.count == 0 {
		return
	}
	if h.count == 0 || other.min < h.min {
		h.min = other.min
	}
	h.max = max(h.max, other.max)
	h.count += other.count
	if h.pages == nil {
		h.pages = make([]*[pageLen]uint64, pageCount)
	}
	for p, page := range other.pages {
		if page == nil {
			continue
		}
		if h.pages[p] == nil {
			h.pages[p] = new([pageLen]uint64)
		}
		for slot, n := range page {
			h.pages[p][slot] += n
		}
	}
}

// bucket numbers the buckets: those below 2*mantissas are 1 ns wide, and from
// there on every doubling has mantissas buckets.
func bucket(ns int64) int {
	shift := max(0, bits.Len64(uint64(ns))-13)
	return shift*mantissas + int(ns>>shift)
}

// middle is the value in the middle of bucket i.
func middle(i int) int64 {
	shift := max(0, i/mantissas-1)
	return int64(i-shift*mantissas)<<shift + 1<<shift>>1
}

// distribution sums the histogram up.
func (h *histogram) distribution() Distribution {
	d := Distribution{Count: h.count, Min: h.min, Max: h.max}
	if h.count == 0 {
		return d
	}
	wanted := []struct {
		rank uint64
		to   *int64
	}{{h.rank(0.01), &d.P1}, {h.rank(0.1), &d.P10}, {h.rank(0.5), &d.P50}, {h.rank(0.99), &d.P99}, {h.rank(0.999), &d.P999}}
	seen := uint64(0)
	for p, page := range h.pages {
		if page == nil {
			continue
		}
		for slot, n := range page {
			seen += n
			for len(wanted) > 0 && seen >= wanted[0].rank {
				*wanted[0].to = min(max(middle(p*pageLen+slot), h.min), h.max)
				wanted = wanted[1:]
			}
		}
	}
	return d
}

// above counts the durations longer than limit. Those in its bucket are not.
func (h *histogram) above(limit int64) uint64 {
	if h.count == 0 || h.max <= limit {
		return 0
	}
	n := uint64(0)
	for i := bucket(limit) + 1; i <= bucket(h.max); i++ {
		if page := h.pages[i/pageLen]; page != nil {
			n += page[i%pageLen]
		}
	}
	return n
}

// maxBins bounds the bins of a histogram that is shown.
const maxBins = 24

// bins sums the histogram up for somebody to look at: in bins of the same width,
// a power of two, over the range from P1 to P999. What is below or above that is
// in the first and the last.
func (h *histogram) bins(d *Distribution) []Bin {
	if h.count == 0 {
		return nil
	}
	shift := bits.Len64(uint64((d.P999 - d.P1) / maxBins))
	first := d.P1 >> shift
	bins := make([]Bin, d.P999>>shift-first+1)
	for i := range bins {
		bins[i].From = (first + int64(i)) << shift
	}
	for p, page := range h.pages {
		if page == nil {
			continue
		}
		for slot, n := range page {
			at := middle(p*pageLen+slot)>>shift - first
			bins[min(max(at, 0), int64(len(bins)-1))].Count += n
		}
	}
	return bins
}

// rank is the number, from 1, of the duration at quantile q.
func (h *histogram) rank(q float64) uint64 { return max(1, uint64(math.Ceil(q*float64(h.count)))) }
