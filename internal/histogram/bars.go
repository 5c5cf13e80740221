package histogram

import (
	"math"
	"slices"
)

// Bars have values summed up for a monitor: how many there are, their sum, and how many are
// at most as large as each of some bounds. The zero value is of no values.
type Bars struct {
	Count uint64   `json:"count"`
	Sum   float64  `json:"sum"`
	UpTo  []uint64 `json:"up_to"` // by bound; nil of no values
}

// Bars sums the values up by bounds, which ascend. A value counts as at most a bound if it is
// in the bound's bucket, and is in the sum as the middle of its own. Of nil there are no values.
func (h *Histogram) Bars(bounds []int64) Bars {
	if h == nil || h.count == 0 {
		return Bars{}
	}
	b := Bars{Count: h.count, UpTo: make([]uint64, len(bounds))}
	next, seen := 0, uint64(0)
	last := func() int { // the last bucket of the next bar
		if next == len(bounds) {
			return math.MaxInt
		}
		return h.Index(bounds[next])
	}
	end := last()
	for index, n := range h.Buckets() {
		for index > end {
			b.UpTo[next] = seen
			next++
			end = last()
		}
		seen += n
		lowest, highest := h.Lowest(index), h.Highest(index)
		b.Sum += float64(n) * (float64(lowest) + float64(highest-lowest)/2)
	}
	for ; next < len(bounds); next++ {
		b.UpTo[next] = seen
	}
	return b
}

// Add adds other values, which are summed up by the same bounds.
func (b *Bars) Add(more Bars) {
	if more.Count == 0 {
		return
	}
	if b.Count == 0 {
		b.UpTo = make([]uint64, len(more.UpTo))
	} else {
		b.UpTo = slices.Clone(b.UpTo) // which may be another's, too
	}
	b.Count += more.Count
	b.Sum += more.Sum
	for i, n := range more.UpTo {
		b.UpTo[i] += n
	}
}
