package rc

import (
	"math"
	"math/bits"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

const (
	// maxChunk is the most that one READ on the wire asks for, in packets.
	maxChunk = 32
	// minTimer is the shortest time to set a timer for.
	minTimer = 20 * time.Microsecond
	// ackReqInterval is the most packets that go without an AckReq.
	ackReqInterval = 16
	// maxOutstanding is the most PSNs in flight. 2^23 is where comparing them
	// fails (roce.md 5).
	maxOutstanding = 1 << 22
)

// A request is one slot of the send queue. It occupies the sequence numbers
// from first up to end, and is split into packets by them alone: packet i
// carries the bytes from i x MTU. A local operation occupies none.
//
// It is as small as can be: 96 bytes. Of 16,384 slots nothing is left in a processor's
// cache when their turn comes again, and the time to post grows by what is to be fetched.
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
	silent      bool
	fence       bool
	solicited   bool
	invalidate  bool // the token of the first piece, when a READ is complete

	// status is why the request cannot go on, found when a packet of it was
	// made or it was performed, and told when it is the oldest.
	status Status
}

// inlined is request.pieces where the payload has been copied.
const inlined = -1

// A requester is the half of a QP that carries out what the consumer posts.
//
// Requests are numbered in posting order; request i is in slot i modulo the
// length of the ring, a power of two, which grows up to the depth of the queue as there
// are more at once. Those in [head, tail) are not complete. A cursor walks through them,
// making packets; to resend, it goes back (go-back-N, roce.md 6.5). So there is
// no record of single packets, only of how far each of these has got:
//
//	una       next              max
//	 |---------|-----------------|----------- sequence numbers
//	 in flight   to be sent again  not yet sent
//
// With a responder that keeps packets which arrive early, the cursor does not
// go back, next is max, and a record of the range [una, max) says what is to be
// sent again (scoreboard.go, repair.go).
type requester struct {
	q                  *QP
	ring               []request
	pieces             []SGE  // of the slots, MaxSGE each
	inline             []byte // likewise, MaxInline each
	operands           *operandRing
	head, tail, cursor int64
	readsPosted        int64 // and atomics, ever
	readsDone          int64 // likewise, complete
	chunk              int64 // the most that one READ on the wire asks for, in packets

	una, next, max int64 // as in the picture; the cursor's request contains next, or is local
	posted         int64 // end of the newest request
	postedCost     int64 // of all requests ever posted
	inFlight       int64 // bytes of [una, next), as window counts them
	reads          int   // READs on the wire and atomics in [una, next)
	wentBack       int64 // una when the cursor last went back
	wentBackAt     time.Duration
	discarded      int64 // what was in flight then, in bytes
	resent         int64 // end of what has ever been sent more than once

	gather   Position // in the SGL of the request that a packet was last made of
	gatherOf int64    // its first sequence number
	sink     Position // in the SGL of the oldest request, a READ
	ranges   [][]byte // scratch

	roundTrip     roundTrip
	window        window
	probe         probe
	creditLimited bool          // nextPacket last made none for want of credit
	onlyOne       bool          // one packet only, until something is acknowledged
	waitingRNR    bool          // for rnrUntil (roce.md 6.3, 7)
	sinceAckReq   int8          // packets since the last AckReq
	rnrLeft       int8          // RNR NAKs to put up with until there is progress
	ptoCount      int8          // times that the timer has run out since heardAt, 2 at most
	retries       int8          // times that the oldest packet was sent again
	rnrUntil      time.Duration // when to try again
	recheckAt     time.Duration // when to ask for a packet again, though nothing arrives; 0 for not
	ptoAt         time.Duration // when to ask how far the responder is, if anything is in flight
	progressAt    time.Duration // when something was last acknowledged, or first sent
	heardAt       time.Duration // when the responder last said anything
	path          peerPath

	repair      *repair // while something is missing
	spareRepair *repair // the last one, which the next one reuses
	outstanding int64   // the most that may be in [una, max)
}

func (r *requester) init(q *QP) {
	*r = requester{q: q}
	r.resize(min(initialSlots, slotsFor(q.config.SendDepth)))
}

// initialSlots is the number of slots at first, unless SendDepth is less. Few of ten
// thousand connections ever use all that they might.
const initialSlots = 2

// slotsFor returns the number of slots that a queue of a depth takes: a power of two.
func slotsFor(depth int) int { return 1 << bits.Len(uint(depth-1)) }

