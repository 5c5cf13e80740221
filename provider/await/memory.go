package await

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/provider"
)

// Memory is bytes that an adapter may access: a memory region of its own, whose
// addresses begin at 0. The bytes are the adapter's, too, until the region is
// closed: while a request or a peer may change them, they are not to be touched.
type Memory struct {
	*provider.MR
	Bytes []byte
}

// Register makes size bytes of memory that the adapter may access with the given
// rights.
func Register(ctx context.Context, pd *provider.PD, size int, rights provider.MRFlags) (*Memory, error) {
	mr, err := Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.MR, provider.Status) {
		return pd.CreateMR(false, completion, context)
	})
	if err != nil {
		return nil, err
	}
	m := &Memory{mr, make([]byte, size)}
	err = Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return mr.Register(&provider.MDL{Bytes: m.Bytes}, uint64(size), rights, completion, context)
	})
	if err != nil {
		mr.Close(nil, nil)
		return nil, fmt.Errorf("register %d bytes: %w", size, err)
	}
	return m, nil
}

// SGL names length bytes from offset on in a request.
func (m *Memory) SGL(offset, length int) []provider.SGE {
	return []provider.SGE{{VirtualAddress: uint64(offset), Length: uint32(length), MemoryRegionToken: m.LocalToken()}}
}
