package soak

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// postSome posts a few requests of any kind.
func (e *end) postSome() {
	n := 1 + e.run.Rand.IntN(8)
	for i := range n {
		if !e.usable() {
			return
		}
		e.postOne(i < n-1 && e.run.Chance(0.2))
	}
}

// postOne posts one request, unless it is of a kind that there is no occasion
// for.
func (e *end) postOne(deferred bool) {
	r := e.run
	q := &request{end: e, number: e.posted}
	if deferred {
		q.flags |= provider.OpDefer
	}
	if r.Chance(0.2) {
		q.flags |= provider.OpSilentSuccess
	}
	if r.Chance(0.1) {
		q.flags |= provider.OpReadFence
	}
	kinds := []func() (provider.Status, bool){
		q.send, q.send, q.send, q.write, q.write, q.write, q.read, q.read, q.read, q.bind, q.fastRegister, q.invalidate,
	}
	post := trial.Pick(r.Rand, kinds)
	status, ok := post()
	if ok {
		e.posting(q, status)
	} else {
		q.drop()
	}
}

// posting notes what became of a post.
func (e *end) posting(q *request, status provider.Status) {
	r := e.run
	r.Logf("%v: posts %v, %d bytes, flags %#x: %v", e, q, len(q.data), uint32(q.flags), status)
	switch {
	case status == provider.StatusSuccess:
	case status == provider.StatusNoMoreEntries && len(e.pending) >= initiatorDepth,
		status == provider.StatusConnectionInvalid && !(e.failureExplained() && e.peer.failureExplained() && !e.mayBeSilent(0)),
		status == provider.StatusInvalidDeviceState && q.op == provider.OperationTypeRead && e.outbound == 0:
		r.Coverage.Count("post " + status.String())
		q.drop()
		if q.op == provider.OperationTypeSend {
			e.sends = e.sends[:len(e.sends)-1]
		}
		return
	default:
		r.Fail("posts are taken", "%v: %v: %v", e, q, status)
	}
	e.posted++
	e.pending = append(e.pending, q)
	r.Coverage.Count("posted " + q.kind())
	if q.doom != provider.StatusSuccess {
		r.Coverage.Count("posted to fail with " + q.doom.String())
		e.expectFailure(q)
	}
	switch q.op {
	case provider.OperationTypeSend:
		e.matched(q.index)
		if r.Chance(0.8) {
			r.Later(3*time.Millisecond, e.peer.postReceivesLater)
		}
	case provider.OperationTypeWrite:
		if len(q.landing) > 0 {
			e.peer.incoming = append(e.peer.incoming, q)
		}
	case provider.OperationTypeBind, provider.OperationTypeFastRegister:
		q.grant.token = q.grant.window.newest()
		q.grant.window.current = q.grant
		e.instance.dropEndedGrants()
		e.instance.grants = append(e.instance.grants, q.grant)
		return
	}
	if q.grant != nil {
		q.grant.ending = true
	}
}

// expectFailure notes that a request must fail, and the connection with it.
func (e *end) expectFailure(q *request) {
	e.dooms = append(e.dooms, q)
	e.peer.dooms = append(e.peer.dooms, q)
}

// kind returns what the coverage counts a request as.
func (q *request) kind() string {
	s := opName(q.op)
	for _, f := range []struct {
		flag provider.OpFlags
		name string
	}{
		{provider.OpInline, "inline"}, {provider.OpSilentSuccess, "silent"}, {provider.OpReadFence, "fenced"},
		{provider.OpDefer, "deferred"}, {provider.OpSendAndSolicitEvent, "solicited"}, {provider.OpReadLocalInvalidate, "invalidating"},
	} {
		if q.has(f.flag) {
			s += " " + f.name
		}
	}
	if q.op == provider.OperationTypeSend && q.grant != nil {
		s += " and invalidate"
	}
	return s
}

// size returns a random length of a message.
func (r *run) size() int {
	switch r.Rand.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return 1 + r.Rand.IntN(64)
	default:
		return 1 + r.Rand.IntN(r.plan.Largest)
	}
}

// mistake is true now and then where a plan has mistakes.
func (r *run) mistake() bool { return r.Mistake(0.02) }

// source gives a SEND or WRITE something to carry.
func (q *request) source() bool {
	e := q.end
	r := e.run
	n := min(r.size(), q.longest())
	switch {
	case r.Chance(0.15):
		n = min(n, maxInline)
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Rand.Uint32())
		}
		q.data = append([]byte(nil), data...)
		q.flags |= provider.OpInline
		q.sgl = []provider.SGE{{Inline: data[:n/2], Length: uint32(n / 2)}, {Inline: data[n/2:], Length: uint32(n - n/2)}}
		return true
	case r.mistake():
		q.sgl = []provider.SGE{{VirtualAddress: base, Length: uint32(n + 1), MemoryRegionToken: badToken}}
		q.data = nil
		q.doom = provider.StatusAccessViolation
		return true
	case r.Chance(0.2):
		// The request sends what an earlier READ brings, which the fence waits for.
		for _, earlier := range e.pending {
			if len(earlier.data) <= q.longest() && earlier.op == provider.OperationTypeRead && earlier.doom == provider.StatusSuccess && len(earlier.landing) == 1 &&
				len(earlier.sgl) == 1 && earlier.grant == nil {
				c := earlier.landing[0]
				q.flags |= provider.OpReadFence
				q.sgl, q.data, q.uses = earlier.sgl, earlier.data, append(q.uses, earlier.uses...)
				q.reads = append(q.reads, c.Share())
				return true
			}
		}
	}
	return q.gather(n, localRead)
}

