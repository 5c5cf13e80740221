package provider_test

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/provider"
)

// A qpState is a queue pair's (roce.md 8).
type qpState int

const (
	qpInit qpState = iota
	qpReady
	qpError
)

// A modelQP describes a queue pair as the model knows it.
type modelQP struct {
	entity
	*provider.QP
	pd                     *modelPD
	receiveCQ, initiatorCQ *modelCQ
	srq                    *modelSRQ
	state                  qpState
	connected              bool // the consumer may post
	halted                 bool // the peer has ended the connection
	conn                   *modelConn
	receives               []*modelReceive
	blocked                []*work // that wait for a receive at the peer
	outstanding            []bool  // what the queue holds; true: local operations
	deferred               bool    // the last request accepted was, and has not been started
	unsure                 *work   // failed, if word of that has come through
}

// A work is a request to a queue pair.
type work struct {
	n       int
	op      provider.OperationType
	sgl     []provider.SGE
	flags   provider.OpFlags
	va      uint64
	token   uint32 // remote
	inv     bool   // SendAndInvalidate
	data    []byte // inline
	refused []provider.Status
	// Of FastRegister, Bind and Invalidate:
	grant  *modelGrant
	region *modelRegion
	bind   *modelMR
	call   func() provider.Status
}

func (w *work) String() string {
	return fmt.Sprintf("request %d (type %#x, flags %#x)", w.n, w.op, w.flags)
}

func (w *work) local() bool {
	return w.op == provider.OperationTypeBind || w.op == provider.OperationTypeFastRegister || w.op == provider.OperationTypeInvalidate
}

// A plan says what a request does.
type plan struct {
	from, to spans // the data moves, as far as to reaches
	data     []byte
	blocked  bool
	local    bool // it fails here, and the connection with it
	remote   bool // it fails at the peer
	dead     bool // the peer does not answer
	receive  *modelReceive
	status   provider.Status // of the receive
	ends     *modelRegion    // whose token it ends
	open     bool            // the outcome depends on the network
}

func (p *plan) breaks() bool { return p.local || p.remote || p.dead }

// peer is the queue pair at the other end, nil if it is not connected.
func (q *modelQP) peer() *modelQP {
	if q.conn == nil || q.conn.peer == nil {
		return nil
	}
	return q.conn.peer.qp
}

// next is the receive that the next send gets.
func (q *modelQP) next() *modelReceive {
	queue := q.receives
	if q.srq != nil {
		queue = q.srq.receives
	}
	if len(queue) == 0 {
		return nil
	}
	return queue[0]
}

// plan says what a request will do if it is its turn now.
func (q *modelQP) plan(w *work) (p plan) {
	peer := q.peer()
	n := lengthOf(w.sgl)
	switch {
	case w.local():
		return p
	case w.op == provider.OperationTypeRead:
	case w.flags&provider.OpInline != 0:
		p.data = w.data
	default:
		var ok bool
		if p.from, ok = q.gather(w.sgl, n, localRead); !ok {
			// Packets before the one that cannot be made may be under way.
			p.local, p.open = true, p.from.length() > 0
			return p
		}
	}
	if peer.state == qpError {
		p.dead = true
		return p
	}
	switch w.op {
	case provider.OperationTypeSend:
		q.planSend(w, n, &p)
	case provider.OperationTypeWrite:
		if n > 0 {
			var ok bool
			p.to, ok = peer.access(w.token, w.va, uint64(n), remoteWrite)
			p.remote = !ok
		}
	case provider.OperationTypeRead:
		q.planRead(w, n, &p)
	}
	return p
}

func (q *modelQP) planSend(w *work, n int, p *plan) {
	peer := q.peer()
	if p.receive = peer.next(); p.receive == nil {
		p.blocked = true
		return
	}
	for at := 0; at < n; at += modelMTU {
		packet := min(modelMTU, n-at)
		if at+packet > lengthOf(p.receive.sgl) {
			p.remote, p.status = true, provider.StatusBufferOverflow
			return
		}
		to, ok := peer.gatherPart(p.receive.sgl, at, packet, localWrite)
		if !ok {
			p.remote, p.status = true, provider.StatusAccessViolation
			return
		}
		p.to = append(p.to, to...)
	}
	if w.inv {
		r := peer.of.device.tokens[w.token]
		if r == nil || r.grant == nil || r.pd != peer.pd || r.rights&6 == 0 {
			p.remote, p.status = true, provider.StatusRemoteResources
			return
		}
		p.ends = r
	}
}