// resize moves the requests, which are in all slots that there are, to a longer ring.
func (r *requester) resize(slots int) {
	config := &r.q.config
	ring := make([]request, slots)
	for i := r.head; i < r.tail; i++ {
		ring[i&int64(slots-1)] = *r.slot(i)
	}
	for i, place := r.tail, len(r.ring); place < slots; i, place = i+1, place+1 {
		ring[i&int64(slots-1)].place = uint32(place)
	}
	r.ring = ring
	r.pieces = append(make([]SGE, 0, slots*config.MaxSGE), r.pieces...)[:slots*config.MaxSGE]
	r.inline = append(make([]byte, 0, slots*config.MaxInline), r.inline...)[:slots*config.MaxInline]
	r.operands.resize(slots)
}

func (r *requester) connect() {
	c := &r.q.connection
	start := int64(c.SendPSN & roce.PSNMask)
	r.una, r.next, r.max, r.posted, r.resent = start, start, start, start, start
	r.outstanding = maxOutstanding
	r.wentBack = start - 1
	r.rnrLeft = int8(c.RNRRetryCount)
	r.roundTrip = newRoundTrip(c)
	r.window = newWindow(c)
	// Responses that are asked for cannot be held back, so they must fit the
	// receive buffer, and twice, or the next would be asked for too late.
	r.chunk = min(maxChunk, max(1, r.window.credit/r.window.packet/2))
}

func (r *requester) slot(index int64) *request { return &r.ring[index&int64(len(r.ring)-1)] }

func (r *requester) post(p *Request) error {
	config, c := &r.q.config, &r.q.connection
	switch {
	case p.Op < OpSend || p.Op > OpInvalidate, p.Op.isLocal() && p.Local == nil:
		return ErrOperation
	case p.Op.isAnswered() && c.InitiatorDepth == 0:
		return ErrNoReads
	case p.Op >= OpRead && p.Inline != nil, len(p.Inline) > config.MaxInline:
		return ErrInline
	case p.Inline == nil && len(p.SGL) > config.MaxSGE:
		return ErrSGL
	case r.tail-r.head == int64(config.SendDepth):
		return ErrFull
	}
	length := int64(len(p.Inline))
	if p.Inline == nil {
		length = LengthOf(p.SGL)
	}
	switch {
	case length > MaxMessage:
		return ErrTooLong
	case p.Op.isAtomic():
		if p.VA%atomicBytes != 0 || length < atomicBytes && p.Op != OpAtomicWrite {
			return ErrAtomic
		}
		length = atomicBytes
	}
	end := r.posted
	if !p.Op.isLocal() {
		end += packets(length, c.MTU)
	}
	if r.tail-r.head == int64(len(r.ring)) {
		r.resize(2 * len(r.ring))
	}
	// Every field is set, each in its place: see QP.complete.
	w := r.slot(r.tail)
	w.op, w.context, w.local, w.status = p.Op, p.Context, p.Local, Success
	w.va, w.token, w.length = p.VA, p.Token, length
	w.silent, w.fence, w.solicited, w.invalidate = p.Silent, p.Fence, p.Solicited, p.InvalidateLocal
	w.first, w.end, w.readsBefore, w.costBefore = r.posted, end, r.readsPosted, r.postedCost
	if p.Inline != nil {
		w.pieces = inlined
		copy(r.inlineOf(w), p.Inline)
	} else {
		w.pieces = int16(len(p.SGL))
		copy(r.sglOf(w), p.SGL)
	}
	if p.Op.hasOperands() {
		r.setOperands(w, p)
	}
	if p.Op.isAnswered() {
		r.readsPosted++
	}
	r.posted = end
	r.postedCost += r.cost(w, w.first, end)
	r.tail++
	return nil
}

// sglOf returns the SGL of a request that is not inlined.
func (r *requester) sglOf(w *request) []SGE {
	at := int(w.place) * r.q.config.MaxSGE
	return r.pieces[at : at+int(w.pieces)]
}

// inlineOf returns the payload of a request that is inlined.
func (r *requester) inlineOf(w *request) []byte {
	at := int(w.place) * r.q.config.MaxInline
	return r.inline[at : at+int(w.length)]
}

// packets returns the number of packets of a message: one even if it is empty.
func packets(length int64, mtu int) int64 {
	return max(1, (length+int64(mtu)-1)/int64(mtu))
}

