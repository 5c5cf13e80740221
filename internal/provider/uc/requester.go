package uc

import (
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/ring"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A request is one slot of the send queue: a copy of what was posted.
type request struct {
	rc.Request
	length  int64
	inlined bool
}

// A requester is the half of a QP that carries out what the consumer posts, one request after the
// other.
type requester struct {
	q      *QP
	queue  ring.Ring[request]
	psn    uint32      // of the next packet
	done   int64       // bytes of the oldest request that packets have been made of
	starts bool        // none has been made of it
	gather rc.Position // in its SGL
}

func (r *requester) post(p *rc.Request) error {
	config := &r.q.config
	length := int64(len(p.Inline))
	if p.Inline == nil {
		length = rc.LengthOf(p.SGL)
	}
	switch p.Op {
	case rc.OpSend, rc.OpSendImmediate, rc.OpWrite, rc.OpWriteImmediate:
	case rc.OpBind, rc.OpFastRegister, rc.OpInvalidate:
		if p.Local == nil {
			return rc.ErrOperation
		}
		if p.Inline != nil {
			return rc.ErrInline
		}
	default:
		return rc.ErrOperation
	}
	switch {
	case len(p.Inline) > config.MaxInline:
		return rc.ErrInline
	case p.Inline == nil && len(p.SGL) > config.MaxSGE:
		return rc.ErrSGL
	case r.queue.Len() == config.SendDepth:
		return rc.ErrFull
	case length > rc.MaxMessage:
		return rc.ErrTooLong
	}
	w := r.queue.Add(config.SendDepth)
	sgl, inline := append(w.SGL[:0], p.SGL...), append(w.Inline[:0], p.Inline...)
	w.Request = *p
	w.SGL, w.Inline, w.inlined, w.length = sgl, inline, p.Inline != nil, length
	if r.queue.Len() == 1 {
		r.begin()
	}
	return nil
}

// begin has packets be made of the oldest request, from the first on.
func (r *requester) begin() { r.done, r.starts, r.gather = 0, true, rc.Position{} }

// nextPacket makes the next packet, having performed the local operations before it.
func (r *requester) nextPacket(p *roce.Packet) bool {
	for r.queue.Len() > 0 {
		w := r.queue.Oldest()
		if w.Local == nil {
			return r.makePacket(w, p)
		}
		if status := w.Local.Perform(); status != rc.Success {
			r.fail(status)
			return false
		}
		r.finish(rc.Success)
	}
	return false
}

// makePacket makes the next packet of w, the oldest request; false if its memory cannot be read.
func (r *requester) makePacket(w *request, p *roce.Packet) bool {
	n := min(w.length-r.done, int64(r.q.connection.MTU))
	if w.inlined {
		if n > 0 {
			p.Payload = append(p.Payload, w.Inline[r.done:r.done+n])
		}
	} else {
		var ok bool
		if p.Payload, ok = r.gather.Resolve(p.Payload, r.q.config.Memory, w.SGL, r.done, int(n), rc.LocalRead); !ok {
			r.fail(rc.LocalProtection)
			return false
		}
	}
	ends := r.done+n == w.length
	p.Header = roce.Header{Opcode: w.Op.Opcode(r.starts, ends).Unreliable(), PSN: r.psn}
	if p.Header.Opcode.HasRETH() {
		p.Header.VA, p.Header.RKey, p.Header.DMALength = w.VA, w.Token, uint32(w.length)
	}
	if ends && w.Op != rc.OpWrite {
		p.Header.Solicited = w.Solicited
	}
	if p.Header.Opcode.HasImmediate() {
		p.Header.Immediate = w.Immediate
	}
	r.psn = roce.PSNAdd(r.psn, 1)
	r.done += n
	r.starts = false
	if ends {
		r.finish(rc.Success)
	}
	return true
}

// finish completes the oldest request.
func (r *requester) finish(status rc.Status) {
	w := r.queue.Oldest()
	if status != rc.Success || !w.Silent {
		r.q.complete(w.Op, status, w.Context)
	}
	w.Context, w.Local = nil, nil
	r.queue.Drop()
	r.begin()
}

// fail completes the oldest request with status and flushes all others. Receiving does not depend on it.
func (r *requester) fail(status rc.Status) {
	r.finish(status)
	r.flush()
	r.q.failed = true
}

func (r *requester) flush() {
	for r.queue.Len() > 0 {
		r.finish(rc.Flushed)
	}
}
