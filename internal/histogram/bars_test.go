package histogram

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Bars count values as the bounds have them, to within the bucket of a bound, and those of two
// histograms add up to those of both.
func TestBars(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := rapid.SliceOfNDistinct(rapid.Int64Range(0, 1e10), 0, 20, func(b int64) int64 { return b }).Draw(t, "bounds")
		slices.Sort(bounds)
		values := rapid.SliceOfN(rapid.Int64Range(0, 2e10), 0, 300).Draw(t, "values")
		split := rapid.IntRange(0, len(values)).Draw(t, "split")
		first, second, all := New(12), New(12), New(12)
		sum := 0.0
		for i, v := range values {
			if i < split {
				first.Record(v, 1)
			} else {
				second.Record(v, 1)
			}
			all.Record(v, 1)
			sum += float64(v)
		}
		b := all.Bars(bounds)
		if b.Count != uint64(len(values)) || math.Abs(b.Sum-sum) > sum/8192+float64(len(values)) {
			t.Fatalf("%d values of sum %g, want %d of %g", b.Count, b.Sum, len(values), sum)
		}
		if len(values) == 0 {
			if b.UpTo != nil {
				t.Fatalf("of nothing: %v", b.UpTo)
			}
			return
		}
		for i, bound := range bounds {
			want := uint64(0)
			for _, v := range values {
				if all.Index(v) <= all.Index(bound) {
					want++
				}
			}
			if b.UpTo[i] != want {
				t.Fatalf("up to %d: %d values, want %d", bound, b.UpTo[i], want)
			}
		}
		added := first.Bars(bounds)
		before := slices.Clone(added.UpTo)
		more := added
		more.Add(second.Bars(bounds))
		if more.Count != b.Count || !slices.Equal(more.UpTo, b.UpTo) || math.Abs(more.Sum-b.Sum) > 1e-9*b.Sum {
			t.Fatalf("added %+v, want %+v", more, b)
		}
		if !slices.Equal(added.UpTo, before) {
			t.Fatal("what was added to is changed")
		}
	})
	if b := (*Histogram)(nil).Bars([]int64{1}); b.Count != 0 || b.UpTo != nil {
		t.Errorf("of no histogram: %+v", b)
	}
}
