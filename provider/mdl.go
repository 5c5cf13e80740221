package provider

import "sort"

// An MDL describes consumer memory: byte ranges in order, each with the virtual
// address under which it is known. The address is an index only: it is never
// dereferenced and need not be that of the bytes (NDK-MR-04).
type MDL struct {
	VirtualAddress uint64
	Bytes          []byte
	Next           *MDL
}

// pieces returns the first length bytes of a chain, at least one; ok is false
// if the chain is shorter, a ring, not virtually contiguous, or beyond the last
// address.
func (m *MDL) pieces(length uint64) (_ pieces, ok bool) {
	if m == nil || length == 0 || m.VirtualAddress+(length-1) < m.VirtualAddress {
		return nil, false
	}
	var p pieces
	base := m.VirtualAddress
	var seen *MDL // at the last step whose number is a power of two
	for step := 1; p.length() < length; step++ {
		// A ring of empty ranges would be gone round for ever.
		if m == nil || m == seen || m.VirtualAddress != base+p.length() {
			return nil, false
		}
		if step&(step-1) == 0 {
			seen = m
		}
		if n := min(uint64(len(m.Bytes)), length-p.length()); n > 0 {
			p = append(p, piece{m.Bytes[:n:n], p.length() + n})
		}
		m = m.Next
	}
	return p, true
}

// A piece is a part of a range of memory.
type piece struct {
	bytes []byte // nil for a hole: addresses with no memory of the consumer's behind them
	end   uint64 // offset of its end in the range
}

// pieces are a range of memory, in order.
type pieces []piece

func (p pieces) length() uint64 {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1].end
}

// at returns the index of the piece that has offset.
func (p pieces) at(offset uint64) int {
	return sort.Search(len(p), func(i int) bool { return p[i].end > offset })
}

// appendRange appends the bytes of length at offset to dst, or reports that
// they are not all there.
func (p pieces) appendRange(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	if offset > p.length() || length > p.length()-offset {
		return dst, false
	}
	for i, end := p.at(offset), offset+length; offset < end; i++ {
		q := &p[i]
		if q.bytes == nil {
			return dst, false
		}
		from := uint64(len(q.bytes)) - (q.end - offset)
		n := min(q.end, end) - offset
		dst = append(dst, q.bytes[from:from+n:from+n])
		offset += n
	}
	return dst, true
}

// appendPart appends length bytes of q at offset, which are all there, to p. q has
// no holes.
func (p pieces) appendPart(q pieces, offset, length uint64) pieces {
	for i, end := q.at(offset), offset+length; offset < end; i++ {
		n := min(q[i].end, end) - offset
		from := uint64(len(q[i].bytes)) - (q[i].end - offset)
		p = append(p, piece{q[i].bytes[from : from+n : from+n], p.length() + n})
		offset += n
	}
	return p
}

// appendHole appends a hole to p.
func (p pieces) appendHole(length uint64) pieces {
	if length == 0 {
		return p
	}
	return append(p, piece{nil, p.length() + length})
}
