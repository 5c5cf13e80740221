package rc

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// atomicBytes is the length of what an atomic operation changes.
const atomicBytes = 8

// Operands has fields that few requests use.
type operands struct {
	immediate        uint32
	operand, compare uint64
	stored           [atomicBytes]byte // operand in host order, as payload of OpAtomicWrite
}

// An operandRing has those of the slots, each in its slot's place (request.place). Most QPs need
// none.
type operandRing []operands

// resize makes room for so many slots, if there is a ring.
func (o *operandRing) resize(slots int) {
	if o != nil {
		*o = append(make(operandRing, 0, slots), *o...)[:slots]
	}
}

// hasOperands reports whether requests have some.
func (op Op) hasOperands() bool {
	return op == OpSendImmediate || op == OpWriteImmediate || op.isAtomic()
}

// setOperands keeps those of p for w.
func (r *requester) setOperands(w *request, p *Request) {
	if r.operands == nil {
		r.operands = new(operandRing)
		*r.operands = make(operandRing, len(r.ring))
	}
	o := r.operandsOf(w)
	o.immediate, o.operand, o.compare = p.Immediate, p.Operand, p.Compare
	binary.NativeEndian.PutUint64(o.stored[:], p.Operand)
}

func (r *requester) operandsOf(w *request) *operands { return &(*r.operands)[w.place] }

// makeAtomic makes the packet of w, an atomic, whose sequence number is s.
func (r *requester) makeAtomic(w *request, s int64, p *roce.Packet) {
	o := r.operandsOf(w)
	p.Header = roce.Header{PSN: psn(s), VA: w.va, RKey: w.token}
	switch w.op {
	case OpFetchAdd:
		p.Header.Opcode, p.Header.SwapAdd = roce.FetchAdd, o.operand
	case OpCompareSwap:
		p.Header.Opcode, p.Header.SwapAdd, p.Header.Compare = roce.CompareSwap, o.operand, o.compare
	case OpAtomicWrite:
		p.Header.Opcode, p.Header.DMALength = roce.AtomicWrite, atomicBytes
		p.Payload = append(p.Payload[:0], o.stored[:])
	}
}

// placeOriginal takes the answer to w, an atomic, which is the oldest request: what the memory was
// before. It reports whether all is well; if not, the QP has failed.
func (r *requester) placeOriginal(w *request, h *roce.Header) bool {
	if w.op == OpAtomicWrite {
		if h.Opcode != roce.ReadResponseOnly {
			r.fail(r.head, BadResponse)
			return false
		}
		return true
	}
	if h.Opcode != roce.AtomicAcknowledge {
		r.fail(r.head, BadResponse)
		return false
	}
	var ok bool
	r.ranges, ok = r.sink.Resolve(r.ranges[:0], r.q.config.Memory, r.sglOf(w), 0, atomicBytes, ReadSink)
	var original [atomicBytes]byte
	binary.NativeEndian.PutUint64(original[:], h.Original)
	if !ok || !r.q.config.Scatter(r.ranges, original[:], true) {
		r.fail(r.head, LocalProtection)
		return false
	}
	return true
}

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
