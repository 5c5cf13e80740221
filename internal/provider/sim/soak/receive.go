package soak

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A receive is a buffer for one message, posted to a queue pair's own queue or to
// an SRQ.
type receive struct {
	instance *instance
	end      *end // nil for an SRQ's
	index    int  // in its queue
	claims   []*trial.Claim
	sgl      []provider.SGE
	capacity int
	doom     bool // its memory cannot be written to
	over     bool
}

// String names the receive.
func (v *receive) String() string {
	if v.end == nil {
		return fmt.Sprintf("SRQ receive %d of %v", v.index, v.instance)
	}
	return fmt.Sprintf("receive %d of end %d", v.index, v.end.number)
}

// sharedReceives is an SRQ.
type sharedReceives struct {
	instance *instance
	srq      *provider.SRQ
	posted   []*receive // that are not over
	count    int
}

func newSharedReceives(l *instance) *sharedReceives {
	s := &sharedReceives{instance: l}
	s.srq = keep(l, must(l.domain.CreateSRQ(64, maxPieces, 0, nil, nil, nil, nil, nil)))
	return s
}

// Allows implements trial.Arrival.
func (v *receive) Allows(c *trial.Claim, first, last int) string {
	if v.end != nil {
		if p := v.end.peer; p != nil && v.index < len(p.sends) && c.Explains(p.sends[v.index].data, first, last, false) {
			return ""
		}
		return "that is not the message"
	}
	for _, e := range v.instance.run.ends {
		if e.instance != v.instance || !e.takesShared() || e.peer == nil {
			continue
		}
		for _, q := range e.peer.sends[min(e.received, len(e.peer.sends)):] {
			if c.Explains(q.data, first, last, false) {
				return ""
			}
		}
	}
	return "that is nobody's message"
}

// make prepares a receive of some capacity; false if there is no room.
func (v *receive) make(capacity int) bool {
	l := v.instance
	r := l.run
	if v.end != nil && v.end.peer != nil && r.mistake() && capacity > 0 {
		v.doom, v.capacity = true, capacity
		v.sgl = []provider.SGE{{VirtualAddress: base, Length: uint32(capacity), MemoryRegionToken: badToken}}
		return true
	}
	for pieces := 1 + r.Rand.IntN(3); v.capacity < capacity; pieces-- {
		length := capacity - v.capacity
		if pieces > 1 {
			length = r.Rand.IntN(length + 1)
		}
		var fit []*grant
		for _, g := range l.grants {
			if g.window == nil && !g.fleeting && g.allows(localWrite) { // others could end before the message comes
				fit = append(fit, g)
			}
		}
		g := trial.Pick(r.Rand, fit)
		if g.logical {
			length = min(length, provider.PageSize)
		}
		at, ok := g.room(length, true)
		if !ok || len(v.sgl) == maxPieces {
			trial.ReleaseAll(&v.claims)
			return false
		}
		v.sgl = append(v.sgl, provider.SGE{VirtualAddress: g.address(at), Length: uint32(length), MemoryRegionToken: g.token})
		if length > 0 {
			v.claims = append(v.claims, l.memory.Claim(at, at+length, v, v.capacity))
		}
		v.capacity += length
	}
	return true
}

// postReceives posts buffers to the end's queue, or to the SRQ that it has.
func (s *receiving) postReceives(n int) {
	e := s.end
	r, l := e.run, e.instance
	for range n {
		v := &receive{instance: l}
		if !e.takesShared() {
			v.end, v.index = e, len(e.receives)
		} else {
			v.index = l.shared.count
		}
		if !v.make(e.capacity(v)) {
			continue
		}
		var status provider.Status
		if v.end == nil {
			status = l.shared.srq.Receive(v, v.sgl)
		} else {
			// First, since on a queue pair in error it completes at once.
			e.receives = append(e.receives, v)
			status = e.qp.Receive(v, v.sgl)
		}
		r.Logf("%v: posts %v, %d bytes: %v", e, v, v.capacity, status)
		if status != provider.StatusSuccess {
			if status != provider.StatusNoMoreEntries {
				r.Fail("posts are taken", "%v: %v: %v", e, v, status)
			}
			trial.ReleaseAll(&v.claims)
			if v.end != nil {
				e.receives = e.receives[:len(e.receives)-1]
			}
			return
		}
		r.Coverage.Count("posted receive")
		if v.end == nil {
			l.shared.posted = append(l.shared.posted, v)
			l.shared.count++
			continue
		}
		if e.peer != nil {
			e.peer.matched(v.index)
		}
	}
}

// capacity returns how long a buffer is to be: enough for the message that it is for,
// if that is known, but for mistakes; for an SRQ's enough for any.
func (s *receiving) capacity(v *receive) int {
	e := s.end
	r := e.run
	switch {
	case v.end != nil && r.mistake():
		return r.size()
	case v.end != nil && e.peer != nil && v.index < len(e.peer.sends):
		return len(e.peer.sends[v.index].data) + r.Rand.IntN(64)
	case v.end == nil:
		return sharedCapacity
	}
	return r.size()
}

// sharedCapacity is the length of the buffers in an SRQ, and of the longest messages
// to those who take from one: nobody knows which will meet.
const sharedCapacity = 700