// longest returns how much the request may carry without a mistake: a SEND as much as the
// receive that it will meet.
func (q *request) longest() int {
	p := q.end.peer
	switch {
	case q.op != provider.OperationTypeSend || q.end.run.mistake():
		return q.end.run.plan.Largest
	case p.takesShared():
		return sharedCapacity
	case q.index < len(p.receives):
		return p.receives[q.index].capacity
	}
	return q.end.run.plan.Largest
}

// badToken has never been anybody's.
const badToken = 0xABCDEF00

// send posts a SEND, of which some end a token of the peer's.
func (q *request) send() (provider.Status, bool) {
	e := q.end
	r := e.run
	q.op, q.index = provider.OperationTypeSend, len(e.sends)
	if !q.source() {
		return 0, false
	}
	if r.Chance(0.3) {
		q.flags |= provider.OpSendAndSolicitEvent
	}
	token := uint32(0)
	switch {
	case q.doom != provider.StatusSuccess:
	case r.mistake():
		token = e.peer.instance.grants[0].token // of a registered region: only its owner can end it
		q.doom = provider.StatusRemoteResources
	case r.Chance(0.2):
		for _, w := range e.peer.instance.windows {
			g := w.current
			const remote = (provider.MRAllowRemoteRead | provider.MRAllowRemoteWrite) &^ provider.MRAllowLocalWrite
			if g != nil && g.begun && !g.ending && g.flags&remote != 0 && (!g.instance.inUse(g) || r.mistake()) {
				token, q.grant = g.token, g
				break
			}
		}
	}
	e.sends = append(e.sends, q)
	if token != 0 {
		return e.qp.SendAndInvalidate(q, q.sgl, q.flags, token), true
	}
	return e.qp.Send(q, q.sgl, q.flags), true
}

// write posts a WRITE.
func (q *request) write() (provider.Status, bool) {
	e := q.end
	q.op = provider.OperationTypeWrite
	if !q.source() {
		return 0, false
	}
	if q.doom == provider.StatusSuccess && len(q.data) > 0 && e.run.mistake() {
		q.targetWithoutGrant(remoteWrite)
	} else if !q.target(len(q.data), remoteWrite) {
		return 0, false
	}
	return e.qp.Write(q, q.sgl, q.address, q.token(), q.flags), true
}

// targetWithoutGrant names what the peer does not grant.
func (q *request) targetWithoutGrant(a access) {
	peer := q.end.peer.instance
	peer.dropEndedGrants()
	open := peer.grants[0]
	q.doom = provider.StatusRemoteResources
	switch q.end.run.Rand.IntN(5) {
	case 4: // a token that has ended
		g := trial.Pick(q.end.run.Rand, peer.former)
		if g == nil {
			g = &grant{instance: peer, token: badToken}
		}
		q.remote, q.address = g, g.address(g.from)
	case 3: // a token of another domain
		q.remote, q.address = &grant{instance: peer, token: peer.strange}, base
	case 0: // a token that nobody has
		q.remote, q.address = &grant{instance: peer, token: badToken}, base
	case 1: // beyond the end
		q.remote, q.address = open, open.address(open.to)-1
		if len(q.data) == 1 {
			q.address++
		}
	default: // without the right
		q.remote = peer.grants[1] // may be read
		if a == remoteRead {
			q.remote = peer.grants[2] // local access only
		}
		q.address = q.remote.va
	}
}

// read posts a READ.
func (q *request) read() (provider.Status, bool) {
	e := q.end
	r := e.run
	q.op = provider.OperationTypeRead
	var written *request
	if r.Chance(0.2) {
		// The READ asks for what an earlier WRITE is bringing there.
		for _, earlier := range e.pending {
			if earlier.op == provider.OperationTypeWrite && earlier.doom == provider.StatusSuccess && len(earlier.landing) == 1 &&
				earlier.remote.allows(remoteRead) && !earlier.remote.ending {
				written = earlier
			}
		}
	}
	switch {
	case written != nil:
		c := written.landing[0]
		q.remote, q.address, q.data = written.remote, written.address, written.data
		q.uses = append(q.uses, written.remote)
		q.reads = append(q.reads, c.Share())
	case r.mistake():
		q.data = make([]byte, 1+r.Rand.IntN(100))
		q.targetWithoutGrant(remoteRead)
	default:
		if !q.target(min(r.size(), r.plan.Largest), remoteRead) {
			return 0, false
		}
	}
	if q.doom == provider.StatusSuccess && len(q.data) > 0 && r.mistake() {
		q.sgl = []provider.SGE{{VirtualAddress: base, Length: uint32(len(q.data)), MemoryRegionToken: badToken}}
		q.doom = provider.StatusAccessViolation
	} else if g := e.disposable(); q.doom == provider.StatusSuccess && g != nil && q.gatherIn(g, len(q.data)) {
		q.flags |= provider.OpReadLocalInvalidate
		q.grant = g
	} else if !q.gather(len(q.data), readSink) {
		return 0, false
	}
	return e.qp.Read(q, q.sgl, q.address, q.token(), q.flags), true
}

// disposable returns a fast registration for a READ to end; nil if there is none.
func (e *end) disposable() *grant {
	l := e.instance
	if l.host.plan.info.AdapterFlags&provider.AdapterReadLocalInvalidate == 0 {
		return nil
	}
	for _, g := range l.grants {
		if g.window != nil && g.begun && g.known(e) && g.allows(readSink) && !l.inUse(g) {
			return g
		}
	}
	return nil
}
