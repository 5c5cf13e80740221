package rc

import "github.com/ndklab/ndklab/internal/provider/roce"

// A message is the one that the responder is in the middle of.
type message uint8

const (
	noMessage message = iota
	sendMessage
	writeMessage
)

// A responder is the half of a QP that carries out what the peer requests
// (roce.md 7). Its answers are kept in replies and sent when asked for.
type responder struct {
	q        *QP
	expected int64  // next sequence number (ePSN)
	msn      uint32 // messages completed
	nakSent  bool   // a packet ahead has been refused since expected last arrived
	taken    bool   // receive is
	told     bool   // a receive is complete, and the peer has not been told

	message message
	refused uint32 // the last packet ahead that was ever refused, less what is above 32 bits
	token   uint32 // of a WRITE
	va      uint64 // likewise
	length  int64  // likewise
	done    int64  // bytes of the message so far

	receive  Receive  // taken, and to be completed by this message
	capacity int64    // bytes of receive
	sink     Position // in receive.SGL

	replies replies
	early   *earlyStore // requests that arrived before one that is missing; nil if none lately
	ranges  [][]byte    // scratch
}

func (r *responder) connect() {
	c := &r.q.connection
	r.expected = int64(c.ReceivePSN & roce.PSNMask)
	r.refused = uint32(r.expected) - 1
	r.replies.selective, r.replies.even = c.Selective, c.Selective && c.evenPackets()
}

// handle takes a packet from the peer's requester (roce.md 7.1, step 2).
func (r *responder) handle(h *roce.Header, payload []byte) {
	at := extend(h.PSN, r.expected)
	switch {
	case at == r.expected:
		r.nakSent = false
		if r.early != nil {
			r.executeAndResume(h, payload)
			return
		}
		r.execute(h, payload)
	case at < r.expected:
		if !isProbe(h, payload) {
			r.q.counters.Duplicates++
		}
		r.duplicate(h, at)
	default:
		r.q.counters.OutOfSequence++
		if r.q.connection.Selective {
			r.keepEarly(h, at, payload)
			return
		}
		if int32(uint32(at)-r.refused) > 0 {
			r.refused = uint32(at)
		}
		if !r.nakSent {
			r.nakSent = true
			r.replies.setNAK(roce.SyndromePSNSequence, r.expected)
		}
	}
}

