package verbsoak

import (
	"bytes"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// judge checks a completion.
func (r *run) judge(from *queue, c *verbs.Completion) {
	r.Logf("%v: completion %d, status %d, opcode %d, %d bytes", from.host, c.ID, c.Status, c.Opcode, c.Bytes)
	if q := r.requests[c.ID]; q != nil {
		if q.end.sendQueue != from {
			r.Fail("completions come where they belong", "%v", q)
		}
		q.end.completes(q, c)
		return
	}
	v := r.receives[c.ID]
	if v == nil {
		r.Fail("each request completes once", "%v: ID %d, status %d, opcode %d is of nothing that is under way", from.host, c.ID, c.Status, c.Opcode)
	}
	e := from.host.numbered(c.QPN)
	if e == nil || e.receives != v.of || e.receiveQueue != from {
		r.Fail("completions come where they belong", "receive %d, QP %#x", c.ID, c.QPN)
	}
	e.receivesOne(v, c)
}

var opcodes = map[rc.Op]verbs.Opcode{
	rc.OpSend: verbs.OpcodeSend, rc.OpSendImmediate: verbs.OpcodeSend, rc.OpSendInvalidate: verbs.OpcodeSend,
	rc.OpWrite: verbs.OpcodeWrite, rc.OpWriteImmediate: verbs.OpcodeWrite, rc.OpRead: verbs.OpcodeRead,
	rc.OpFetchAdd: verbs.OpcodeFetchAdd, rc.OpCompareSwap: verbs.OpcodeCompareSwap, rc.OpAtomicWrite: verbs.OpcodeAtomicWrite,
	rc.OpBind: verbs.OpcodeBindWindow, rc.OpInvalidate: verbs.OpcodeLocalInvalidate,
}

// completes follows a request's completion. Those before it that are silent have succeeded.
func (e *end) completes(q *request, c *verbs.Completion) {
	r := e.run
	if c.QPN != e.qpn || opcodes[q.op] != c.Opcode {
		r.Fail("completions are of their request", "%v: QP %#x, opcode %d", q, c.QPN, c.Opcode)
	}
	i := slices.Index(e.pending, q)
	if i < 0 {
		r.Fail("each request completes once", "%v", q)
	}
	for _, earlier := range e.pending[:i] {
		if !earlier.silent {
			r.Fail("requests complete in order", "%v before %v", q, earlier)
		}
		earlier.succeeds()
	}
	e.pending = e.pending[i+1:]
	r.Coverage.Count("completed " + statusNames[c.Status])
	if c.Status == verbs.Success {
		if q.silent {
			r.Fail("unsignaled requests succeed without a completion", "%v", q)
		}
		q.succeeds()
		return
	}
	q.fails(c.Status)
}

var statusNames = map[verbs.Status]string{
	verbs.Success: "Success", verbs.LocalLengthError: "LocalLength", verbs.LocalProtectionError: "LocalProtection", verbs.FlushError: "Flush",
	verbs.WindowBindError: "WindowBind", verbs.RemoteInvalidRequestError: "RemoteInvalidRequest", verbs.RemoteAccessError: "RemoteAccess",
	verbs.RetryExceededError: "RetryExceeded", verbs.RNRRetryExceededError: "RNRRetryExceeded", verbs.RemoteOperationError: "RemoteOperation",
	verbs.BadResponseError: "BadResponse",
}

// succeeds checks what success means, and ends the request.
func (q *request) succeeds() {
	e := q.end
	r := e.run
	if q.doom != nil {
		r.Fail("no request succeeds that should not", "%v", q)
	}
	if e.failed {
		r.Fail("nothing succeeds after a failure", "%v", q)
	}
	q.succeeded = true
	switch {
	case e.kind == verbs.UD:
	case e.kind == verbs.UC: // what arrives of it may do so later
	case q.op == rc.OpWrite || q.op == rc.OpWriteImmediate:
		if q.window != nil {
			if w := q.window; w.user == q {
				w.slot.arrived(q)
				w.user, w.slot.data = nil, nil
			}
		} else if q.target != nil && !q.partial {
			q.target.arrived(q)
		}
	case q.op == rc.OpRead:
		q.local.arrived(q)
	case q.word != nil:
		q.returned()
	case q.op == rc.OpBind:
		q.window.binding = nil
		if q.window.mw.Key() != q.window.token {
			r.Fail("a window has the key that binding gave it", "%v", q)
		}
		r.Coverage.Count("window bound")
	case q.op == rc.OpInvalidate:
		r.Coverage.Count("window invalidated")
		q.window.ended()
	}
	q.finish()
}

// fails checks whether something explains a status other than success, and ends the request.
func (q *request) fails(status verbs.Status) {
	e := q.end
	r := e.run
	explained := slices.Contains(q.may, status) || slices.Contains(q.doom, status)
	switch status {
	case verbs.FlushError:
		explained = e.cause || e.failed
	case verbs.RetryExceededError:
		explained = r.plan.Weather || r.plan.Cuts || e.cause || e.peer != nil && (e.peer.cause || e.peer.gone)
	case verbs.RNRRetryExceededError:
		explained = e.rnr < 7
	}
	// A peer's refusal may overtake the answers to requests before, which then nobody gives any more.
	if !explained || e.failed && !e.cut && status != verbs.FlushError {
		r.Fail("requests end as they should", "%v ends with status %d", q, status)
	}
	e.cut = status == verbs.FlushError && (e.cut || !e.failed && (q.op == rc.OpRead || q.word != nil))
	e.failed = true
	e.expectErrors()
	if w := q.window; w != nil && (q.op == rc.OpBind || q.op == rc.OpInvalidate) {
		w.renew()
	}
	q.over = true
	q.local.release() // nothing comes to it any more
	q.local = nil
	delete(r.requests, q.id)
	q.keepTarget()
	// Packets under way may still arrive, until the peer hears nothing.
	r.strays = append(r.strays, q)
}

// finish ends a request that has succeeded.
func (q *request) finish() {
	q.over = true
	delete(q.end.run.requests, q.id)
	q.local.release()
	q.local = nil
	if q.end.kind == verbs.UC {
		q.keepTarget()
		return
	}
	q.target.release()
	q.target = nil
}

// keepTarget has a WRITE of an unreliable connection keep its target until no packet of it can be under way.
func (q *request) keepTarget() {
	if q.end.kind == verbs.UC && q.target != nil {
		q.end.run.Clock.AfterFunc(q.end.run.lifetime, func() {
			q.target.release()
			q.target = nil
		})
	}
}

// drop ends a request that its queue pair has forgotten.
func (q *request) drop() {
	r := q.end.run
	q.over = true
	delete(r.requests, q.id)
	q.local.release()
	q.local = nil
	if w := q.window; w != nil && (q.op == rc.OpBind || q.op == rc.OpInvalidate) && w.host == q.end.host && w.by == q.end {
		w.renew()
	}
	q.keepTarget()
	r.strays = append(r.strays, q)
}

// requestsTo lists what failed or was dropped of the requests to an end, whose packets may arrive until it hears nothing, or that
// are under way.
func (r *run) requestsTo(from *end) (qs []*request) {
	var rest []*request
	for _, q := range r.strays {
		if q.end == from {
			qs = append(qs, q)
		} else {
			rest = append(rest, q)
		}
	}
	r.strays = rest
	return append(qs, from.pending...)
}

// releaseTarget follows that the peer hears nothing any more of what the request's packets say.
func (q *request) releaseTarget() {
	if q.end.kind == verbs.UC {
		return
	}
	q.partial = true
	if q.target != nil && (q.op != rc.OpRead || q.over) {
		q.target.release()
		q.target = nil
	}
	if q.word != nil && q.over {
		q.word.look()
		q.word.forget(q)
	}
}

// receivesOne follows a receive's completion.
func (e *end) receivesOne(v *receive, c *verbs.Completion) {
	r := e.run
	s := e.receives
	r.Coverage.Count("completed receive " + statusNames[c.Status])
	i := slices.Index(s.queue, v)
	if c.Status != verbs.Success {
		switch {
		case c.Status == verbs.FlushError && e.cause:
		case c.Status == verbs.FlushError: // the reason is in the other queue, and has not been polled
			r.Clock.AfterFunc(time.Millisecond, func() {
				if e.sendQueue.poll(); !e.failed && !e.lossy {
					r.Fail("requests end as they should", "%v: receive %d is flushed without a reason", e, v.id)
				}
			})
		case c.Status == verbs.LocalProtectionError || c.Status == verbs.RemoteAccessError || c.Status == verbs.RemoteInvalidRequestError || c.Status == verbs.LocalAccessError:
			if !e.cause {
				r.Fail("requests end as they should", "%v: receive %d ends with status %d", e, v.id, c.Status)
			}
		default:
			r.Fail("requests end as they should", "%v: receive %d ends with status %d", e, v.id, c.Status)
		}
		if e.held == v {
			e.held = nil
		} else if s.end == e && i != 0 {
			r.Fail("requests complete in order", "%v: receive %d, which is at place %d", e, v.id, i)
		}
		e.expectErrors()
		if i >= 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		}
		v.end()
		return
	}
	q := e.message(v, i)
	q.matches(v, c)
	v.end()
}

