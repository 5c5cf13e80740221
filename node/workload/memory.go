package workload

import (
	"encoding/binary"
	"fmt"

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

// grant is what the server tells the client when it accepts: the memory to write
// to or to read from. It travels as private data, big-endian.
type grant struct {
	address uint64
	token   uint32
}

const grantLen = 12

func (g grant) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, grantLen), g.address)
	return binary.BigEndian.AppendUint32(b, g.token)
}

// decodeGrant decodes grantLen bytes.
func decodeGrant(b []byte) grant {
	return grant{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
}