// execute carries out the packet that is expected: steps 3 to 8 of roce.md 7.1,
// in that order, since the order decides which error a peer sees.
func (r *responder) execute(h *roce.Header, payload []byte) {
	op := h.Opcode
	kind := noMessage // READs, atomics and what nobody may
	switch {
	case op.IsSend():
		kind = sendMessage
	case op.IsWrite():
		kind = writeMessage
	}
	continues := r.message != noMessage
	if op.Starts() == continues || continues && kind != r.message {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	if !r.q.connection.Rights.allow(op) {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	switch {
	case op == roce.ReadRequest:
		r.executeRead(h, payload)
		return
	case op.IsAtomic():
		r.executeAtomic(h, payload)
		return
	}
	if kind == sendMessage && op.Starts() || kind == writeMessage && op.HasImmediate() {
		if !r.takeReceive() {
			// The sequence numbers behind this one will draw no NAK: the RNR
			// NAK says where to go on (roce.md 7.5).
			r.nakSent = true
			r.replies.setNAK(roce.SyndromeRNR|roce.Syndrome(r.q.connection.MinRNRTimer&31), r.expected)
			return
		}
	}
	fits := LengthFits(h, len(payload), r.q.connection.MTU)
	if !fits {
		r.q.counters.BadLengths++
	}
	if !fits || op.HasRETH() && h.DMALength > MaxMessage {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	if op.Starts() {
		r.message, r.done = kind, 0
	}
	if kind == sendMessage {
		r.executeSend(h, payload)
	} else {
		r.executeWrite(h, payload)
	}
}

// allow reports whether the peer may send a request of that kind. FLUSH nobody may.
func (r Rights) allow(op roce.Opcode) bool {
	switch {
	case op.IsSend():
		return true
	case op.IsWrite():
		return r&AllowWrite != 0
	case op == roce.ReadRequest:
		return r&AllowRead != 0
	case op == roce.AtomicWrite:
		return r&AllowAtomicWrite != 0
	case op.IsAtomic():
		return r&AllowAtomic != 0
	}
	return false
}

// LengthFits reports whether a request has as many bytes of payload as its opcode
// and the path MTU allow (roce.md 7.1, step 6).
func LengthFits(h *roce.Header, payload, mtu int) bool {
	op := h.Opcode
	switch {
	case op == roce.ReadRequest, op == roce.FetchAdd, op == roce.CompareSwap:
		return payload == 0
	case op == roce.AtomicWrite:
		return payload == atomicBytes && h.DMALength == atomicBytes
	case !op.Ends():
		return payload == mtu
	case op.IsLast():
		return payload > 0 && payload <= mtu
	}
	return payload <= mtu
}

// takeReceive has r.receive be the oldest receive; false if there is none. None is taken
// already, as whatever takes one completes it or ends the connection.
func (r *responder) takeReceive() bool {
	if !r.q.config.Receives.Take(&r.receive) {
		return false
	}
	r.taken = true
	r.capacity = LengthOf(r.receive.SGL)
	r.sink = Position{}
	return true
}

func (r *responder) executeSend(h *roce.Header, payload []byte) {
	if r.done+int64(len(payload)) > r.capacity {
		r.fail(LocalLength, roce.SyndromeInvalidRequest)
		return
	}
	var ok bool
	r.ranges, ok = r.sink.Resolve(r.ranges[:0], r.q.config.Memory, r.receive.SGL, r.done, len(payload), LocalWrite)
	if !ok || !r.q.config.Scatter(r.ranges, payload, h.Opcode.Ends()) {
		r.fail(LocalProtection, roce.SyndromeRemoteOperation)
		return
	}
	r.done += int64(len(payload))
	if h.Opcode.HasInvalidate() && !r.q.config.Memory.Invalidate(h.InvalidateKey) {
		r.fail(RemoteInvalidRequest, roce.SyndromeRemoteAccess)
		return
	}
	r.advance(h)
}

// executeWrite checks the token for the whole message first, and again with
// each packet, since it may be invalidated meanwhile.
func (r *responder) executeWrite(h *roce.Header, payload []byte) {
	va, check := r.va+uint64(r.done), uint32(len(payload))
	if h.Opcode.Starts() {
		r.va, r.token, r.length = h.VA, h.RKey, int64(h.DMALength)
		va, check = h.VA, h.DMALength
	}
	r.ranges = r.ranges[:0]
	if check > 0 {
		var ok bool
		r.ranges, ok = r.q.config.Memory.Remote(r.ranges, r.token, va, check, RemoteWrite)
		if !ok {
			r.fail(RemoteAccess, roce.SyndromeRemoteAccess)
			return
		}
	}
	left := r.length - r.done
	mtu := int64(r.q.connection.MTU)
	if int64(len(payload)) != min(left, mtu) || h.Opcode.Ends() != (left <= mtu) {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	if !r.q.config.Scatter(r.ranges, payload, h.Opcode.Ends()) {
		r.fail(RemoteAccess, roce.SyndromeRemoteAccess)
		return
	}
	r.done += int64(len(payload))
	r.advance(h)
}

// advance moves on behind a packet of a SEND or WRITE that has been executed.
func (r *responder) advance(h *roce.Header) {
	r.expected++
	r.closeGap()
	if h.AckReq {
		r.replies.acknowledge()
	}
	if !h.Opcode.Ends() {
		return
	}
	r.message = noMessage
	r.msn++
	if !r.taken {
		return
	}
	r.told = true
	c := r.finish(Success)
	c.Bytes, c.Solicited = uint32(r.done), h.Solicited
	switch {
	case h.Opcode.HasInvalidate():
		c.Op, c.Token = OpReceiveInvalidate, h.InvalidateKey
	case h.Opcode.IsWrite():
		c.Op, c.Immediate = OpReceiveWrite, h.Immediate
	case h.Opcode.HasImmediate():
		c.Op, c.Immediate = OpReceiveImmediate, h.Immediate
	}
}

// closeGap drops a NAK that waits: the packet that it asks for has arrived. If one behind it was refused meanwhile, the NAK asks for
// what is missing now, since the peer does not know (roce.md 7.1, step 2).
func (r *responder) closeGap() {
	if r.replies.nak == roce.SyndromePSNSequence && int32(r.refused-uint32(r.expected)) >= 0 {
		r.nakSent = true
		r.replies.setNAK(roce.SyndromePSNSequence, r.expected)
		return
	}
	r.replies.clearNAK()
}

// executeRead notes what is asked for; the bytes are read when the responses are
// made. Requests behind it are carried out before that, and the responses show it:
// only a fence, which the requester keeps, puts a SEND or WRITE behind an earlier
// READ (IBTA Vol. 1, 10.8.3.3, send queue ordering rules; roce.md 6.2). Only the
// answers must not overtake (roce.md 7.2).
func (r *responder) executeRead(h *roce.Header, payload []byte) {
	c := &r.q.connection
	fits := LengthFits(h, len(payload), c.MTU)
	if !fits {
		r.q.counters.BadLengths++
	}
	if !fits || !r.replies.hasResource(c.readsOnWire(c.ResponderResources)) || h.DMALength > MaxMessage {
		r.fail(RemoteInvalidRequest, roce.SyndromeInvalidRequest)
		return
	}
	if h.DMALength > 0 {
		var ok bool
		r.ranges, ok = r.q.config.Memory.Remote(r.ranges[:0], h.RKey, h.VA, h.DMALength, RemoteRead)
		if !ok {
			r.fail(RemoteAccess, roce.SyndromeRemoteAccess)
			return
		}
	}
	r.msn++
	end := r.expected + packets(int64(h.DMALength), r.q.connection.MTU)
	r.replies.addRead(h, r.expected, end, r.msn)
	r.expected = end
}

// duplicate answers a packet that has been executed before (roce.md 7.4).
func (r *responder) duplicate(h *roce.Header, at int64) {
	switch {
	case h.Opcode == roce.ReadRequest, h.Opcode.IsAtomic():
		r.replies.repeatRead(h, at, r.q.connection.MTU)
	case h.Opcode.IsSend(), h.Opcode.IsWrite():
		r.replies.answerDuplicate(r.acknowledgedEnd())
	}
	if r.early != nil && r.early.count > 0 {
		r.replies.report(r.early.end - 1) // the requester does not know much
	}
}

// fail refuses the packet that is expected, completes the receive that it
// would have completed, if any, with status, and takes the QP to Error. Next
// will still make what the peer must be told: the responses to earlier READs,
// then the NAK.
func (r *responder) fail(status Status, s roce.Syndrome) {
	r.q.refusal = status
	r.replies.duplicates = 0
	r.replies.setNAK(s, r.expected)
	if r.taken {
		r.finish(status)
	}
	r.q.enterError()
}

// finish completes the receive that is taken.
func (r *responder) finish(status Status) *Completion {
	context := r.receive.Context
	r.receive.Context = nil
	r.taken = false
	return r.q.completions.add(OpReceive, status, context)
}

// flush completes every receive that is this QP's own.
func (r *responder) flush() {
	if r.taken {
		r.finish(Flushed)
	}
	for !r.q.config.SharedReceives && r.takeReceive() {
		r.finish(Flushed)
	}
}

// clearReplies forgets whatever the peer has not been told, except that everything has been
// executed: if that was put off (HoldAcknowledgement), the peer need not suffer.
func (r *responder) clearReplies() {
	if r.replies.nextRead() != nil || r.replies.nak != 0 {
		r.replies = replies{}
	}
}
