package verbsoak

import (
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// An end is a queue pair, as often as it is connected anew.
type end struct {
	run          *run
	host         *host
	number       int
	kind         verbs.QPType
	qp           *verbs.QP
	qpn          uint32
	sendQueue    *queue
	receiveQueue *queue
	receives     *receives
	peer         *end // of a connection
	inline       int
	depth        int
	signalAll    bool

	states
	arriving

	failed  bool     // a request has failed: only flushes come
	cut     bool     // all that have were flushed, the first of which waited for more than an acknowledgement
	lossy   bool     // completions may be missing
	gone    bool     // destroyed
	written *written // nil: its consumer posts by calls alone

	mtu     int
	access  verbs.Access
	qkey    uint32
	rnr     uint8
	first   int64 // sequence number, of what it sends first
	next    int64 // of what is posted next
	pending []*request
	sends   []*request    // since it was connected, that take a receive at the peer
	heard   int           // of the peer's sends
	out     *trial.Stream // of a reliable connection

	ghosts []endedGrant
}

// states has the state of a queue pair, by the model.
type states struct {
	end     *end
	state   verbs.QPState // what it goes to by itself is seen by cause
	cause   bool          // something has happened by which it may be in Error
	last    bool          // EventLastWQEReached has come
	drained bool          // EventSendQueueDrained has come
	busy    bool          // something is scheduled that changes its state
}

// String names the end.
func (e *end) String() string { return fmt.Sprintf("%v end %d (QP %#x)", e.host, e.number, e.qpn) }

// newEnd makes a queue pair.
func (h *host) newEnd(kind verbs.QPType) *end {
	r := h.run
	if h.alive() > 12 {
		return nil
	}
	e := &end{run: r, host: h, number: len(r.ends), kind: kind, signalAll: r.Chance(0.3), depth: 16, inline: 128}
	e.states.end, e.arriving.end = e, e
	e.sendQueue, e.receiveQueue = trial.Pick(r.Rand, h.queues), trial.Pick(r.Rand, h.queues)
	if e.sendQueue.over || e.receiveQueue.over {
		return nil
	}
	config := verbs.QPConfig{
		Type: kind, SendCQ: e.sendQueue.cq, ReceiveCQ: e.receiveQueue.cq, SignalAll: e.signalAll,
		Capacity: verbs.Capacity{SendDepth: e.depth, ReceiveDepth: 24, SendSGEs: 4, ReceiveSGEs: 3, Inline: e.inline},
	}
	shared := verbs.UD
	if kind == verbs.RC {
		shared = verbs.RC
	}
	if s := h.srqs[shared]; s != nil && r.Chance(0.5) {
		e.receives, config.SRQ = s, s.srq
	} else {
		e.receives = &receives{host: h, end: e, depth: 24}
	}
	e.qp = made(h.pd.CreateQP(config))
	e.qpn = e.qp.Number()
	if config.SRQ == nil && r.Chance(0.5) {
		e.written = &written{}
		e.qp.UseQueues(e.written)
	}
	h.ends, r.ends = append(h.ends, e), append(r.ends, e)
	return e
}

// alive counts the ends that are not destroyed.
func (h *host) alive() (n int) {
	for _, e := range h.ends {
		if !e.gone {
			n++
		}
	}
	return n
}

// connect makes a pair of ends.
func (r *run) connect(kind verbs.QPType) {
	h := trial.Pick(r.Rand, r.hosts)
	a := h.newEnd(kind)
	if a == nil {
		return
	}
	b := h.other().newEnd(kind)
	if b == nil {
		a.destroy()
		return
	}
	a.peer, b.peer = b, a
	r.Logf("%v and %v are a pair", a, b)
	a.begin()
}

// datagrams makes an end for datagrams.
func (h *host) datagrams() {
	if e := h.newEnd(verbs.UD); e != nil {
		e.begin()
	}
}

// begin takes an end, and its peer, through the states up to sending, with pauses unless nothing may go wrong.
func (s *states) begin() {
	e := s.end
	r := e.run
	pair := []*end{e}
	if e.peer != nil {
		pair = append(pair, e.peer)
		e.mtu = min(e.host.context.GIDs()[0].MTU, e.peer.host.context.GIDs()[0].MTU)
		if e.mtu > 256 && r.Chance(0.3) {
			e.mtu = 256
		}
		e.peer.mtu = e.mtu
	}
	for _, x := range pair {
		// Far from what it was, so that old packets mean nothing, and often near the wrap.
		psn := r.Rand.Uint32() & roce.PSNMask
		if x.first == 0 && r.Chance(0.5) {
			psn = roce.PSNMask - r.Rand.Uint32N(32)
		}
		for x.first != 0 && abs(roce.PSNDiff(psn, uint32(x.first))) < 1<<21 {
			psn = r.Rand.Uint32() & roce.PSNMask
		}
		x.first = int64(psn) + 1<<24
		x.next, x.out, x.access, x.busy = x.first, r.NewStream(x).Begin(x.first), everything&^verbs.AccessBindWindow, true
		if r.plan.Mistakes && r.Chance(0.2) {
			x.access = []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite | verbs.AccessLocalWrite}[r.Rand.IntN(3)]
		}
		x.rnr = 7
		if r.plan.scarce && r.Chance(0.2) {
			x.rnr = 3
		}
	}
	if r.plan.faultless() {
		for _, step := range []func(*end){(*end).toInit, (*end).toReceive, (*end).toSend} {
			for _, x := range pair {
				step(x)
			}
		}
		return
	}
	for _, x := range pair {
		x.toInit()
	}
	for _, x := range pair {
		again := x.ifStillUp()
		r.Later(time.Millisecond, func() { again(x.toReceive) })
	}
	for _, x := range pair {
		again := x.ifStillUp()
		r.Clock.AfterFunc(time.Millisecond+time.Duration(r.Rand.Int64N(int64(2*time.Millisecond))), func() { again(x.toSend) })
	}
}

