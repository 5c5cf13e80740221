package provider

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/token"
)

// PageSize is the size of an adapter page in bytes (PAGE_SIZE).
const PageSize = 4096

// A LogicalAddress is the adapter's address of a byte of mapped memory. Those in
// a LAM are of pages; the consumer adds offsets within a page.
//
// Here it is made of the mapping's slot in the table, the number of the page and
// the offset. A guard bit between the last two keeps pages apart: an SGE that
// runs over the end of its page is in no page, never by accident in another
// (NDK-SGE-06).
type LogicalAddress int64

const (
	offsetBits    = 12
	guardBits     = 1
	pageBits      = 26
	mappingShift  = offsetBits + guardBits + pageBits // 24 bits of slot above it, the sign bit stays 0
	maxLAMPages   = 1 << pageBits
	lamHeaderSize = 16
	lamEntrySize  = 8
)

// A LAM is a logical address mapping: the pages that memory lies in, in order.
// As NDK_LOGICAL_ADDRESS_MAPPING counts, its size is 16 bytes and 8 for each.
type LAM struct {
	AdapterContext any // the provider's
	Pages          []LogicalAddress
}

// A mapping describes the memory that a LAM stands for. Pages are those of the
// virtual addresses that the memory is known under, so only part of the first and
// the last may be the consumer's memory.
type mapping struct {
	adapter  *Adapter
	token    uint32
	fbo      uint64 // where the memory begins in the first page
	memory   pieces
	released atomic.Bool
	users    sync.RWMutex // as region.users, of the regions that have its pages
}

func (m *mapping) end() uint64   { return m.fbo + m.memory.length() }
func (m *mapping) pages() uint64 { return (m.end() + PageSize - 1) / PageSize }

// BuildLAM maps the first length bytes of the memory that mdl describes for use
// with logical addresses. lam takes the pages, in its own space if that is large
// enough, fbo the place of the first byte in the first page. size holds the
// bytes that there are for the LAM and then the bytes written; if they are too
// few, StatusBufferTooSmall and the bytes needed.
//
// The memory must stay the LAM's until ReleaseLAM. A mapping that cannot be made
// leaves nothing behind.
func (a *Adapter) BuildLAM(mdl *MDL, length uint64, completion RequestCompletion, context any, lam *LAM, size, fbo *uint32) Status {
	if !a.open() {
		return StatusInvalidDeviceState
	}
	memory, ok := mdl.pieces(length)
	if !ok || size == nil || fbo == nil {
		return StatusInvalidParameter
	}
	m := &mapping{adapter: a, fbo: mdl.VirtualAddress % PageSize, memory: memory}
	pages := m.pages()
	if pages > maxLAMPages {
		return StatusInsufficientResources
	}
	given := *size
	*size = uint32(lamHeaderSize + lamEntrySize*pages)
	if lam == nil || given < *size {
		return StatusBufferTooSmall
	}
	table := &a.miniport.mappings
	if m.token, ok = table.Take(); !ok {
		return StatusInsufficientResources
	}
	a.hold() // until ReleaseLAM (NDK-LIFE-31)
	lam.AdapterContext = m
	lam.Pages = slices.Grow(lam.Pages[:0], int(pages))
	for i := range LogicalAddress(pages) {
		lam.Pages = append(lam.Pages, LogicalAddress(m.token>>token.KeyBits)<<mappingShift|i<<(offsetBits+guardBits))
	}
	*fbo = uint32(m.fbo)
	table.Set(m.token, m)
	return a.miniport.completeRequest(&a.object, completion, context)
}

// ReleaseLAM ends a mapping that BuildLAM made. No request that uses its pages
// may be under way. An FRMR that has them loses its memory: accesses fail. A peer's
// may be under way, and is waited for, which is no longer than a batch of packets takes.
func (a *Adapter) ReleaseLAM(lam *LAM) {
	if lam == nil {
		return
	}
	m, ok := lam.AdapterContext.(*mapping)
	if !ok || m.adapter != a || m.released.Swap(true) {
		return
	}
	lam.AdapterContext, lam.Pages = nil, nil
	a.miniport.mappings.Give(m.token)
	m.users.Lock() // for good
	a.release()
}

// mapping returns the mapping with a logical address, and where in it that is,
// counted from the start of the first page; nil if the adapter has no such page.
func (a *Adapter) mapping(address LogicalAddress) (*mapping, uint64) {
	if address < 0 {
		return nil, 0
	}
	m := a.miniport.mappings.At(uint32(address >> mappingShift << token.KeyBits))
	page := uint64(address) >> offsetBits % (maxLAMPages << guardBits)
	if m == nil || m.adapter != a || page%(1<<guardBits) != 0 || page>>guardBits >= m.pages() {
		return nil, 0
	}
	return m, page>>guardBits*PageSize + uint64(address)%PageSize
}

// logical resolves a piece of mapped memory, which must not leave its page. The
// privileged token that it is named with grants local access; as a read's sink
// only where that needs no right of its own (NDK-PTOK-03, 04).
func (a *Adapter) logical(dst [][]byte, sge rc.SGE, access rc.Access) ([][]byte, bool) {
	if access == rc.ReadSink && a.miniport.info.AdapterFlags&AdapterReadSinkNotRequired == 0 {
		return dst, false
	}
	m, at := a.mapping(LogicalAddress(sge.Address))
	if m == nil || at%PageSize+uint64(sge.Length) > PageSize {
		return dst, false
	}
	// Before the memory the offset wraps to more than any length.
	return m.memory.appendRange(dst, at-m.fbo, uint64(sge.Length))
}

// appendPages appends to p the memory of the mapping from one place to another,
// both counted from the start of the first page.
func (m *mapping) appendPages(p pieces, from, to uint64) pieces {
	begin, end := min(max(from, m.fbo), to), max(min(to, m.end()), from)
	if begin >= end {
		return p.appendHole(to - from)
	}
	p = p.appendHole(begin - from)
	p = p.appendPart(m.memory, begin-m.fbo, end-begin)
	return p.appendHole(to - end)
}
