package histogram

import (
	"math"
	"slices"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"
)

// Buckets, counts and ranks agree with HdrHistogram's.
func TestAgainstHdrHistogram(t *testing.T) {
	const most = int64(60e9)
	for precision, digits := range map[int]int{7: 2, 10: 3} {
		rapid.Check(t, func(t *rapid.T) {
			h, judge := New(precision), hdrhistogram.New(1, most, digits)
			value := rapid.Custom(func(t *rapid.T) int64 {
				return rapid.Int64Range(1, most).Draw(t, "value") >> rapid.IntRange(0, 35).Draw(t, "shift")
			})
			for _, v := range rapid.SliceOfN(value, 1, 200).Draw(t, "values") {
				n := rapid.SampledFrom([]uint64{1, 1, 1, 2, math.MaxUint16, math.MaxUint16 + 1, 1 << 40}).Draw(t, "n")
				h.Record(v, n)
				if err := judge.RecordValues(v, int64(n)); err != nil {
					t.Fatal(err)
				}
			}
			if h.Count() != uint64(judge.TotalCount()) {
				t.Fatalf("%d values, want %d", h.Count(), judge.TotalCount())
			}
			got := make([]int64, len(judge.Export().Counts))
			for i, n := range h.Buckets() {
				got[i] = int64(n)
			}
			if !slices.Equal(got, judge.Export().Counts) {
				t.Fatal("the counts differ")
			}
			rank := rapid.Uint64Range(1, h.Count()).Draw(t, "rank")
			bucket := h.Ranked(rank)
			below, upTo := uint64(0), uint64(0)
			for i, n := range got[:bucket+1] {
				if upTo += uint64(n); i < bucket {
					below = upTo
				}
			}
			if below >= rank || upTo < rank {
				t.Fatalf("rank %d is in bucket %d, before which there are %d, and %d with it", rank, bucket, below, upTo)
			}
			if q := float64(rank) / float64(h.Count()) * 100; q < 100 {
				rank := uint64(q/100*float64(h.Count()) + 0.5)
				if got, want := h.Highest(h.Ranked(max(1, rank))), judge.ValueAtQuantile(q); got != want {
					t.Fatalf("%d at %v %%, want %d", got, q, want)
				}
			}
		})
	}
}

// Every value is in its bucket, and buckets follow each other without a gap.
func TestBounds(t *testing.T) {
	for _, precision := range []int{6, 7, 10, 12} {
		h := New(precision)
		for shift := range 63 {
			for _, v := range []int64{1<<shift - 1, 1 << shift, 1<<shift + 1, math.MaxInt64 >> shift} {
				i := h.Index(v)
				if h.Lowest(i) > v || h.Highest(i) < v || i > 0 && h.Highest(i-1)+1 != h.Lowest(i) {
					t.Errorf("precision %d: %d is in bucket %d, from %d to %d", precision, v, i, h.Lowest(i), h.Highest(i))
				}
				if width := h.Highest(i) - h.Lowest(i) + 1; width > 1 && width > h.Lowest(i)>>precision {
					t.Errorf("precision %d: bucket %d of %d is %d wide", precision, i, v, width)
				}
			}
		}
	}
	if h := New(10); h.Index(-1) != 0 || h.Ranked(1) != 0 || h.Count() != 0 {
		t.Error("a histogram without values has some")
	}
}

// A histogram that was cleared or added to counts like one in which the same values were
// recorded, whether either histogram has few buckets, or many, or had many once.
func TestClearAndAddAnyNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fill := func(name string, histograms ...*Histogram) {
			from := rapid.Int64Range(0, 1000).Draw(t, name+" from")
			for i := range rapid.SampledFrom([]int64{0, 1, mostFew - 1, mostFew, mostFew + 1, 3 * mostFew}).Draw(t, name) {
				for _, h := range histograms {
					h.Record(from+i, 1+uint64(i%3))
				}
			}
		}
		equal := func(what string, got, want *Histogram) {
			t.Helper()
			if g, w := counts(got), counts(want); got.Count() != want.Count() || !slices.Equal(g, w) {
				t.Errorf("%s: %d values in %v, want %d in %v", what, got.Count(), g, want.Count(), w)
			}
		}
		h, more, want := New(7), New(7), New(7)
		if rapid.Bool().Draw(t, "cleared") {
			fill("before", h)
			h.Clear()
			equal("cleared", h, want)
		}
		fill("values", h, want)
		fill("more", more, want)
		h.Add(more)
		equal("the sum", h, want)
	})
}

// counts are the buckets of a histogram, each with its number of values.
func counts(h *Histogram) (counts []uint64) {
	for i, n := range h.Buckets() {
		counts = append(counts, uint64(i), n)
	}
	return counts
}

// A histogram that was cleared, or added to another, counts as one that was not.
func TestClearAndAdd(t *testing.T) {
	h, more := New(7), New(7)
	h.Record(5000, 1<<40)
	h.Record(70, 3)
	h.Clear()
	more.Record(70, 2)
	more.Record(1<<50, 1<<20)
	h.Add(more)
	h.Record(70, 1)
	if want := []uint64{70, 3, uint64(h.Index(1 << 50)), 1 << 20}; !slices.Equal(counts(h), want) || h.Count() != 1<<20+3 {
		t.Errorf("%d values in %v, want %v", h.Count(), counts(h), want)
	}
}

// A bucket counts on where 32 bits do not suffice.
func TestManyOfOne(t *testing.T) {
	for _, first := range []uint64{1, math.MaxUint32, math.MaxUint32 + 1} {
		h := New(7)
		h.Record(70, first)
		h.Record(70, math.MaxUint32)
		if want := []uint64{70, first + math.MaxUint32}; !slices.Equal(counts(h), want) {
			t.Errorf("values in %v, want %v", counts(h), want)
		}
	}
}

// Nothing is allocated where there were values before, and little where there are few.
func TestAllocations(t *testing.T) {
	h := New(10)
	one := func() {
		for v := int64(100_000); v < 200_000; v += 1000 {
			h.Record(v, 1)
		}
	}
	one()
	if n := testing.AllocsPerRun(100, one); n > 0 {
		t.Errorf("%v allocations", n)
	}
	few := testing.AllocsPerRun(1, func() {
		h := New(10)
		h.Record(100_000, 10)
		h.Record(100_100, 10)
	})
	if few > 3 { // itself, and the list, which has grown once
		t.Errorf("%v allocations for two buckets", few)
	}
}