// wanted returns how many more receives are needed for the messages that the peer has
// sent.
func (s *receiving) wanted() int {
	e := s.end
	if !e.paired() {
		return 0
	}
	n := len(e.peer.sends) - e.received
	if e.takesShared() {
		return n - len(e.instance.shared.posted)
	}
	return n - (len(e.receives) - e.nextReceive)
}

// postReceivesAhead has the consumer post receives: those that are wanted, and maybe a few
// more.
func (s *receiving) postReceivesAhead() {
	e := s.end
	waiting := len(e.receives) - e.nextReceive
	if e.takesShared() {
		waiting = len(e.instance.shared.posted)
	}
	e.postReceives(max(e.wanted(), min(3-waiting, e.run.Rand.IntN(4))))
}

// matched notes, when the message and the receive with an index are both known,
// whether they go together.
func (s *receiving) matched(index int) {
	e := s.end
	p := e.peer
	if index >= len(e.sends) {
		return
	}
	if q := e.sends[index]; p.refuses(q) && !slices.Contains(e.dooms, q) {
		e.run.Coverage.Count("posted to fail at the receiver")
		e.expectFailure(q)
	}
}

// refuses reports whether the receive that a message of the peer's meets is not
// made for it.
func (s *receiving) refuses(q *request) bool {
	e := s.end
	switch {
	case e.takesShared():
		return len(q.data) > sharedCapacity
	case q.index >= len(e.receives):
		return false
	}
	v := e.receives[q.index]
	return len(q.data) > v.capacity || v.doom && len(q.data) > 0
}

// postReceivesLater calls postReceivesAhead if the end is still usable.
func (s *receiving) postReceivesLater() {
	e := s.end
	if e.usable() {
		e.postReceivesAhead()
	}
}

// judgeReceive takes the completion of a receive.
func (s *receiving) judgeReceive(v *receive, result *provider.ResultEx) {
	e := s.end
	r := e.run
	status := result.Status
	r.Coverage.Count("completed receive " + status.String())
	switch {
	case v.over, v.instance != e.instance, v.end != nil && v.end != e:
		r.Fail("each request completes once", "%v: %v completes with %v, and is over", e, v, status)
	case v.end == nil && !slices.Contains(e.instance.shared.posted, v):
		r.Fail("each request completes once", "%v: %v completes with %v, and is not posted", e, v, status)
	case v.end != nil && e.receives[e.nextReceive] != v:
		r.Fail("requests complete in order", "%v: %v before %v", e, v, e.receives[e.nextReceive])
	case status == provider.StatusSuccess && e.receivesOver:
		r.Fail("nothing succeeds after a failure", "%v: %v", e, v)
	}
	v.over = true
	if v.end != nil {
		e.nextReceive++
	} else {
		e.instance.shared.posted = slices.DeleteFunc(e.instance.shared.posted, func(o *receive) bool { return o == v })
	}
	var q *request
	if e.peer != nil && e.received < len(e.peer.sends) {
		q = e.peer.sends[e.received]
	}
	e.instance.memory.Check()
	if status == provider.StatusSuccess {
		e.receivedWell(v, q, result)
	} else {
		if !e.mayFailToReceive(v, q, status) {
			r.Fail("requests end as they should", "%v: %v completes with %v", e, v, status)
		}
		e.receivesOver = true
		e.cause = e.cause || status != provider.StatusCancelled
	}
	trial.ReleaseAll(&v.claims)
}

// receivedWell checks a message that has been received.
func (s *receiving) receivedWell(v *receive, q *request, result *provider.ResultEx) {
	e := s.end
	r := e.run
	switch {
	case q == nil:
		r.Fail("what is received was sent", "%v: %v", e, v)
	case q.doom != provider.StatusSuccess, v.doom && len(q.data) > 0:
		r.Fail("no request succeeds that should not", "%v: %v receives %v", e, v, q)
	case int(result.BytesTransferred) != len(q.data):
		r.Fail("what is received is what was sent", "%v: %v has %d bytes, of %v, which has %d", e, v, result.BytesTransferred, q, len(q.data))
	}
	var claims []*trial.Claim
	for _, c := range v.claims {
		if part := *c; c.Offset < len(q.data) {
			part.To = min(c.To, c.From+len(q.data)-c.Offset)
			claims = append(claims, &part)
		}
	}
	checkArrived(claims, q.data, v)
	e.received++
	q.delivered = true
	want, token := provider.OperationTypeReceive, uint32(0)
	if q.grant != nil {
		want, token = provider.OperationTypeReceiveAndInvalidate, q.grant.token
		q.grant.end()
	}
	if result.Type != want || result.TypeSpecificCompletionOutput != uint64(token) {
		r.Fail("what is received is what was sent", "%v: %v of %v is a %v of token %#x", e, v, q, result.Type, result.TypeSpecificCompletionOutput)
	}
}

// mayFailToReceive reports whether there is something that explains how a receive
// ended.
func (s *receiving) mayFailToReceive(v *receive, q *request, status provider.Status) bool {
	e := s.end
	if status == provider.StatusCancelled {
		return e.flushed(nil)
	}
	if e.cause || q == nil {
		return false
	}
	switch status {
	case provider.StatusBufferOverflow:
		return len(q.data) > v.capacity
	case provider.StatusAccessViolation:
		return v.doom
	case provider.StatusRemoteResources: // the token that was to be ended
		return q.doom == provider.StatusRemoteResources || q.grant != nil
	}
	return false
}
