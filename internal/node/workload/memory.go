package workload

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/ndklab/ndklab/provider"
)

// memory is registered memory, addressed from zero.
type memory struct {
	bytes []byte
	mr    *provider.MR
}

func register(pd *provider.PD, bytes []byte, flags provider.MRFlags) (*memory, error) {
	if len(bytes) == 0 {
		bytes = make([]byte, 1) // a region cannot be empty; messages of no bytes need some all the same
	}
	mr, status := pd.CreateMR(false, nil, nil)
	if status != provider.StatusSuccess {
		return nil, fmt.Errorf("create memory region: %w", status)
	}
	mdl := &provider.MDL{Bytes: bytes}
	if status := mr.Register(mdl, uint64(len(bytes)), flags, nil, nil); status != provider.StatusSuccess {
		mr.Close(func(any) {}, nil)
		return nil, fmt.Errorf("register %d bytes: %w", len(bytes), status)
	}
	return &memory{bytes: bytes, mr: mr}, nil
}

// Payloads holds what flows share of the memory for messages. All flows of hosts that are on
// one goroutine, as in a simulation, may share one.
type Payloads struct {
	scratch  []byte    // for messages that nobody compares
	patterns []*random // of all flows that there have been, in the order of their addresses
	last     *Spec     // of the flow that came last, for others of its workload
}

// spec returns the spec of a flow that is given, or the one of another flow of the same
// workload: all but Flow and Rank are the same. So flows of a workload share one.
func (p *Payloads) spec(given *Spec) *Spec {
	if p == nil {
		return given
	}
	same := *given
	if p.last != nil {
		same.Flow, same.Rank = p.last.Flow, p.last.Rank
	}
	if p.last == nil || !reflect.DeepEqual(*p.last, same) {
		p.last = &same
	}
	return p.last
}

// sink returns memory for messages of a flow to arrive in, n bytes. If somebody compares them,
// or there are no Payloads, the flow has it to itself.
func (p *Payloads) sink(spec *Spec, n uint64) []byte {
	if p == nil || spec.Verify {
		return make([]byte, n)
	}
	p.scratch = slices.Grow(p.scratch[:0], int(n))
	return p.scratch[:n:n]
}

// pattern returns the pattern of a flow.
func (p *Payloads) pattern(spec *Spec) *pattern {
	made := newPattern(spec)
	if p != nil {
		if i, known := p.find(made.bytes); !known {
			p.patterns = slices.Insert(p.patterns, i, made.random)
		}
	}
	return made
}

// Constant reports whether bytes are of a pattern, which nobody ever writes to: what is on
// its way need not be copied.
func (p *Payloads) Constant(bytes []byte) bool {
	_, constant := p.find(bytes)
	return constant
}

// find returns where the pattern stands among the patterns that has those bytes, or would.
func (p *Payloads) find(bytes []byte) (int, bool) {
	return slices.BinarySearchFunc(p.patterns, address(bytes), func(r *random, at uintptr) int {
		first := address(r.bytes)
		switch {
		case at < first:
			return 1
		case at-first >= uintptr(len(r.bytes)):
			return -1
		}
		return 0
	})
}

// address returns the address of the first byte.
func address(bytes []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(bytes))) }

// sge returns the piece of length bytes at offset.
func (m *memory) sge(offset, length uint64) provider.SGE {
	return provider.SGE{VirtualAddress: offset, Length: uint32(length), MemoryRegionToken: m.mr.LocalToken()}
}

// closers returns the memory's region, if there is one.
func (m *memory) closers() []closer {
	if m == nil {
		return nil
	}
	return []closer{m.mr}
}
