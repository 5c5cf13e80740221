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
	m, err := register(ctx, pd, make([]byte, size), rights)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", size, err)
	}
	return m, nil
}

func register(ctx context.Context, pd *provider.PD, bytes []byte, rights provider.MRFlags) (*Memory, error) {
	mr, err := Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.MR, provider.Status) {
		return pd.CreateMR(false, completion, context)
	})
	if err == nil {
		err = Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
			return mr.Register(&provider.MDL{Bytes: bytes}, uint64(len(bytes)), rights, completion, context)
		})
		if err != nil {
			mr.Close(nil, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Memory{mr, bytes}, nil
}

// SGL names length bytes from offset on in a request.
func (m *Memory) SGL(offset, length int) []provider.SGE {
	return []provider.SGE{{VirtualAddress: uint64(offset), Length: uint32(length), MemoryRegionToken: m.LocalToken()}}
}