// bytesBefore returns the bytes of w that the packets before sequence number s carry.
func (r *requester) bytesBefore(w *request, s int64) int64 {
	return min(w.length, (s-w.first)*int64(r.q.connection.MTU))
}

// payloadAt returns the bytes of payload that packet s of w carries.
func (r *requester) payloadAt(w *request, s int64) int64 {
	return r.bytesBefore(w, s+1) - r.bytesBefore(w, s)
}

// cost returns what the packets of w in [from, to) count in the window: those of a
// request to write or send, or those that answer a READ.
func (r *requester) cost(w *request, from, to int64) int64 {
	return r.bytesBefore(w, to) - r.bytesBefore(w, from) + (to-from)*PacketOverhead
}

// chunkEnd returns the end of the READ on the wire that sequence number s is part
// of. It depends on nothing that changes, so a chunk that is asked for again,
// whole or in part, ends where it did (roce.md 6.5).
func (r *requester) chunkEnd(w *request, s int64) int64 {
	return min(w.end, s+r.chunk-(s-w.first)%r.chunk)
}

// mayBeRefused reports whether the next request to be sent is other than a mere SEND.
func (r *requester) mayBeRefused() bool {
	if r.cursor == r.tail {
		return false
	}
	op := r.slot(r.cursor).op
	return op != OpSend && op != OpSendImmediate
}

// nextPacket makes the next packet, having performed the local operations
// before it; false if there is none, or not now.
func (r *requester) nextPacket(now time.Duration, p *roce.Packet) bool {
	r.creditLimited = false
	if r.waitingRNR && now < r.rnrUntil {
		return false
	}
	if r.probe.pending {
		r.makeProbe(now, p)
		return true
	}
	if r.repair != nil && r.somethingLost(now) {
		return r.resend(now, p)
	}
	if r.cursor == r.tail {
		return false
	}
	w := r.slot(r.cursor)
	if r.q.draining && w.first == r.next && r.next == r.max {
		return false
	}
	if w.op.isLocal() {
		if w = r.performLocal(); w == nil {
			return false
		}
	}
	if w.status != Success {
		return false
	}
	if w.fence && w.readsBefore > r.readsDone {
		return false // roce.md 6.2
	}
	end, answered := r.next+1, w.op.isAnswered()
	if answered {
		end = r.chunkEnd(w, r.next)
		c := &r.q.connection
		if r.reads >= c.readsOnWire(c.InitiatorDepth) || r.next == w.first && w.readsBefore-r.readsDone >= int64(c.InitiatorDepth) {
			return false // NDK-RL-07
		}
	}
	cost := r.cost(w, r.next, end)
	limit := r.limit()
	if !r.fits(cost, limit) {
		return false
	}
	if r.inFlight > 0 && (end-r.una > r.outstanding || r.waitForDiscarded(now, limit-r.inFlight-cost)) {
		return false
	}
	if !r.makePacket(w, r.next, end, p) {
		return false
	}
	ask := answered || end == w.end || r.sinceAckReq+1 >= ackReqInterval ||
		r.inFlight+2*cost > limit // no other will fit
	p.Header.AckReq = ask
	r.noteSent(now, w, end, cost, ask)
	return true
}

// fits reports whether cost bytes more may be in flight, where limit is the limit.
// Whatever it is, one packet may, unless there is no credit at all; and to send the
// oldest packet again takes none.
func (r *requester) fits(cost, limit int64) bool {
	if r.inFlight+cost <= limit || r.inFlight == 0 && (r.window.credit > 0 || r.una < r.max) {
		return true
	}
	r.creditLimited = r.inFlight == 0 || r.window.creditLimited(limit)
	return false
}

// limit returns the most bytes that may be in flight.
func (r *requester) limit() int64 {
	if r.onlyOne || r.ptoCount > 1 {
		return 0
	}
	return r.window.limit()
}

// makePacket makes the packet for [s, end) of w, which is more than one sequence number of a
// READ only; false if its memory cannot be read.
func (r *requester) makePacket(w *request, s, end int64, p *roce.Packet) bool {
	switch {
	case !w.op.isAnswered():
		return r.makeData(w, s, p)
	case w.op == OpRead:
		r.makeRead(w, s, end, p)
	default:
		r.makeAtomic(w, s, p)
	}
	return true
}

