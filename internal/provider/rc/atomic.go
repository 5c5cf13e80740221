package rc

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// atomicBytes is the length of what an atomic operation changes.
const atomicBytes = 8

// executeAtomic carries out an atomic, once, and keeps what it found: a duplicate is answered
// from that (roce.md 7.4).
func (r *responder) executeAtomic(h *roce.Header, payload []byte) {
	c := &r.q.connection
	fits := LengthFits(h, len(payload), c.MTU)
	if !fits {
		r.q.counters.BadLengths++
	}
	if !fits || !r.replies.hasResource(c.readsOnWire(c.ResponderResources)) {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	memory, access := r.q.config.Memory, RemoteAtomic
	if h.Opcode == roce.AtomicWrite {
		access = RemoteAtomicWrite
	}
	var ok bool
	r.ranges, ok = memory.Remote(r.ranges[:0], h.RKey, h.VA, atomicBytes, access)
	switch {
	case !ok:
		r.fail(RemoteAccess, roce.SyndromeRemoteAccess)
		return
	case h.VA%atomicBytes != 0:
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	op, operand := OpFetchAdd, h.SwapAdd
	switch h.Opcode {
	case roce.CompareSwap:
		op = OpCompareSwap
	case roce.AtomicWrite:
		op, operand = OpAtomicWrite, binary.NativeEndian.Uint64(payload)
	}
	r.msn++
	r.replies.addAtomic(h.Opcode, r.expected, r.msn, memory.Atomic(op, h.RKey, h.VA, operand, h.Compare))
	r.expected++
}
