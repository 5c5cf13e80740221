package uc

import (
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A message is the one that the responder is in the middle of.
type message uint8

const (
	noMessage message = iota // also while the rest of one is dropped
	sendMessage
	writeMessage
)

// A responder is the half of a QP that carries out what the peer sends. It drops what it cannot carry
// out, up to the next message that begins, since an unreliable connection has no NAK.
type responder struct {
	q        *QP
	expected uint32 // PSN

	message message
	token   uint32 // of a WRITE
	va      uint64 // likewise
	length  int64  // likewise
	done    int64  // bytes of the message so far

	receive  rc.Receive  // the oldest, if it is taken
	taken    bool        // a message that is dropped leaves it to the next
	capacity int64       // bytes of receive
	sink     rc.Position // in receive.SGL
	ranges   [][]byte    // scratch
}

func (r *responder) handle(h *roce.Header, payload []byte) {
	op := h.Opcode
	kind := sendMessage
	if op.IsWrite() {
		kind = writeMessage
	}
	if h.PSN != r.expected {
		r.q.counters.OutOfSequence++
		r.message = noMessage
	}
	r.expected = roce.PSNAdd(h.PSN, 1)
	if op.Starts() {
		r.message, r.done = kind, 0
	}
	ok := kind == r.message && rc.LengthFits(h, len(payload), r.q.connection.MTU)
	if ok {
		if kind == sendMessage {
			ok = r.executeSend(h, payload)
		} else {
			ok = r.executeWrite(h, payload)
		}
	}
	switch {
	case !ok:
		r.q.counters.Dropped++
		r.message = noMessage
	case r.q.state == rc.Ready && op.Ends():
		r.finishMessage(h)
	}
}

// holdReceive has r.receive be the oldest receive; false if there is none.
func (r *responder) holdReceive() bool {
	if !r.taken {
		r.taken = r.q.config.Receives.Take(&r.receive)
		r.capacity = rc.LengthOf(r.receive.SGL)
	}
	return r.taken
}

// executeSend places a packet of a SEND; false if it is to be dropped.
func (r *responder) executeSend(h *roce.Header, payload []byte) bool {
	if h.Opcode.Starts() {
		r.sink = rc.Position{}
		if !r.holdReceive() {
			return false
		}
	}
	if r.done+int64(len(payload)) > r.capacity {
		r.fail(rc.LocalLength)
		return true
	}
	var ok bool
	r.ranges, ok = r.sink.Resolve(r.ranges[:0], r.q.config.Memory, r.receive.SGL, r.done, len(payload), rc.LocalWrite)
	if !ok || !r.q.config.Scatter(r.ranges, payload, true) {
		r.fail(rc.LocalProtection)
		return true
	}
	r.done += int64(len(payload))
	return true
}

// executeWrite places a packet of a WRITE, having checked the token for the whole message first, and
// again with each packet, since it may be invalidated meanwhile; false if it is to be dropped.
func (r *responder) executeWrite(h *roce.Header, payload []byte) bool {
	if r.q.connection.Rights&rc.AllowWrite == 0 {
		return false
	}
	va, check := r.va+uint64(r.done), uint32(len(payload))
	if h.Opcode.Starts() {
		r.va, r.token, r.length = h.VA, h.RKey, int64(h.DMALength)
		va, check = h.VA, h.DMALength
	}
	left := r.length - r.done
	mtu := int64(r.q.connection.MTU)
	if r.length > rc.MaxMessage || int64(len(payload)) != min(left, mtu) || h.Opcode.Ends() != (left <= mtu) {
		return false
	}
	if h.Opcode.HasImmediate() && !r.holdReceive() {
		return false
	}
	r.ranges = r.ranges[:0]
	if check > 0 {
		var ok bool
		if r.ranges, ok = r.q.config.Memory.Remote(r.ranges, r.token, va, check, rc.RemoteWrite); !ok {
			return false
		}
	}
	if !r.q.config.Scatter(r.ranges, payload, true) {
		return false
	}
	r.done += int64(len(payload))
	return true
}

// finishMessage completes the receive that the message takes, if any.
func (r *responder) finishMessage(h *roce.Header) {
	kind := r.message
	r.message = noMessage
	if kind == writeMessage && !h.Opcode.HasImmediate() {
		return
	}
	c := r.finish(rc.Success)
	c.Bytes, c.Solicited, c.Immediate = uint32(r.done), h.Solicited, h.Immediate
	switch {
	case kind == writeMessage:
		c.Op = rc.OpReceiveWrite
	case h.Opcode.HasImmediate():
		c.Op = rc.OpReceiveImmediate
	}
}

// fail completes the receive with status and takes the QP to Error.
func (r *responder) fail(status rc.Status) {
	r.finish(status)
	r.q.enterError()
}

// finish completes the receive that is taken.
func (r *responder) finish(status rc.Status) *rc.Completion {
	context := r.receive.Context
	r.receive.Context = nil
	r.taken = false
	return r.q.complete(rc.OpReceive, status, context)
}

// flush completes every receive that is this QP's own.
func (r *responder) flush() {
	if r.taken {
		r.finish(rc.Flushed)
	}
	for !r.q.config.SharedReceives && r.holdReceive() {
		r.finish(rc.Flushed)
	}
}