func abs(n int) int { return max(n, -n) }

// ifStillUp returns a function that does something later unless the end is gone or in Error by then.
func (s *states) ifStillUp() func(func()) {
	e := s.end
	return func(do func()) {
		if e.gone || e.state == verbs.Error || e.inError() {
			e.busy = false
			return
		}
		do()
	}
}

func (s *states) modify(to verbs.QPState, a verbs.Attributes, mask verbs.AttributeMask) {
	e := s.end
	a.State = to
	e.run.Logf("%v to state %d", e, to)
	from := e.state
	e.state = to
	if err := e.qp.Modify(&a, mask|verbs.MaskState); err != nil {
		e.run.Fail("states follow each other", "%v from %d to %d: %v", e, from, to, err)
	}
}

func (s *states) toInit() {
	e := s.end
	e.qkey = e.run.Rand.Uint32() &^ (1 << 31)
	a := verbs.Attributes{Port: 1, Access: e.access, QKey: e.qkey}
	mask := verbs.MaskPKeyIndex | verbs.MaskPort
	if e.kind == verbs.UD {
		mask |= verbs.MaskQKey
	} else {
		mask |= verbs.MaskAccess
	}
	e.modify(verbs.Init, a, mask)
	e.receives.post(6)
}

func (s *states) toReceive() {
	e := s.end
	if e.kind == verbs.UD {
		e.modify(verbs.ReadyToReceive, verbs.Attributes{}, 0)
		return
	}
	p := e.peer
	a := verbs.Attributes{
		PathMTU: e.mtu, DestQPN: p.qpn, ReceivePSN: uint32(p.first) & roce.PSNMask, MaxDestReads: 8,
		MinRNRTimer: 1 + uint8(e.run.Rand.IntN(12)), Address: verbs.Address{Remote: p.host.address, Port: 1},
	}
	mask := verbs.MaskAddress | verbs.MaskPathMTU | verbs.MaskDestQPN | verbs.MaskReceivePSN
	if e.kind == verbs.RC {
		mask |= verbs.MaskMaxDestReads | verbs.MaskMinRNRTimer
	}
	e.expected = a.ReceivePSN
	e.modify(verbs.ReadyToReceive, a, mask)
}

