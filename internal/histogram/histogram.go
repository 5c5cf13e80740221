// Package histogram counts values in buckets whose width is a fixed part of their value.
//
// A simulation has two histograms for each of 65,536 flows, and a lab three for each of
// thousands of links. Hence the first buckets that have values are a list of them, and
// when that is full, memory is made for the buckets around values that were there, narrow
// at first. The buckets are those of HdrHistogram.
//
// Start reading at Histogram.
package histogram

import (
	"iter"
	"math"
	"math/bits"
	"slices"
)

// A Histogram counts values from 0 up. Values below 2^(precision+1) have buckets of their
// own; above, each doubling of the value has 2^precision buckets. It allocates when a value
// comes near which there was none before, or a bucket's count outgrows its bits. Not for
// concurrent use.
type Histogram struct {
	precision int
	count     uint64
	few       []bucket  // those with values, in their order, as long as there are mostFew at most; then nil
	octaves   [][]*page // then: from the lowest to the highest that had values; nil: this one had none
	lowest    int       // index >> precision of the first of octaves
}

// A bucket is one that has values.
type bucket struct {
	index int32
	n     uint32
}

// mostFew bounds how many buckets are kept as a list.
const mostFew = 64

// A page counts the values of pageLen buckets. There is none where there were no values.
type page struct {
	narrow [pageLen]uint16
	wide   *[pageLen]uint64 // counts in place of narrow; nil: those suffice
}

// pageLen is a power of two, not above 2^precision.
const pageLen = 64

// New returns a histogram with no values, whose precision is 6 to 24.
func New(precision int) *Histogram { return &Histogram{precision: precision} }

// Count returns the number of values, which is 0 of nil.
func (h *Histogram) Count() uint64 {
	if h == nil {
		return 0
	}
	return h.count
}

// Record counts a value n times. A negative one counts as 0.
func (h *Histogram) Record(value int64, n uint64) {
	h.count += n
	index := h.Index(value)
	if h.octaves == nil {
		if h.list(index, n) {
			return
		}
		h.spread()
	}
	h.put(index, n)
}

// list counts values of a bucket in the list, if there is room.
func (h *Histogram) list(index int, n uint64) bool {
	i, end := 0, len(h.few)
	for i < end { // a function that compares, called for each step, takes as long again
		if middle := int(uint(i+end) >> 1); int(h.few[middle].index) < index {
			i = middle + 1
		} else {
			end = middle
		}
	}
	there := i < len(h.few) && int(h.few[i].index) == index
	switch {
	case there && n <= math.MaxUint32-uint64(h.few[i].n):
		h.few[i].n += uint32(n)
	case !there && n <= math.MaxUint32 && len(h.few) < mostFew:
		h.few = slices.Insert(h.few, i, bucket{int32(index), uint32(n)})
	default:
		return false
	}
	return true
}

// spread has pages in place of the list.
func (h *Histogram) spread() {
	few := h.few
	h.few = nil
	for _, b := range few {
		h.put(int(b.index), uint64(b.n))
	}
}

// put counts values of a bucket in its page.
func (h *Histogram) put(index int, n uint64) {
	octave, rest := index>>h.precision-h.lowest, index&(1<<h.precision-1)
	if uint(octave) >= uint(len(h.octaves)) || h.octaves[octave] == nil {
		octave = h.make(octave)
	}
	p := h.octaves[octave][rest/pageLen]
	if p == nil {
		p = new(page)
		h.octaves[octave][rest/pageLen] = p
	}
	p.add(rest%pageLen, n)
}

// make makes the table of an octave's pages, and returns where in octaves it is then.
func (h *Histogram) make(octave int) int {
	switch {
	case len(h.octaves) == 0:
		h.lowest, octave = h.lowest+octave, 0
		h.octaves = make([][]*page, 1)
	case octave < 0:
		h.octaves = append(make([][]*page, -octave), h.octaves...)
		h.lowest, octave = h.lowest+octave, 0
	case octave >= len(h.octaves):
		h.octaves = append(h.octaves, make([][]*page, octave+1-len(h.octaves))...)
	}
	h.octaves[octave] = make([]*page, 1<<h.precision/pageLen)
	return octave
}

func (p *page) add(slot int, n uint64) {
	switch {
	case p.wide != nil:
		p.wide[slot] += n
	case n <= math.MaxUint16-uint64(p.narrow[slot]):
		p.narrow[slot] += uint16(n)
	default:
		p.wide = new([pageLen]uint64)
		for i, n := range p.narrow {
			p.wide[i] = uint64(n)
		}
		p.wide[slot] += n
	}
}

// Add counts the values of another histogram of the same precision.
func (h *Histogram) Add(more *Histogram) {
	for index, n := range more.Buckets() {
		h.Record(h.Lowest(index), n)
	}
}

// Clear forgets all values, and keeps the memory for others like them.
func (h *Histogram) Clear() {
	h.count, h.few = 0, h.few[:0]
	for _, octave := range h.octaves {
		for _, p := range octave {
			switch {
			case p == nil:
			case p.wide != nil:
				clear(p.wide[:])
			default:
				clear(p.narrow[:])
			}
		}
	}
}

// Index returns the bucket of a value. Buckets are numbered from 0, by their values.
func (h *Histogram) Index(value int64) int {
	value = max(value, 0)
	shift := max(0, bits.Len64(uint64(value))-h.precision-1)
	return shift<<h.precision + int(value>>shift)
}

// Lowest returns the lowest value of a bucket, and Highest the highest.
func (h *Histogram) Lowest(index int) int64 {
	shift := h.shift(index)
	return int64(index-shift<<h.precision) << shift
}

func (h *Histogram) Highest(index int) int64 {
	return h.Lowest(index) + 1<<h.shift(index) - 1
}

// shift returns the binary logarithm of a bucket's width.
func (h *Histogram) shift(index int) int { return max(0, index>>h.precision-1) }

// Buckets yields the buckets that have values, in their order, with the number of values.
func (h *Histogram) Buckets() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for _, b := range h.few {
			if !yield(int(b.index), uint64(b.n)) {
				return
			}
		}
		for o, octave := range h.octaves {
			for i, p := range octave {
				if p != nil && !p.each((h.lowest+o)<<h.precision+i*pageLen, yield) {
					return
				}
			}
		}
	}
}

// each yields the buckets of a page, the first of which has that index, until it is told
// to stop.
func (p *page) each(index int, yield func(int, uint64) bool) bool {
	for i := range pageLen {
		n := uint64(p.narrow[i])
		if p.wide != nil {
			n = p.wide[i]
		}
		if n > 0 && !yield(index+i, n) {
			return false
		}
	}
	return true
}

// Ranked returns the bucket of the value which is at that place, from 1, in the order of all. It
// is 0 if there are no values.
func (h *Histogram) Ranked(rank uint64) (bucket int) {
	seen := uint64(0)
	for index, n := range h.Buckets() {
		bucket = index
		if seen += n; seen >= rank {
			break
		}
	}
	return bucket
}
