package rc

import (
	"encoding/binary"
	"math/bits"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A request is one slot of the send queue. It occupies the sequence numbers
// from first up to end, and is split into packets by them alone (segmentation).
// A local operation occupies none.
//
// A slot has 96 bytes. A deep queue does not fit the processor's caches, so the time to
// post grows with the size of a slot.
type request struct {
	context     any
	local       LocalOperation // nil once performed
	length      int64
	va          uint64
	first, end  int64
	readsBefore int64 // answered requests posted before
	costBefore  int64 // of all requests posted before
	token       uint32
	place       uint32 // of the slot's SGL and inline data
	pieces      int16  // of the SGL, or inlined
	op          Op
	flags       requestFlags

	// status is other than Success when the request cannot go on. The QP fails with it
	// when the request is the oldest.
	status Status
}

// inlined is request.pieces where the payload has been copied.
const inlined = -1

// requestFlags are bits of a request.
type requestFlags uint8

const (
	isSilent requestFlags = 1 << iota
	isFenced
	isSolicited
	invalidates // the token of the first piece, when a READ is complete
	isApart     // each packet of a WRITE is a message: see evenPackets
)

// has reports whether f has a flag.
func (f requestFlags) has(flag requestFlags) bool { return f&flag != 0 }

// setIf sets a flag if condition holds.
func (f *requestFlags) setIf(condition bool, flag requestFlags) {
	if condition {
		*f |= flag
	}
}

// A sendQueue has the requests that are posted and not complete, and how far each
// sequence number has got.
//
// Requests are numbered in posting order; request i is in slot i modulo the
// length of the ring, a power of two, which grows up to the depth of the queue as there
// are more at once. Those in [head, tail) are not complete. The cursor is the next request
// to make packets of. Of single packets there is no record, only these sequence numbers
// (RFC 9293 has una as SND.UNA and next as SND.NXT):
//
//	una       next              max             posted
//	 |---------|-----------------|----------------|
//	 in flight   to be sent again  not yet sent
//
// head's request contains una, the cursor's contains next or is a local operation, and the newest
// ends at posted. Only go-back-N has next below max.
type sendQueue struct {
	segmentation
	config      *Config
	completions *completions

	ring     []request
	pieces   []SGE  // of the slots, MaxSGE each
	inline   []byte // likewise, MaxInline each
	operands *operandRing

	head, tail, cursor     int64
	una, next, max, posted int64
	resent                 int64    // end of what has ever been sent more than once
	postedCost             int64    // of all requests ever posted
	readsPosted, readsDone int64    // READs and atomics ever posted, and complete
	granted                *grant   // by the peer; nil before the first
	gather                 Position // in the SGL of the request that a packet was last made of
	gatherOf               int64    // the first sequence number of that request
	readsOnWire            int32    // READ requests and atomics in [una, next)
	sinceAckReq            int8     // packets since the last AckReq
}

func (q *sendQueue) init(config *Config, done *completions) {
	q.config, q.completions = config, done
}

// initialSlots is the number of slots from the first request on, unless SendDepth is less. Of ten
// thousand connections many are never used, and few use all that they might.
const initialSlots = 2

// slotsFor returns the number of slots that a queue of a depth takes: a power of two.
func slotsFor(depth int) int { return 1 << bits.Len(uint(depth-1)) }

// resize moves the requests, which are in all slots that there are, to a longer ring.
func (q *sendQueue) resize(slots int) {
	ring := make([]request, slots)
	for i := q.head; i < q.tail; i++ {
		ring[i&int64(slots-1)] = *q.slot(i)
	}
	for i, place := q.tail, len(q.ring); place < slots; i, place = i+1, place+1 {
		ring[i&int64(slots-1)].place = uint32(place)
	}
	q.ring = ring
	q.pieces = append(make([]SGE, 0, slots*q.config.MaxSGE), q.pieces...)[:slots*q.config.MaxSGE]
	q.inline = append(make([]byte, 0, slots*q.config.MaxInline), q.inline...)[:slots*q.config.MaxInline]
	q.operands.resize(slots)
}

// connect has the first request begin with a sequence number.
func (q *sendQueue) connect(start int64, s segmentation) {
	q.segmentation = s
	q.una, q.next, q.max, q.posted, q.resent = start, start, start, start, start
}

func (q *sendQueue) slot(index int64) *request { return &q.ring[index&int64(len(q.ring)-1)] }

// oldest returns the request at head, which there is.
func (q *sendQueue) oldest() *request { return q.slot(q.head) }

// indexOf returns the index of the request that a sequence number in [una, posted) is
// part of.
func (q *sendQueue) indexOf(s int64) int64 {
	low, high := q.head, q.tail-1
	for low < high {
		if middle := (low + high) / 2; q.slot(middle).end > s {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// requestAt returns the request that a sequence number in [una, posted) is part of.
func (q *sendQueue) requestAt(s int64) *request { return q.slot(q.indexOf(s)) }

// post queues a request. The connection allows initiatorDepth READs and atomics at once.
func (q *sendQueue) post(p *Request, initiatorDepth int) error {
	length, err := q.check(p, initiatorDepth)
	if err != nil {
		return err
	}
	end := q.posted
	if !p.Op.isLocal() {
		end += packets(length, int(q.mtu))
	}
	if q.tail-q.head == int64(len(q.ring)) {
		q.resize(max(2*len(q.ring), min(initialSlots, slotsFor(q.config.SendDepth))))
	}
	// Every field is set, each in its place: see completions.add.
	w := q.slot(q.tail)
	w.op, w.context, w.local, w.status = p.Op, p.Context, p.Local, Success
	w.va, w.token, w.length = p.VA, p.Token, length
	w.flags = 0
	w.flags.setIf(p.Silent, isSilent)
	w.flags.setIf(p.Fence, isFenced)
	w.flags.setIf(p.Solicited, isSolicited)
	w.flags.setIf(p.InvalidateLocal, invalidates)
	w.flags.setIf(q.even && p.Op == OpWrite && q.granted != nil && q.granted.covers(p.Token, p.VA, length), isApart)
	w.first, w.end, w.readsBefore, w.costBefore = q.posted, end, q.readsPosted, q.postedCost
	if p.Inline != nil {
		w.pieces = inlined
		copy(q.inlineOf(w), p.Inline)
	} else {
		w.pieces = int16(len(p.SGL))
		copy(q.sglOf(w), p.SGL)
	}
	if p.Op.hasOperands() {
		q.setOperands(w, p)
	}
	if p.Op.isAnswered() {
		q.readsPosted++
	}
	q.posted = end
	q.postedCost += q.cost(w, w.first, end)
	q.tail++
	return nil
}

// check returns the length of the message that p asks for, or why it cannot be posted.
func (q *sendQueue) check(p *Request, initiatorDepth int) (length int64, err error) {
	switch {
	case p.Op < OpSend || p.Op > OpInvalidate, p.Op.isLocal() && p.Local == nil:
		return 0, ErrOperation
	case p.Op.isAnswered() && initiatorDepth == 0:
		return 0, ErrNoReads
	case p.Op >= OpRead && p.Inline != nil, len(p.Inline) > q.config.MaxInline:
		return 0, ErrInline
	case p.Inline == nil && len(p.SGL) > q.config.MaxSGE:
		return 0, ErrSGL
	case q.tail-q.head == int64(q.config.SendDepth):
		return 0, ErrFull
	}
	length = int64(len(p.Inline))
	if p.Inline == nil {
		length = LengthOf(p.SGL)
	}
	switch {
	case length > MaxMessage:
		return 0, ErrTooLong
	case p.Op.isAtomic():
		if p.VA%atomicBytes != 0 || length < atomicBytes && p.Op != OpAtomicWrite {
			return 0, ErrAtomic
		}
		length = atomicBytes
	}
	return length, nil
}

// sglOf returns the SGL of a request that is not inlined.
func (q *sendQueue) sglOf(w *request) []SGE {
	at := int(w.place) * q.config.MaxSGE
	return q.pieces[at : at+int(w.pieces)]
}

// inlineOf returns the payload of a request that is inlined.
func (q *sendQueue) inlineOf(w *request) []byte {
	at := int(w.place) * q.config.MaxInline
	return q.inline[at : at+int(w.length)]
}

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
func (q *sendQueue) setOperands(w *request, p *Request) {
	if q.operands == nil {
		q.operands = new(operandRing)
		*q.operands = make(operandRing, len(q.ring))
	}
	o := q.operandsOf(w)
	o.immediate, o.operand, o.compare = p.Immediate, p.Operand, p.Compare
	binary.NativeEndian.PutUint64(o.stored[:], p.Operand)
}

func (q *sendQueue) operandsOf(w *request) *operands { return &(*q.operands)[w.place] }

// isOutstanding reports whether anything has been sent and not acknowledged.
func (q *sendQueue) isOutstanding() bool { return q.una < q.max }

// isDrained reports whether no request has begun that is not complete.
func (q *sendQueue) isDrained() bool {
	return !q.isOutstanding() && (q.cursor == q.tail || q.slot(q.cursor).first == q.next)
}

// A SendQueueState says how far the requests of a QP have got.
type SendQueueState struct {
	Posted   int64 // requests ever posted
	Unsent   int64 // packets, or READs and atomics in packets of their response, posted and not sent
	InFlight int64 // those sent and not acknowledged
	Room     int   // requests that may be outstanding besides
	Drained  bool  // no request has begun that is not complete
}

// SendQueue returns how far the requests have got.
func (q *QP) SendQueue() SendQueueState {
	s := &q.requester.queue
	return SendQueueState{
		Posted: s.tail, Unsent: s.posted - s.max, InFlight: s.max - s.una,
		Room: q.config.SendDepth - int(s.tail-s.head), Drained: s.isDrained(),
	}
}

// isFenced reports whether w has to wait for earlier READs and atomics (roce.md 6.2).
func (q *sendQueue) isFenced(w *request) bool {
	return w.flags.has(isFenced) && w.readsBefore > q.readsDone
}

// mayBeRefused reports whether the next request to be sent is other than a mere SEND.
func (q *sendQueue) mayBeRefused() bool {
	if q.cursor == q.tail {
		return false
	}
	op := q.slot(q.cursor).op
	return op != OpSend && op != OpSendImmediate
}

// noteSent moves next to end: the packet for the numbers between, of w, the cursor's request, is on its way.
func (q *sendQueue) noteSent(w *request, end int64) {
	if q.next < q.max {
		q.resent = max(q.resent, end)
	}
	if w.op.isAnswered() {
		q.readsOnWire++
	}
	q.next = end
	q.max = max(q.max, end)
	if end == w.end {
		q.cursor++
	}
}

// goBack moves the cursor to the oldest packet that is not acknowledged.
func (q *sendQueue) goBack() { q.next, q.cursor, q.readsOnWire = q.una, q.head, 0 }

// unsentCost returns what the packets from next on count in the window.
func (q *sendQueue) unsentCost() int64 {
	if q.cursor == q.tail {
		return 0
	}
	w := q.slot(q.cursor)
	return q.postedCost - w.costBefore - q.cost(w, w.first, q.next)
}

// setUnreadable has the request fail that a packet is of, when it is the oldest.
func (q *sendQueue) setUnreadable(h *roce.Header) {
	at := extend(h.PSN, q.una)
	if at >= q.una && at < q.posted { // or it has arrived after all, when it was sent before
		q.requestAt(at).status = LocalProtection
	}
}

// finish completes the oldest request.
func (q *sendQueue) finish(status Status) {
	w := q.oldest()
	if status != Success || !w.flags.has(isSilent) {
		q.completions.add(w.op, status, w.context)
	}
	if w.op.isAnswered() {
		q.readsDone++
	}
	if q.even && w.op == OpWrite && status == Success {
		if q.granted == nil {
			q.granted = new(grant)
		}
		q.granted.add(w.token, w.va, w.length)
	}
	w.context, w.local = nil, nil
	q.head++
	q.cursor = max(q.cursor, q.head)
}

// flush completes every request.
func (q *sendQueue) flush() {
	for q.head < q.tail {
		q.finish(Flushed)
	}
}