func (s *states) toSend() {
	e := s.end
	a := verbs.Attributes{
		SendPSN: uint32(e.first) & roce.PSNMask, Timeout: trial.Pick(e.run.Rand, e.run.plan.timeouts), RetryCount: 7, RNRRetry: e.rnr,
		MaxReads: 1 + uint8(e.run.Rand.IntN(8)),
	}
	if e.run.plan.faultless() {
		a.Timeout = 18
	}
	mask := verbs.MaskSendPSN
	if e.kind == verbs.RC {
		mask |= verbs.MaskTimeout | verbs.MaskRetryCount | verbs.MaskRNRRetry | verbs.MaskMaxReads
	}
	e.modify(verbs.ReadyToSend, a, mask)
	e.busy = false
}

// usable reports whether requests can be posted that may succeed.
func (e *end) usable() bool {
	return !e.gone && !e.cause && !e.failed && (e.state == verbs.ReadyToSend || e.state == verbs.SendQueueDrain) &&
		(e.peer == nil || !e.peer.gone && !e.peer.cause && e.peer.state >= verbs.ReadyToReceive && e.peer.state != verbs.Error)
}

// expectError notes that the end may be in Error, or get there.
func (e *end) expectError() { e.cause = true }

// expectErrors does so for the connection.
func (e *end) expectErrors() {
	e.expectError()
	if e.peer != nil {
		e.peer.expectError()
	}
}

// pollAll takes what there is on the end's queues.
func (e *end) pollAll() {
	e.sendQueue.poll()
	e.receiveQueue.poll()
}

// toError has the program end what is under way: all of it is flushed at once.
func (s *states) toError() {
	e := s.end
	r := e.run
	if e.gone || e.state == verbs.Reset {
		return
	}
	r.Coverage.Count("to Error")
	e.pollAll()
	e.expectErrors()
	e.modify(verbs.Error, verbs.Attributes{}, 0)
	e.pollAll()
	if e.lossy {
		return
	}
	if i := slices.IndexFunc(e.pending, loud); i >= 0 {
		r.Fail("in Error everything is flushed", "%v: %v is not", e, e.pending[i])
	}
	if e.receives.end == e && (len(e.receives.queue) > 0 || e.held != nil) {
		r.Fail("in Error everything is flushed", "%v: %d receives are not", e, len(e.receives.queue))
	}
	r.Clock.AfterFunc(0, func() {
		if e.receives.srq != nil && !e.last && !e.gone && e.state == verbs.Error {
			r.Fail("events happen", "%v: no last WQE reached", e)
		}
	})
}

// toReset forgets what is under way: it makes no completion any more.
func (s *states) toReset() {
	e := s.end
	e.run.Coverage.Count("to Reset")
	e.pollAll()
	e.modify(verbs.Reset, verbs.Attributes{}, 0)
	e.forget()
	e.cause, e.failed, e.cut, e.last, e.drained = false, false, false, false, false
}

// destroy ends the queue pair, whatever it does.
func (e *end) destroy() {
	if e.gone {
		return
	}
	e.run.Coverage.Count("destroyed")
	e.run.Logf("%v is destroyed", e)
	e.pollAll()
	e.gone = true
	must(e.qp.Destroy())
	e.forget()
	if e.peer != nil {
		e.peer.expectError()
	}
}

// forget drops what was posted: nothing of it is done any more by this end.
func (e *end) forget() {
	e.delivered()
	for _, q := range e.pending {
		q.drop()
	}
	e.pending, e.heard = nil, 0
	if e.receives.end == e {
		e.receives.drop()
	} else if e.kind == verbs.RC {
		e.receives.swallowed++
	}
	if e.held != nil {
		e.held.end()
	}
	e.held, e.assembling = nil, nil
	for _, a := range e.arrivals {
		if !e.lossy {
			e.run.Fail("what arrives is received", "%v: %v", e, a)
		}
		a.receive.end()
	}
	e.arrivals = nil
	for _, w := range e.host.windows {
		if w.by == e {
			w.renew()
		}
	}
	// Nothing comes from the peer any more, either.
	if e.peer != nil {
		e.peer.abandon()
		e.peer.sends = nil
	}
}

