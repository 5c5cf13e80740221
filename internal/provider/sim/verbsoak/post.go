package verbsoak

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A request is a work request of a send queue.
type request struct {
	request   verbs.SendRequest
	end       *end
	id        uint64
	op        rc.Op
	data      []byte // that it carries, or reads
	local     *claim // where its data is, or what it reads or finds is to come
	target    *claim // at the peer: what it writes, or reads
	silent    bool
	first     int64 // sequence number
	packets   int64
	begun     bool // a packet of it has been sent
	before    bool // it had begun when the queue began to drain
	received  bool // its receive has completed
	succeeded bool
	over      bool
	partial   bool           // what it wrote at the peer is not to be looked at
	doom      []verbs.Status // with one of which it must end
	may       []verbs.Status // with which it may
	window    *window        // that it binds, invalidates, or writes by
	to        *end           // of a datagram

	// Of atomics.
	word             *word
	operand, compare uint64
	original         uint64
	since            int // index in the word's history when it was posted
	applied          bool
}

// String names the request.
func (q *request) String() string {
	return fmt.Sprintf("%v's request %d (%v, %d bytes, silent %v, doom %v)", q.end, q.id, q.op, len(q.data), q.silent, q.doom)
}

// identify gives the ID of a request or, if it is nil, a receive.
func (r *run) identify(q *request) uint64 {
	r.lastID++
	if q != nil {
		r.requests[r.lastID] = q
	}
	return r.lastID
}

// size returns the length of a message.
func (r *run) size() int {
	switch r.Rand.IntN(6) {
	case 0:
		return r.Rand.IntN(3)
	case 1:
		return 1 + r.Rand.IntN(64)
	case 2:
		return r.plan.Largest
	}
	return 1 + r.Rand.IntN(r.plan.Largest)
}

// mistakes reports whether the next request is to be one that must fail.
func (r *run) mistakes() bool { return r.Mistake(0.03) }

// postSome posts a few requests at once.
func (e *end) postSome() {
	r := e.run
	for range 1 + r.Rand.IntN(6) {
		if !e.usable() || len(e.pending) >= e.depth-1 {
			return
		}
		e.postOne()
	}
}

func (e *end) postOne() {
	r := e.run
	q := &request{end: e, silent: !e.signalAll && r.Chance(0.3)}
	var ok bool
	switch e.kind {
	case verbs.UD:
		ok = q.datagram()
	case verbs.UC:
		ok = q.carry(trial.Pick(r.Rand, []rc.Op{rc.OpSend, rc.OpSendImmediate, rc.OpWrite, rc.OpWriteImmediate}))
	default:
		if r.mistakes() || len(e.peer.ghosts) > 0 && r.mistakes() {
			ok = q.err()
			break
		}
		switch n := r.Rand.IntN(20); {
		case n < 11:
			ok = q.carry(trial.Pick(r.Rand, []rc.Op{rc.OpSend, rc.OpSendImmediate, rc.OpWrite, rc.OpWrite, rc.OpWriteImmediate}))
		case n < 14:
			ok = q.read()
		case n < 17:
			if ok = e.peer.access&verbs.AccessRemoteAtomic != 0; ok {
				if q.local = e.host.memory.claim("an atomic's answer", wordBytes); q.local != nil {
					q.atomic()
					q.local.any = true
				}
				ok = q.local != nil
			}
		case n == 17:
			ok = q.bind()
		case n == 18:
			ok = q.invalidate()
		default:
			ok = q.throughWindow()
		}
	}
	if ok {
		q.post()
	}
}

// source takes memory with data to send.
func (q *request) source(n int) bool {
	if q.local = q.end.host.memory.claim("a source", n); q.local == nil {
		return false
	}
	q.data = slices.Clone(q.local.Content())
	return true
}

// carry makes q one that takes data to the peer.
func (q *request) carry(op rc.Op) bool {
	e := q.end
	r := e.run
	q.op = op
	if op != rc.OpWrite && !e.peer.promise() {
		return false
	}
	if !q.source(r.size()) {
		return false
	}
	if op == rc.OpWrite || op == rc.OpWriteImmediate {
		if e.peer.access&verbs.AccessRemoteWrite == 0 {
			if e.kind == verbs.UC && !r.plan.states { // or the next connection could allow it
				return q.nowhere()
			}
			q.local.release()
			return false
		}
		return q.aim()
	}
	return true
}

// nowhere has a WRITE be for memory that it may not touch.
func (q *request) nowhere() bool {
	p := q.end.peer.host
	q.request.VA, q.request.Token = p.base()+uint64(q.end.run.Rand.IntN(1000)), p.mr.Key()
	q.partial = true
	return true
}