func (q *modelQP) planRead(w *work, n int, p *plan) {
	if n > 0 {
		var ok bool
		if p.from, ok = q.peer().access(w.token, w.va, uint64(n), remoteRead); !ok {
			p.from, p.remote = nil, true
			return
		}
	}
	var ok bool
	if p.to, ok = q.gather(w.sgl, n, readSink); !ok {
		p.local = true
		return
	}
	if q.endsLocal(w) {
		r := q.of.device.tokens[w.sgl[0].MemoryRegionToken]
		if p.ends = r; r == nil || r.grant == nil || r.pd != q.pd {
			// The last packet's data is there before the token is found wrong.
			p.ends, p.local = nil, true
		}
	}
}

// endsLocal reports whether a read is to end the token of its first piece.
func (q *modelQP) endsLocal(w *work) bool {
	return w.flags&provider.OpReadLocalInvalidate != 0 && len(w.sgl) > 0 &&
		q.m.info.AdapterFlags&provider.AdapterReadLocalInvalidate != 0
}

// perform notes what a request has done.
func (q *modelQP) perform(w *work, p plan) {
	if p.data == nil {
		p.data = p.from.bytes()
	}
	p.to.put(p.data)
	if p.receive != nil {
		q.peer().performReceive(w, &p)
	}
	if w.local() {
		switch {
		case w.region != nil:
			w.grant.begin(w.region)
			if w.bind != nil {
				w.grant.bound = w.bind
				w.bind.windows++
				w.bind.holds++
			}
		default:
			w.grant.end()
		}
	}
	switch {
	case p.ends != nil:
		p.ends.grant.end()
	case p.local:
		q.failWith(w, provider.StatusAccessViolation)
		return
	case p.dead:
		q.failWith(w, provider.StatusIOTimeout)
		return
	case p.remote:
		q.refused(w)
		return
	}
	if w.flags&provider.OpSilentSuccess == 0 {
		q.complete(w, provider.StatusSuccess)
	}
}

// performReceive notes that a send has taken a receive.
func (q *modelQP) performReceive(w *work, p *plan) {
	if q.srq != nil {
		q.srq.take()
	} else {
		q.receives = q.receives[1:]
	}
	e := &cqEntry{qp: q, solicited: w.flags&provider.OpSendAndSolicitEvent != 0 || p.status != provider.StatusSuccess}
	e.Status, e.QPContext, e.RequestContext = p.status, q, p.receive
	e.Type, e.BytesTransferred = provider.OperationTypeReceive, uint32(lengthOf(w.sgl))
	if w.inv {
		e.Type, e.TypeSpecificCompletionOutput = provider.OperationTypeReceiveAndInvalidate, uint64(w.token)
	}
	q.receiveCQ.push(e)
}

// complete notes that an initiator request has ended.
func (q *modelQP) complete(w *work, status provider.Status) {
	e := &cqEntry{qp: q, solicited: status != provider.StatusSuccess}
	e.Status, e.QPContext, e.RequestContext, e.Type = status, q, w, w.op
	q.initiatorCQ.push(e)
}

// failWith ends a queue pair by the failure of its oldest request, and its
// connection.
func (q *modelQP) failWith(w *work, status provider.Status) {
	q.complete(w, status)
	q.fail()
}

// cancelReceives flushes the receives of a queue pair's own.
func (q *modelQP) cancelReceives() {
	for _, r := range q.receives {
		e := &cqEntry{qp: q, solicited: true}
		e.Status, e.QPContext, e.RequestContext, e.Type = provider.StatusCancelled, q, r, provider.OperationTypeReceive
		q.receiveCQ.push(e)
	}
	q.receives = nil
}