// abandon ends what the end's requests may do at the peer, which hears nothing any more.
func (e *end) abandon() {
	for _, q := range e.run.requestsTo(e) {
		q.releaseTarget()
	}
}

// delivered checks, when all that has come to an end is known, that it has got what its peer was told it had.
func (e *end) delivered() {
	if e.kind != verbs.RC || e.lossy || e.peer == nil {
		return
	}
	for _, q := range e.peer.sends {
		if q.succeeded && !q.received {
			e.run.Fail("success means that the data is there", "%v has not been received", q)
		}
	}
}

// reconnect connects a pair anew, with the same queue pairs.
func (s *states) reconnect() {
	e := s.end
	r := e.run
	pair := []*end{e}
	if e.peer != nil {
		pair = append(pair, e.peer)
	}
	for _, x := range pair {
		if x.gone || x.busy || x.lossy {
			return
		}
	}
	r.Coverage.Count("recycled")
	if r.Chance(0.5) {
		for _, x := range pair {
			if r.Chance(0.7) {
				x.toError()
			}
		}
	}
	for _, x := range pair {
		x.busy = true
	}
	for _, x := range pair {
		x.toReset()
	}
	for _, x := range pair {
		x.sends, x.heard = nil, 0
	}
	r.Later(3*time.Millisecond, func() {
		if slices.ContainsFunc(pair, func(x *end) bool { return x.gone || x.lossy }) {
			for _, x := range pair {
				x.busy = false
				x.expectError()
			}
			return
		}
		e.begin()
	})
}

// drain has the send queue begin nothing for a while.
func (s *states) drain() {
	e := s.end
	r := e.run
	if e.state != verbs.ReadyToSend || e.cause || e.busy {
		return
	}
	r.Coverage.Count("to SQD")
	for _, q := range e.pending {
		q.before = q.begun
	}
	e.drained = false
	e.modify(verbs.SendQueueDrain, verbs.Attributes{DrainNotify: true}, verbs.MaskDrainNotify)
	r.Later(20*time.Millisecond, e.undrain)
}

func (s *states) undrain() {
	e := s.end
	if e.gone || e.state != verbs.SendQueueDrain || e.cause {
		return
	}
	e.modify(verbs.ReadyToSend, verbs.Attributes{}, 0)
}

// event follows an asynchronous event of the queue pair.
func (s *states) event(t verbs.EventType) {
	e := s.end
	wrong := false
	switch t {
	case verbs.EventCommunicationEstablished:
		wrong = e.state != verbs.ReadyToReceive
	case verbs.EventSendQueueDrained:
		// To go to Error ends what is under way, too.
		wrong = e.state != verbs.SendQueueDrain && e.state != verbs.Error || e.drained
		e.drained = true
		e.run.Clock.AfterFunc(0, e.checkDrained)
	case verbs.EventLastWQEReached:
		wrong = e.receives.srq == nil || e.last
		e.last = true
	case verbs.EventQPFatal:
		wrong = !e.sendQueue.over && !e.receiveQueue.over
	case verbs.EventQPAccessError, verbs.EventQPRequestError:
		wrong = !e.cause
	default:
		wrong = true
	}
	if wrong {
		e.run.Fail("events happen for a reason", "%v in state %d: event %d", e, e.state, t)
	}
}

// checkDrained looks whether anything is under way that was begun.
func (s *states) checkDrained() {
	e := s.end
	if e.gone || e.state != verbs.SendQueueDrain {
		return
	}
	e.sendQueue.poll()
	for _, q := range e.pending {
		if q.begun && !q.silent {
			e.run.Fail("a drained queue is at rest", "%v: %v is not complete", e, q)
		}
	}
}