// promise has a receive be there for one more message where none may be missing, and reports whether it is.
func (e *end) promise() bool {
	if !e.run.plan.faultless() {
		return true
	}
	s := e.receives
	s.post(1)
	if s.promised >= len(s.queue) {
		return false
	}
	s.promised++
	return true
}

// aim gives a WRITE its target, by the region of all memory or the fleeting one.
func (q *request) aim() bool {
	r, p := q.end.run, q.end.peer.host
	if q.target = p.memory.claim(fmt.Sprint("a target of ", q.end), len(q.data)); q.target == nil {
		q.local.release()
		return false
	}
	q.target.data = q.data
	q.request.VA, q.request.Token = p.base()+uint64(q.target.From), p.mr.Key()
	if f := p.fleeting; f.mr != nil && f.open && r.plan.Mistakes && r.Chance(0.2) && q.end.kind == verbs.RC {
		q.request.VA, q.request.Token = f.base+uint64(q.target.From), f.mr.Key()
		f.users = append(f.users, q)
	}
	return true
}

// read makes q a READ.
func (q *request) read() bool {
	r, p := q.end.run, q.end.peer
	if p.access&verbs.AccessRemoteRead == 0 {
		return false
	}
	q.op = rc.OpRead
	n := r.size()
	if q.target = p.host.memory.claim("what is read", n); q.target == nil {
		return false
	}
	if q.local = q.end.host.memory.claim("a READ", n); q.local == nil {
		q.target.release()
		return false
	}
	q.data = slices.Clone(q.target.Content())
	q.local.data = q.data
	q.request.VA, q.request.Token = p.host.base()+uint64(q.target.From), p.host.mr.Key()
	return true
}

// throughWindow makes q a WRITE by a window of the peer's, or the SEND that ends one.
func (q *request) throughWindow() bool {
	r, e := q.end.run, q.end
	w := e.peer.boundWindow(0)
	if w == nil || e.peer.access&verbs.AccessRemoteWrite == 0 {
		return false
	}
	if w.kind == verbs.Window2 && w.user == nil && r.Chance(0.4) && e.peer.promise() {
		if !q.source(r.size()) {
			return false
		}
		q.op, q.request.Token, q.window, w.ending = rc.OpSendInvalidate, w.token, w, true
		return true
	}
	if w.user != nil || !q.source(r.size()) {
		return false
	}
	q.op, q.window, w.user = rc.OpWrite, w, q
	w.slot.data = q.data
	q.request.VA, q.request.Token = e.peer.host.base()+uint64(w.slot.From), w.token
	return true
}

// err makes q a request that must fail, and end the connection.
func (q *request) err() bool {
	e := q.end
	r, p := e.run, e.peer.host
	access := []verbs.Status{verbs.RemoteAccessError, verbs.RemoteInvalidRequestError}
	q.op = trial.Pick(r.Rand, []rc.Op{rc.OpWrite, rc.OpRead, rc.OpFetchAdd})
	if q.local = e.host.memory.claim("a request that must fail", 64); q.local == nil {
		return false
	}
	q.partial = true
	q.request.VA, q.request.Token = p.base(), p.mr.Key()
	q.doom = access[:1]
	n := r.Rand.IntN(7)
	if len(e.peer.ghosts) > 0 && r.Chance(0.5) {
		n = 7
	}
	switch n {
	case 0:
		q.request.Token ^= 1 << r.Rand.IntN(32)
		if w := slices.IndexFunc(p.windows, func(w *window) bool { return w.token == q.request.Token }); w >= 0 {
			q.request.Token = 0
		}
	case 1:
		q.request.VA += uint64(len(p.memory.Bytes)) - 56
		if q.op == rc.OpFetchAdd {
			q.request.VA += 56
		}
	case 2:
		q.request.VA -= 8
	case 3:
		q.request.Token = p.foreign.Key()
	case 4:
		if len(p.dead) == 0 {
			q.local.release()
			return false
		}
		q.request.Token = trial.Pick(r.Rand, p.dead)
	case 5: // what the queue pair does not allow
		q.doom = access
		need := map[rc.Op]verbs.Access{rc.OpWrite: verbs.AccessRemoteWrite, rc.OpRead: verbs.AccessRemoteRead, rc.OpFetchAdd: verbs.AccessRemoteAtomic}[q.op]
		if e.peer.access&need != 0 {
			q.local.release()
			return false
		}
	case 7:
		g := trial.Pick(r.Rand, e.peer.ghosts)
		q.request.Token, q.request.VA = g.token, g.va
	default: // local memory that is not the program's to send
		q.op, q.doom = rc.OpSend, []verbs.Status{verbs.LocalProtectionError}
		q.request.SGL = []rc.SGE{e.host.piece(q.local.From, 64)}
		q.request.SGL[0].Token = e.host.foreign.Key()
	}
	q.doom = slices.Clone(q.doom)
	if e.peer.access != everything&^verbs.AccessBindWindow {
		q.doom = append(q.doom, verbs.RemoteInvalidRequestError)
	}
	e.expectErrors()
	return true
}

