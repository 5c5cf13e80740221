package live

import (
	"math"
	"slices"

	"github.com/ndklab/ndklab/internal/histogram"
)

// perDecade counts the bounds for each factor of ten: a percentile is off by at most one eighth.
const perDecade = 10

// Bounds returns the bounds in nanoseconds that observations for a Recorder are by: from 1 us to 10 s.
func Bounds() []int64 { return slices.Clone(bounds) }

var bounds = func() []int64 {
	all := make([]int64, 7*perDecade+1)
	for i := range all {
		all[i] = int64(math.Round(1e3 * math.Pow(10, float64(i)/perDecade)))
	}
	return all
}()

// since returns the values that have come since before; all of them if the later ones began anew.
func since(before, now histogram.Bars) histogram.Bars {
	if before.Count == 0 || now.Count < before.Count || len(now.UpTo) != len(before.UpTo) {
		return now
	}
	d := histogram.Bars{Count: now.Count - before.Count, Sum: max(now.Sum-before.Sum, 0), UpTo: make([]uint64, len(now.UpTo))}
	for i := range d.UpTo {
		if now.UpTo[i] < before.UpTo[i] {
			return now
		}
		d.UpTo[i] = now.UpTo[i] - before.UpTo[i]
	}
	return d
}

// micros returns a percentile of values by Bounds, in microseconds; nil if there are none. It is between the bounds around it, in
// proportion to how many values are below it there; the mean where all are between the same two.
func micros(b histogram.Bars, share float64) *float64 {
	if b.Count == 0 || len(b.UpTo) != len(bounds) {
		return nil
	}
	rank := math.Ceil(share * float64(b.Count))
	i, _ := slices.BinarySearchFunc(b.UpTo, rank, func(n uint64, rank float64) int {
		if float64(n) < rank {
			return -1
		}
		return 1
	})
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = float64(bounds[i-1]), float64(b.UpTo[i-1])
	}
	if i == len(bounds) { // above all bounds
		return new(max(low, b.Sum/float64(b.Count)) / 1e3)
	}
	within := float64(b.UpTo[i]) - below
	if within == float64(b.Count) {
		return new(b.Sum / float64(b.Count) / 1e3)
	}
	return new((low + (float64(bounds[i])-low)*(rank-below)/within) / 1e3)
}
