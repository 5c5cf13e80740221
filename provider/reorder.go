package provider

import (
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

const (
	// DefaultReorderBuffer is Config.ReorderBuffer unless it is set, bytes: four queue
	// pairs may keep as many early packets as they could without the others.
	DefaultReorderBuffer = 128 << 20

	leastReorderBuffer = 64 << 10
	// mostReorderBuffer leaves the ledger's 32 bits room for what is asked for beyond
	// it at the same time.
	mostReorderBuffer = 1 << 30
)

// A reorderBuffer is the memory in which the queue pairs of a device, in all processes
// that share it, keep early packets. The ledger has the account, which is changed by
// atomic operations: no lock is needed by queue pairs that ask at the same time.
type reorderBuffer struct {
	ledger *sharing.Ledger
	size   uint32 // bytes
}

var _ rc.EarlyMemory = reorderBuffer{}

// Take implements rc.EarlyMemory.
func (b reorderBuffer) Take(bytes int) bool {
	return b.ledger.Take(sharing.EarlyBytes, uint32(bytes), b.size)
}

// Give implements rc.EarlyMemory.
func (b reorderBuffer) Give(bytes int) { b.ledger.Give(sharing.EarlyBytes, uint32(bytes)) }

// HalfFree implements rc.EarlyMemory.
func (b reorderBuffer) HalfFree() bool { return b.ledger.SumOf(sharing.EarlyBytes) <= uint64(b.size/2) }
