// Package histogram counts values in buckets whose width is a fixed part of their value.
//
// A simulation has a histogram for each of 65,536 flows, and a lab three for each of
// thousands of links. Hence memory is made for the buckets around values that were there,
// and narrow at first. The buckets are those of HdrHistogram.
//
// Start reading at Histogram.
package histogram

import (
	"iter"
	"math"
	"math/bits"
)

// A Histogram counts values from 0 up. Values below 2^(precision+1) have buckets of their
// own; above, each doubling of the value has 2^precision buckets. It allocates when a value
// comes near which there was none before, or a bucket's count outgrows 16 bits. Not for
// concurrent use.
type Histogram struct {
	precision int
	count     uint64
	octaves   [][]page // by index >> precision, as far as there were values; nil: none was there
}

// A page counts the values of pageLen buckets.
type page struct {
	narrow *[pageLen]uint16 // nil: wide counts, or there are none
	wide   *[pageLen]uint64
}

// pageLen is a power of two, not above 2^precision.
const pageLen = 64

// New is a histogram with no values, whose precision is 6 to 62.
func New(precision int) *Histogram { return &Histogram{precision: precision} }

// Count is how many values there are.
func (h *Histogram) Count() uint64 { return h.count }

// Record counts a value n times. A negative one counts as 0.
func (h *Histogram) Record(value int64, n uint64) {
	index := h.Index(value)
	octave, rest := index>>h.precision, index&(1<<h.precision-1)
	if octave >= len(h.octaves) || h.octaves[octave] == nil {
		h.make(octave)
	}
	h.octaves[octave][rest/pageLen].add(rest%pageLen, n)
	h.count += n
}

// make makes the table of an octave's pages.
func (h *Histogram) make(octave int) {
	if octave >= len(h.octaves) {
		longer := make([][]page, octave+1)
		copy(longer, h.octaves)
		h.octaves = longer
	}
	h.octaves[octave] = make([]page, 1<<h.precision/pageLen)
}

func (p *page) add(slot int, n uint64) {
	switch {
	case p.wide != nil:
		p.wide[slot] += n
	case p.narrow == nil && n <= math.MaxUint16:
		p.narrow = new([pageLen]uint16)
		p.narrow[slot] = uint16(n)
	case p.narrow != nil && n <= math.MaxUint16-uint64(p.narrow[slot]):
		p.narrow[slot] += uint16(n)
	default:
		p.widen()
		p.wide[slot] += n
	}
}

func (p *page) widen() {
	p.wide = new([pageLen]uint64)
	if p.narrow != nil {
		for i, n := range p.narrow {
			p.wide[i] = uint64(n)
		}
	}
	p.narrow = nil
}

// Add counts the values of another histogram of the same precision.
func (h *Histogram) Add(more *Histogram) {
	for index, n := range more.Buckets() {
		h.Record(h.Lowest(index), n)
	}
}

// Clear forgets all values, and keeps the memory for others like them.
func (h *Histogram) Clear() {
	h.count = 0
	for _, octave := range h.octaves {
		for i := range octave {
			if p := &octave[i]; p.wide != nil {
				clear(p.wide[:])
			} else if p.narrow != nil {
				clear(p.narrow[:])
			}
		}
	}
}

// Index is the bucket of a value. Buckets are numbered from 0, by their values.
func (h *Histogram) Index(value int64) int {
	value = max(value, 0)
	shift := max(0, bits.Len64(uint64(value))-h.precision-1)
	return shift<<h.precision + int(value>>shift)
}

// Lowest is the lowest value of a bucket, and Highest the highest.
func (h *Histogram) Lowest(index int) int64 {
	shift := h.shift(index)
	return int64(index-shift<<h.precision) << shift
}

func (h *Histogram) Highest(index int) int64 {
	return h.Lowest(index) + 1<<h.shift(index) - 1
}

// shift is the binary logarithm of a bucket's width.
func (h *Histogram) shift(index int) int { return max(0, index>>h.precision-1) }

// Buckets are those that have values, in their order, and how many.
func (h *Histogram) Buckets() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for o, octave := range h.octaves {
			for i := range octave {
				if !octave[i].each(o<<h.precision+i*pageLen, yield) {
					return
				}
			}
		}
	}
}

// each yields the buckets of a page, the first of which has that index, until it is told
// to stop.
func (p *page) each(index int, yield func(int, uint64) bool) bool {
	switch {
	case p.wide != nil:
		for i, n := range p.wide {
			if n > 0 && !yield(index+i, n) {
				return false
			}
		}
	case p.narrow != nil:
		for i, n := range p.narrow {
			if n > 0 && !yield(index+i, uint64(n)) {
				return false
			}
		}
	}
	return true
}

// Ranked is the bucket of the value which is at that place, from 1, in the order of all. It
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