// toError flushes everything.
func (q *modelQP) toError() {
	for _, w := range q.blocked {
		q.complete(w, provider.StatusCancelled)
	}
	q.blocked, q.state = nil, qpError
	q.cancelReceives()
}

// fail is the end of a queue pair that its connection does not know of.
func (q *modelQP) fail() {
	if q.state == qpError {
		return
	}
	q.toError()
	if q.conn != nil {
		q.conn.lost()
	}
}

// flush does what Flush does, and everything else that ends a queue pair on purpose.
func (q *modelQP) flush() {
	switch q.state {
	case qpInit:
		q.cancelReceives()
	default:
		q.toError()
	}
}

// unanswered ends a connected queue pair with requests that wait for a peer which
// does not answer any more.
func (q *modelQP) unanswered() {
	if q != nil && q.state == qpReady && !q.halted && len(q.blocked) > 0 && q.peer().state == qpError {
		w := q.blocked[0]
		q.blocked = q.blocked[1:]
		q.failWith(w, provider.StatusIOTimeout)
	}
}

// resume carries out the requests that waited for a receive.
func (m *model) resume(q *modelQP) {
	for q != nil && q.state == qpReady && !q.halted && len(q.blocked) > 0 {
		w := q.blocked[0]
		p := q.plan(w)
		if p.blocked {
			return
		}
		q.blocked = q.blocked[1:]
		q.perform(w, p)
		m.overruns()
	}
}

// offer has the senders that wait for an SRQ's receives go on.
func (m *model) offer(s *modelSRQ) {
	for _, q := range m.qps() {
		if p := q.peer(); p != nil && p.srq == s {
			m.resume(q)
		}
	}
}

// refused ends the connection because the peer has refused a request. On a path
// that loses packets the news of the end may come before the refusal, and then
// the request stays as it was (NDK-DISC-03): settleFailure finds out.
func (q *modelQP) refused(w *work) {
	peer := q.peer()
	peer.toError()
	peer.conn.broken()
	if !q.m.calm {
		q.conn.ended()
		q.unsure, q.halted = w, true
		return
	}
	q.complete(w, provider.StatusRemoteResources)
	q.toError()
	q.conn.broken()
}

// settleFailure finds out how a refused request has ended, by a look at all that
// its CQ has. If it has not, and is a read that would have ended a token, what may
// be done with that token depends on the read, which is to be flushed.
func (m *model) settleFailure(q *modelQP) (toFlush bool) {
	if q.unsure == nil {
		return false
	}
	w, c := q.unsure, q.initiatorCQ
	q.unsure = nil
	results := make([]provider.ResultEx, 1000)
	results = results[:c.ResultsEx(results)]
	told := slices.ContainsFunc(results, func(r provider.ResultEx) bool { return r.RequestContext == w })
	m.logf("%s: the end of %v is told: %v", q.name, w, told)
	switch {
	case q.state == qpError: // of a CQ that has overrun
	case told:
		q.complete(w, provider.StatusRemoteResources)
		q.toError()
		m.overruns()
	default:
		q.blocked = append([]*work{w}, q.blocked...)
		toFlush = q.endsLocal(w)
	}
	c.take(results, len(results), true)
	return toFlush
}

// atRest notes that nothing is in progress but what is blocked.
func (q *modelQP) atRest() {
	q.outstanding = q.outstanding[:0]
	for range q.blocked {
		q.outstanding = append(q.outstanding, false)
	}
}

// busy returns the number of queue pairs of a device that wait for their peers.
func (m *model) busy(d *modelDevice) (n int) {
	for _, q := range m.qps() {
		if q.of.device == d && q.state == qpReady && !q.halted && len(q.blocked) > 0 {
			n++
		}
	}
	return n
}

