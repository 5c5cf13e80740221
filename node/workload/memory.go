package workload

import (
	"fmt"
	"slices"

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

// A Scratch is memory for the payload of messages that nobody compares. All flows of hosts
// that are on one goroutine, as in a simulation, may share one.
type Scratch struct{ bytes []byte }

// of is memory for messages of a flow, n bytes. If somebody compares them, or there is no
// Scratch, the flow has it to itself.
func (s *Scratch) of(spec *Spec, n uint64) []byte {
	if s == nil || spec.Verify {
		return make([]byte, n)
	}
	s.bytes = slices.Grow(s.bytes[:0], int(n))
	return s.bytes[:n:n]
}

// sge is the piece of length bytes at offset.
func (m *memory) sge(offset, length uint64) provider.SGE {
	return provider.SGE{VirtualAddress: offset, Length: uint32(length), MemoryRegionToken: m.mr.LocalToken()}
}

// closers is the memory's region, if there is one.
func (m *memory) closers() []closer {
	if m == nil {
		return nil
	}
	return []closer{m.mr}
}
