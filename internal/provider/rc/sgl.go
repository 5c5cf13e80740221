package rc

// LengthOf returns the number of bytes that an SGL describes.
func LengthOf(sgl []SGE) int64 {
	n := int64(0)
	for i := range sgl {
		n += int64(sgl[i].Length)
	}
	return n
}

// A Position is a place in an SGL, kept so that the packets of a message,
// which follow each other, each find theirs without a walk from the start.
type Position struct {
	offset int64  // bytes of the SGL before it
	piece  int32  // index of the SGE it is in
	within uint32 // bytes of that SGE before it
}

// Offset counts the bytes of the SGL before it.
func (p *Position) Offset() int64 { return p.offset }

// Resolve appends the memory of the n bytes of sgl at offset to dst and moves
// to their end; false if the memory refuses. The SGL is long enough. A Position
// that has been used in one SGL must be zeroed before it is used in another.
func (p *Position) Resolve(dst [][]byte, memory Memory, sgl []SGE, offset int64, n int, access Access) ([][]byte, bool) {
	if p.offset != offset {
		*p = Position{}
		for p.offset < offset {
			p.skip(sgl, uint32(min(offset-p.offset, int64(sgl[p.piece].Length))))
		}
	}
	for left := uint32(n); left > 0; {
		sge := sgl[p.piece]
		sge.Address += uint64(p.within)
		sge.Length = min(left, sge.Length-p.within)
		if sge.Length > 0 {
			var ok bool
			if dst, ok = memory.Local(dst, sge, access); !ok {
				return dst, false
			}
		}
		p.skip(sgl, sge.Length)
		left -= sge.Length
	}
	return dst, true
}

// skip moves n bytes on, within the present SGE or to its end.
func (p *Position) skip(sgl []SGE, n uint32) {
	p.offset += int64(n)
	p.within += n
	if p.within == sgl[p.piece].Length {
		p.piece++
		p.within = 0
	}
}

// Scatter copies data to ranges that Memory has resolved; false if that fails. The last of what is told together is there
// when it returns, with what was before.
func (c *Config) Scatter(ranges [][]byte, data []byte, last bool) (ok bool) {
	if c.Place == nil {
		Scatter(ranges, data)
		return true
	}
	if c.unplaced {
		c.unplaced = false
		return false
	}
	return c.Place(ranges, data) && (!last || c.placed())
}

func (c *Config) placed() bool { return c.Placed == nil || c.Placed() }

// settle makes the copies that are put off. If the memory of one was not there, the next Scatter fails.
func (c *Config) settle() {
	if !c.placed() {
		c.unplaced = true
	}
}

// Scatter copies data to the ranges, in order, as far as they reach.
func Scatter(ranges [][]byte, data []byte) {
	for _, r := range ranges {
		data = data[copy(r, data):]
	}
}
