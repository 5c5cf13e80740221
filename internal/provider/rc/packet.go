package rc

import "github.com/ndklab/ndklab/internal/provider/roce"

// makePacket makes the packet for [s, end) of w, which is more than one sequence number of a
// READ only; false if its memory cannot be read.
func (q *sendQueue) makePacket(w *request, s, end int64, p *roce.Packet) bool {
	switch {
	case !w.op.isAnswered():
		return q.makeData(w, s, p)
	case w.op == OpRead:
		q.makeRead(w, s, end, p)
	default:
		q.makeAtomic(w, s, p)
	}
	return true
}

// makeRead makes the request for the part of w, a READ, from sequence number s
// up to end.
func (q *sendQueue) makeRead(w *request, s, end int64, p *roce.Packet) {
	before := q.bytesBefore(w, s)
	p.Header = roce.Header{
		Opcode:    roce.ReadRequest,
		PSN:       psn(s),
		VA:        w.va + uint64(before),
		RKey:      w.token,
		DMALength: uint32(q.bytesBefore(w, end) - before),
	}
}

// makeData makes packet s of w, a SEND or WRITE; false if its memory cannot be read.
func (q *sendQueue) makeData(w *request, s int64, p *roce.Packet) bool {
	offset, n := q.bytesBefore(w, s), q.payloadAt(w, s)
	if w.pieces == inlined {
		if n > 0 {
			p.Payload = append(p.Payload[:0], q.inlineOf(w)[offset:offset+n])
		}
	} else {
		if q.gatherOf != w.first {
			q.gather, q.gatherOf = Position{}, w.first
		}
		var ok bool
		p.Payload, ok = q.gather.Resolve(p.Payload[:0], q.config.Memory, q.sglOf(w), offset, int(n), LocalRead)
		if !ok {
			w.status = LocalProtection
			return false
		}
	}
	p.Header = roce.Header{PSN: psn(s)}
	if w.flags.has(isApart) {
		p.Header.Opcode, p.Header.VA, p.Header.RKey, p.Header.DMALength = roce.WriteOnly, w.va+uint64(offset), w.token, uint32(n)
		return true
	}
	starts, ends := s == w.first, s+1 == w.end
	p.Header.Opcode = w.op.Opcode(starts, ends)
	if starts && (w.op == OpWrite || w.op == OpWriteImmediate) {
		p.Header.VA, p.Header.RKey, p.Header.DMALength = w.va, w.token, uint32(w.length)
	}
	if !ends || w.op == OpWrite {
		return true
	}
	p.Header.Solicited = w.flags.has(isSolicited)
	switch w.op {
	case OpSendInvalidate:
		p.Header.InvalidateKey = w.token
	case OpSendImmediate, OpWriteImmediate:
		p.Header.Immediate = q.operandsOf(w).immediate
	}
	return true
}

// makeAtomic makes the packet of w, an atomic, whose sequence number is s.
func (q *sendQueue) makeAtomic(w *request, s int64, p *roce.Packet) {
	o := q.operandsOf(w)
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

// Opcode returns that of a packet of a request to send or write, by its place in the message.
func (op Op) Opcode(starts, ends bool) roce.Opcode {
	at := 0
	if starts {
		at = 2
	}
	if ends {
		at++
	}
	return messages[op][at]
}

// messages are the opcodes of the packets of requests to send or write: in the middle, the last, the first, the only.
var messages = [...][4]roce.Opcode{
	OpSend:           {roce.SendMiddle, roce.SendLast, roce.SendFirst, roce.SendOnly},
	OpSendInvalidate: {roce.SendMiddle, roce.SendLastInv, roce.SendFirst, roce.SendOnlyInv},
	OpSendImmediate:  {roce.SendMiddle, roce.SendLastImm, roce.SendFirst, roce.SendOnlyImm},
	OpWrite:          {roce.WriteMiddle, roce.WriteLast, roce.WriteFirst, roce.WriteOnly},
	OpWriteImmediate: {roce.WriteMiddle, roce.WriteLastImm, roce.WriteFirst, roce.WriteOnlyImm},
}