// datagram makes q one to any end for datagrams, or to none.
func (q *request) datagram() bool {
	e := q.end
	r := e.run
	var fit []*end
	for _, o := range r.ends {
		if !o.gone && o != e && (o.kind == verbs.UD || r.plan.Mistakes && r.Chance(0.05)) {
			fit = append(fit, o)
		}
	}
	q.to = trial.Pick(r.Rand, fit)
	if q.to == nil {
		return false
	}
	mtu := min(e.host.context.GIDs()[0].MTU, q.to.host.context.GIDs()[0].MTU)
	q.op = trial.Pick(r.Rand, []rc.Op{rc.OpSend, rc.OpSendImmediate})
	if !q.to.promise() {
		return false
	}
	if !q.source(min(r.size(), mtu)) {
		return false
	}
	q.request.RemoteQPN, q.request.QKey = q.to.qpn, q.to.qkey
	if r.plan.Mistakes && r.Chance(0.1) {
		q.request.QKey ^= 1 << r.Rand.IntN(32)
		if q.request.QKey>>31 != 0 { // the sender's own stands in
			r.Coverage.Count("own Q_Key sent")
		}
	}
	q.request.AH = made(e.host.pd.CreateAH(verbs.Address{Remote: q.to.host.address, Port: 1}))
	return true
}

// post posts the request.
func (q *request) post() {
	e := q.end
	r := e.run
	q.id = r.identify(q)
	p := &q.request
	p.ID, p.Op, p.Signaled, p.Solicited = q.id, q.op, !q.silent, r.Chance(0.2)
	p.Immediate, p.Operand, p.Compare = r.Rand.Uint32(), q.operand, q.compare
	if q.word != nil {
		h := q.word.memory.host
		p.VA, p.Token = h.base()+uint64(q.word.at), h.mr.Key()
	}
	p.Fence = r.Chance(0.1)
	carries := q.op == rc.OpSend || q.op == rc.OpSendImmediate || q.op == rc.OpSendInvalidate || q.op == rc.OpWrite || q.op == rc.OpWriteImmediate
	switch {
	case q.op == rc.OpAtomicWrite:
		p.Inline = binary.NativeEndian.AppendUint64(nil, q.operand)
	case q.local == nil || p.SGL != nil:
	case carries && len(q.data) <= e.inline && r.Chance(0.4) && q.doom == nil:
		p.Inline = slices.Clone(q.data)
		q.local.release() // it is no longer needed
		q.local = nil
	default:
		p.SGL = q.local.pieces(4)
	}
	q.number()
	if q.takesReceive() {
		e.sends = append(e.sends, q)
	}
	e.pending = append(e.pending, q)
	r.Logf("posts %v, flags fence %v", q, p.Fence)
	if err := e.postSend(p); err != nil {
		r.Fail("posts are taken", "%v: %v", q, err)
	}
	if p.AH != nil {
		must(p.AH.Destroy())
	}
	r.Coverage.Count(fmt.Sprintf("posted kind %d op %d", e.kind, q.op))
}

// number gives the request its sequence numbers.
func (q *request) number() {
	e := q.end
	q.first = e.next
	mtu := e.mtu
	length := len(q.data)
	switch {
	case q.op >= rc.OpBind:
		return
	case e.kind == verbs.UD:
		q.packets = 1
	default:
		if q.doom != nil {
			length = 64
		}
		if q.word != nil {
			length = wordBytes
		}
		q.packets = max(1, int64((length+mtu-1)/mtu))
	}
	for i := range q.packets {
		e.run.flight[packetKey{e, uint32(q.first+i) & roce.PSNMask}] = fragment{q, int(i)}
	}
	e.next += q.packets
}

// takesReceive reports whether it completes a receive at the peer of a connection.
func (q *request) takesReceive() bool {
	if q.end.kind != verbs.RC || q.doom != nil {
		return false
	}
	return q.op == rc.OpSend || q.op == rc.OpSendImmediate || q.op == rc.OpSendInvalidate || q.op == rc.OpWriteImmediate
}