// refusals are the reasons not to accept a request, any of which may be told.
func (q *modelQP) refusals(w *work, allowed provider.OpFlags, maxSGE int) (reasons []provider.Status) {
	add := func(s provider.Status, wrong bool) {
		if wrong {
			reasons = append(reasons, s)
		}
	}
	n := lengthOf(w.sgl)
	add(provider.StatusInvalidParameter, w.flags&^allowed != 0)
	add(provider.StatusConnectionInvalid, !q.connected || q.state != qpReady)
	if w.flags&provider.OpInline != 0 {
		add(provider.StatusInvalidParameter, n > modelInline)
	} else {
		add(provider.StatusDataOverrun, len(w.sgl) > maxSGE)
		add(provider.StatusBufferOverflow, n > modelTransfer)
	}
	if w.op == provider.OperationTypeRead && q.endsLocal(w) {
		token := w.sgl[0].MemoryRegionToken
		r := q.of.device.tokens[token]
		add(provider.StatusInvalidParameter, token == q.pd.object.(*provider.PD).PrivilegedMemoryRegionToken() || r != nil && r.grant == nil)
	}
	add(provider.StatusInvalidDeviceState, w.op == provider.OperationTypeRead && q.conn != nil && q.conn.outbound == 0)
	add(provider.StatusNoMoreEntries, len(q.outstanding) == modelDepth)
	return append(reasons, w.refused...)
}

// post posts a request, once what it could get into conflict with is at rest.
func (m *model) post(q *modelQP, w *work, allowed provider.OpFlags, maxSGE int) {
	if other := m.grants[w.grant]; w.grant != nil && other != nil && other != q {
		m.settle() // its request may not have been carried out yet
	}
	reasons := q.refusals(w, allowed, maxSGE)
	var p plan
	if len(reasons) == 0 {
		if p = q.plan(w); p.open || m.blockedOn(p.ends) {
			return
		}
		if len(q.blocked) > 0 { // its turn is not yet
			if w.op != provider.OperationTypeSend || p.local || p.dead {
				return
			}
			if q.blocked[len(q.blocked)-1].flags&provider.OpSilentSuccess != 0 {
				return // nobody could tell when that is done
			}
			p = plan{blocked: true}
		}
		if p.blocked && m.rivals(q) {
			return // which of them gets the next receive depends on the network
		}
		claims := append(claimsOf(p.from, false), claimsOf(p.to, true)...)
		if inItself(claims) || m.waitedFrom(claims) {
			return
		}
		// Nobody could tell when what is silent is done before one that waits.
		behind := p.blocked && len(q.outstanding) > len(q.blocked)
		if behind || m.conflicts(claims) || p.breaks() || !m.alone(q, w, &p) {
			m.settle()
			m.useGrants(q, w, &p)
		}
		m.claims = append(m.claims, claims...)
	}
	if p.breaks() {
		m.calmFor(q)
	}
	wasDeferred := q.deferred
	status := w.call()
	m.logf("%s: %v of %v to %#x of %#x: %v", q.name, w, modelPieces(w.sgl), w.va, w.token, status)
	if len(reasons) > 0 {
		m.is(w.String(), status, reasons...)
		if wasDeferred {
			q.started()
		}
		return
	}
	m.is(w.String(), status, provider.StatusSuccess)
	m.posted = true
	q.outstanding = append(q.outstanding, w.local())
	q.deferred = w.flags&provider.OpDefer != 0
	if !q.deferred {
		q.started()
	}
	if p.blocked {
		q.blocked = append(q.blocked, w)
		return
	}
	q.perform(w, p)
	if overrun := len(m.overrun) > 0; overrun || p.breaks() || q.endsLocal(w) { // what is posted next may build on that
		m.overruns()
		m.settle()
	}
}

// started notes that what was deferred has been started: local operations that
// nothing is in front of are done.
func (q *modelQP) started() {
	q.deferred = false
	i := slices.Index(q.outstanding, false)
	if i < 0 {
		i = len(q.outstanding)
	}
	q.outstanding = slices.Delete(q.outstanding, 0, i)
}

// startDeferred starts what a consumer has deferred, by a request that is refused
// (NDK-DEFER-03).
func (m *model) startDeferred(q *modelQP) {
	if q.deferred {
		m.is("a wrong request", q.Write(nil, nil, 0, 0, provider.OpReadSink), provider.StatusInvalidParameter, provider.StatusConnectionInvalid)
		q.started()
	}
}