// makeRead makes the request for the part of w, a READ, from sequence number s
// up to end.
func (r *requester) makeRead(w *request, s, end int64, p *roce.Packet) {
	before := r.bytesBefore(w, s)
	p.Header = roce.Header{
		Opcode:    roce.ReadRequest,
		PSN:       psn(s),
		VA:        w.va + uint64(before),
		RKey:      w.token,
		DMALength: uint32(r.bytesBefore(w, end) - before),
	}
}

// makeData makes packet s of w, a SEND or WRITE; false if its memory cannot be read.
func (r *requester) makeData(w *request, s int64, p *roce.Packet) bool {
	offset, n := r.bytesBefore(w, s), r.payloadAt(w, s)
	if w.pieces == inlined {
		if n > 0 {
			p.Payload = append(p.Payload[:0], r.inlineOf(w)[offset:offset+n])
		}
	} else {
		if r.gatherOf != w.first {
			r.gather, r.gatherOf = Position{}, w.first
		}
		var ok bool
		p.Payload, ok = r.gather.Resolve(p.Payload[:0], r.q.config.Memory, r.sglOf(w), offset, int(n), LocalRead)
		if !ok {
			w.status = LocalProtection
			r.checkOldest()
			return false
		}
	}
	p.Header = roce.Header{PSN: psn(s)}
	starts, ends := s == w.first, s+1 == w.end
	p.Header.Opcode = w.op.Opcode(starts, ends)
	if starts && (w.op == OpWrite || w.op == OpWriteImmediate) {
		p.Header.VA, p.Header.RKey, p.Header.DMALength = w.va, w.token, uint32(w.length)
	}
	if !ends || w.op == OpWrite {
		return true
	}
	p.Header.Solicited = w.solicited
	switch w.op {
	case OpSendInvalidate:
		p.Header.InvalidateKey = w.token
	case OpSendImmediate, OpWriteImmediate:
		p.Header.Immediate = r.operandsOf(w).immediate
	}
	return true
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

// byPlace picks an opcode by a packet's place in its message.
func byPlace(starts, ends bool, first, middle, last, only roce.Opcode) roce.Opcode {
	switch {
	case starts && ends:
		return only
	case starts:
		return first
	case ends:
		return last
	}
	return middle
}

// noteSent notes that the packet for [next, end) of w, the cursor's request, is
// on its way.
func (r *requester) noteSent(now time.Duration, w *request, end, cost int64, ask bool) {
	if r.una == r.max {
		r.progressAt = now
	}
	if r.una == r.next {
		r.ptoAt = now + r.roundTrip.timeout()
	}
	r.waitingRNR = false
	if r.next < r.max {
		r.countRetry(r.next)
		r.q.counters.Retransmitted++
		r.resent = max(r.resent, end)
	} else if ask {
		r.window.mark(now, r.next, r.inFlight)
	}
	if r.repair != nil {
		r.recordSent(r.next, end, now)
	}
	r.sinceAckReq++
	if ask {
		r.sinceAckReq = 0
	}
	if w.op.isAnswered() {
		r.reads++
	}
	r.inFlight += cost
	r.next = end
	r.max = max(r.max, end)
	if end == w.end {
		r.cursor++
	}
}

// goBack moves the cursor to the oldest packet that is not acknowledged.
func (r *requester) goBack(now time.Duration) {
	r.discarded = r.inFlight + r.bytesDiscarded(now)
	r.next, r.cursor = r.una, r.head
	r.inFlight, r.reads = 0, 0
	r.wentBack, r.wentBackAt = r.una, now
}

// bytesDiscarded returns how much of what was in flight when the cursor went back is
// still on its way, to be thrown away on arrival. Sending a whole window on top
// of it would overflow what the window is made to fit. It arrives, as it was
// sent, over one round trip.
func (r *requester) bytesDiscarded(now time.Duration) int64 {
	if r.discarded == 0 {
		return 0
	}
	left := 1 - float64(now-r.wentBackAt)/float64(max(1, r.roundTrip.srtt))
	if left <= 0 {
		r.discarded = 0
	}
	return int64(left * float64(r.discarded))
}

// waitForDiscarded reports whether packets that will be discarded take up more than the room that there is,
// and if so has the timer try again a little later.
func (r *requester) waitForDiscarded(now time.Duration, room int64) bool {
	if r.bytesDiscarded(now) <= room {
		return false
	}
	r.recheckAt = now + max(r.roundTrip.srtt/32, minTimer)
	return true
}

// deadline returns the end of an RNR wait, or else the earliest of the times to give
// up, to ask and to go on sending.
func (r *requester) deadline() (time.Duration, bool) {
	if r.una == r.max {
		return 0, false
	}
	if r.waitingRNR {
		return r.rnrUntil, true
	}
	at, ok := r.giveUpAt()
	if r.next > r.una && (!ok || r.ptoAt < at) {
		at, ok = r.ptoAt, true
	}
	if r.recheckAt > 0 && (!ok || r.recheckAt < at) {
		at, ok = r.recheckAt, true
	}
	return at, ok
}

// giveUpAt returns the time at which a NIC would have used up its retries; false if never.
// A peer that says anything at all is there, so the time counts since it last did. If that
// does not help, as where only short packets pass, it counts since the last progress as soon
// as the oldest packet has been sent as often as a NIC would. On a path that is slower than
// the AckTimeout, as behind a deep queue, a retry takes as long as the path. A peer that is
// dead is given up after RetryCount+1 AckTimeouts at the earliest, and at the latest after
// those or longestSilence, whichever is longer; where the path was never measured to be
// slow, after longestUnmeasured. A peer whose answer may wait behind what else comes from its
// address is waited for while that comes (peerPath).
func (r *requester) giveUpAt() (time.Duration, bool) {
	c := &r.q.connection
	if c.AckTimeout == 0 {
		return 0, false
	}
	since, useless := max(r.progressAt, r.heardAt), int(r.retries) > c.RetryCount
	if useless {
		since = r.progressAt
	}
	tries := time.Duration(c.RetryCount + 1)
	measured := min(tries*r.roundTrip.rto(), longestSilence)
	supposed := min(tries*max(r.roundTrip.upperBound(), r.path.known.Slow), longestUnmeasured)
	at := since + max(tries*c.AckTimeout, measured, supposed)
	if r.ptoCount > 0 && !useless && r.path.answerMayBeUnderWay() {
		at = max(at, min(r.path.known.Heard+tries*c.AckTimeout, since+longestSilence))
	}
	return at, true
}

// longestSilence bounds the time of a path that is slower than the AckTimeout: as long as
// there may be between the two halves of making a connection.
const longestSilence = 90 * time.Second

// longestUnmeasured does so for a path of which only an upper bound is known: what an
// outage has held up looks the same.
const longestUnmeasured = 15 * time.Second

// countRetry counts the retries of the oldest packet: that with sequence number s is sent
// again.
func (r *requester) countRetry(s int64) {
	if s == r.una && r.retries < math.MaxInt8 {
		r.retries++
	}
}

func (r *requester) handleTimeout(now time.Duration) {
	switch {
	case r.una == r.max:
		return
	case r.waitingRNR:
		r.waitingRNR = now < r.rnrUntil
		return
	}
	if now >= r.recheckAt {
		r.recheckAt = 0
		if r.repair != nil {
			r.repair.news = true
		}
	}
	if at, ok := r.giveUpAt(); ok && now >= at {
		r.fail(r.head, RetryExceeded)
		return
	}
	if r.next > r.una && now >= r.ptoAt {
		r.q.counters.Timeouts++
		r.roundTrip.backOff()
		r.probe.pending = true
		if r.ptoCount == 0 {
			r.path.askedAt = now
		}
		r.ptoCount = min(r.ptoCount+1, 2)
		r.ptoAt = now + r.roundTrip.timeout()
	}
}

// finish completes the oldest request.
func (r *requester) finish(status Status) {
	w := r.slot(r.head)
	if status != Success || !w.silent {
		r.q.complete(w.op, status, w.context)
	}
	if w.op.isAnswered() {
		r.readsDone++
	}
	w.context, w.local = nil, nil
	r.head++
	r.cursor = max(r.cursor, r.head)
	r.sink = Position{}
}

// checkOldest fails the QP if the oldest request is one that cannot go on.
func (r *requester) checkOldest() {
	if r.head < r.tail {
		if status := r.slot(r.head).status; status != Success {
			r.fail(r.head, status)
		}
	}
}

// fail completes the request with the given index with status, flushes all
// others and takes the QP to Error.
func (r *requester) fail(index int64, status Status) {
	for r.head < index {
		r.finish(Flushed)
	}
	r.finish(status)
	r.q.responder.clearReplies()
	r.q.enterError()
}

func (r *requester) flush() {
	for r.head < r.tail {
		r.finish(Flushed)
	}
}