// message returns the data that a successful receive must be of.
func (e *end) message(v *receive, i int) *request {
	r := e.run
	s := e.receives
	if e.kind != verbs.RC {
		if len(e.arrivals) == 0 || e.arrivals[0].receive != v {
			r.Fail("what is received has arrived", "%v: receive %d, where %d messages wait", e, v.id, len(e.arrivals))
		}
		q := e.arrivals[0].request
		e.arrivals = e.arrivals[1:]
		return q
	}
	if e.peer == nil || e.heard >= len(e.peer.sends) {
		r.Fail("what is received was sent", "%v: receive %d is of none of %d messages", e, v.id, e.heard)
	}
	if i < 0 || s.end == e && i != 0 {
		r.Fail("requests complete in order", "%v: receive %d, which is at place %d", e, v.id, i)
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	s.promised--
	q := e.peer.sends[e.heard]
	e.heard++
	q.received = true
	if q.op == rc.OpSendInvalidate && q.window.host == e.host && q.window.token == q.request.Token {
		r.Coverage.Count("window invalidated by the peer")
		q.window.ended()
	}
	return q
}

// matches compares a receive with the request that it is of.
func (q *request) matches(v *receive, c *verbs.Completion) {
	r, e := q.end.run, v.of.host.numbered(c.QPN)
	want := verbs.Completion{ID: v.id, Opcode: verbs.OpcodeReceive, Bytes: uint32(len(q.data)), QPN: c.QPN, VendorError: c.VendorError, Solicited: c.Solicited, At: c.At}
	placed, header := q.data, 0
	switch q.op {
	case rc.OpSendImmediate, rc.OpWriteImmediate:
		want.Flags, want.Immediate = verbs.HasImmediate, q.request.Immediate
	case rc.OpSendInvalidate:
		want.Flags, want.Invalidated = verbs.HasInvalidated, q.request.Token
	}
	if q.op == rc.OpWriteImmediate {
		want.Opcode, placed = verbs.OpcodeReceiveWrite, nil
		if q.target != nil && !q.partial {
			q.target.arrived(q)
		}
	}
	if e.kind == verbs.UD {
		header = 40
		want.Flags |= verbs.HasGRH
		want.SourceQPN = q.end.qpn
		want.Bytes += 40
		if want.Network = verbs.NetworkIPv6; q.end.host.address.Is4() {
			want.Network = verbs.NetworkIPv4
		}
	}
	if *c != want {
		r.Fail("what is received is what was sent", "%v has %+v, expected %+v of %v", e, *c, want, q)
	}
	v.slot.Check()
	now := v.slot.Content()
	if header > 0 {
		source, destination := now[8:24], now[24:40]
		if q.end.host.address.Is4() {
			source, destination = now[32:36], now[36:40]
		}
		if !bytes.Equal(source, q.end.host.address.AsSlice()) || !bytes.Equal(destination, e.host.address.AsSlice()) {
			r.Fail("what is received is what was sent", "%v: header %x of %v", e, now[:40], q)
		}
	}
	if !bytes.Equal(now[header:header+len(placed)], placed) {
		r.Fail("what is received is what was sent", "%v: other bytes than those of %v", e, q)
	}
	// A receive of an unreliable connection may have had part of a message before that was not whole.
	if rest := header + len(placed); e.kind != verbs.UC && !bytes.Equal(now[rest:], v.before[rest:]) {
		r.Fail("what is received is what was sent", "%v: bytes behind the end of %v", e, q)
	}
}
