package soak

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A request is one that was posted to an initiator queue.
type request struct {
	end     *end
	number  int // of the end's requests
	op      provider.OperationType
	flags   provider.OpFlags
	sgl     []provider.SGE
	data    []byte         // what it carries or, of a READ, is to bring
	reads   []*trial.Claim // memory that is not to change before it is over
	landing []*trial.Claim // where the data arrives, of WRITE and READ
	// present says, of a WRITE whose target is closed, that all was there then.
	present bool
	closed  bool
	uses    []*grant // by which it accesses memory
	doom    provider.Status
	grant   *grant // of a Bind or FastRegister, or what ends with this request: of Invalidate, and others that also do
	remote  *grant // of WRITE and READ
	address uint64 // of WRITE and READ, at the peer

	index     int // of a SEND, among the end's
	delivered bool
	over      bool
}

// String names the request.
func (q *request) String() string {
	s := fmt.Sprintf("%s %d.%d", opName(q.op), q.end.number, q.number)
	if q.doom != provider.StatusSuccess {
		s += fmt.Sprintf(" (to fail with %v)", q.doom)
	}
	return s
}

// A placement is the arrival of a request's data where a grant allows it. It implements trial.Arrival.
type placement struct {
	*request
	by *grant
}

// Allows implements trial.Arrival.
func (p placement) Allows(c *trial.Claim, first, last int) string {
	if p.by.ended {
		return fmt.Sprintf("token %#x has ended", p.by.token)
	}
	inOrder := p.by.instance.host.plan.info.AdapterFlags&provider.AdapterInOrderDMA != 0
	if !c.Explains(p.data, first, last, inOrder) {
		return "that is not what it brings"
	}
	return ""
}

// checkArrived fails the trial unless all claims have what was to come.
func checkArrived(claims []*trial.Claim, data []byte, what fmt.Stringer) {
	for _, c := range claims {
		c.CheckArrived(data, what)
	}
}

// has reports whether a flag is set.
func (q *request) has(flag provider.OpFlags) bool { return q.flags&flag == flag }

// gather makes an SGL of n bytes of the consumer's memory; false if there is no
// room. write says that they are to be written by the request itself.
func (q *request) gather(n int, a access) bool {
	e := q.end
	reads := a == localRead
	for offset, pieces := 0, 1+e.run.Rand.IntN(3); offset < n || pieces > 0 && n == 0; pieces-- {
		length := n - offset
		if pieces > 1 {
			length = e.run.Rand.IntN(length + 1)
		}
		g := e.instance.grantFor(e, a)
		if g == nil {
			return false
		}
		if g.logical {
			length = min(length, provider.PageSize)
		}
		at, ok := g.room(length, !reads)
		if !ok || len(q.sgl) == maxPieces {
			return false
		}
		q.sgl = append(q.sgl, provider.SGE{VirtualAddress: g.address(at), Length: uint32(length), MemoryRegionToken: g.token})
		q.uses = append(q.uses, g)
		switch memory := e.instance.memory; {
		case length == 0:
		case reads:
			q.reads = append(q.reads, memory.Claim(at, at+length, nil, offset))
		default:
			q.landing = append(q.landing, memory.Claim(at, at+length, placement{q, g}, offset))
		}
		if reads {
			q.data = append(q.data, e.instance.memory.Bytes[at:at+length]...)
		}
		offset += length
	}
	return true
}

// gatherIn makes an SGL of one piece of a grant's memory, which the request writes to.
func (q *request) gatherIn(g *grant, n int) bool {
	at, ok := g.room(n, true)
	if !ok {
		return false
	}
	q.sgl = append(q.sgl, provider.SGE{VirtualAddress: g.address(at), Length: uint32(n), MemoryRegionToken: g.token})
	q.uses = append(q.uses, g)
	if n > 0 {
		q.landing = append(q.landing, g.instance.memory.Claim(at, at+n, placement{q, g}, 0))
	}
	return true
}

// target finds a place for n bytes in the peer's memory, and claims it.
func (q *request) target(n int, a access) bool {
	e := q.end
	g := e.peer.instance.grantFor(e.peer, a)
	if g == nil || !g.begun {
		return false
	}
	at, ok := g.room(n, a == remoteWrite)
	if !ok {
		return false
	}
	q.remote, q.address = g, g.address(at)
	q.uses = append(q.uses, g)
	memory := g.instance.memory
	switch {
	case a == remoteRead:
		q.data = append([]byte(nil), memory.Bytes[at:at+n]...)
		if n > 0 {
			q.reads = append(q.reads, memory.Claim(at, at+n, nil, 0))
		}
	case n > 0:
		q.landing = append(q.landing, memory.Claim(at, at+n, placement{q, g}, 0))
	}
	return true
}

// drop undoes the making of a request that is not posted.
func (q *request) drop() {
	trial.ReleaseAll(&q.reads)
	trial.ReleaseAll(&q.landing)
}

// token returns the remote token to name: 0 if there is none.
func (q *request) token() uint32 {
	if q.remote == nil {
		return 0
	}
	return q.remote.token
}

// opName returns what operations are called.
func opName(op provider.OperationType) string {
	return map[provider.OperationType]string{
		provider.OperationTypeSend: "SEND", provider.OperationTypeWrite: "WRITE", provider.OperationTypeRead: "READ",
		provider.OperationTypeBind: "Bind", provider.OperationTypeFastRegister: "FastRegister", provider.OperationTypeInvalidate: "Invalidate",
	}[op]
}
