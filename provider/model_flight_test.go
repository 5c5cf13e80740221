package provider_test

import (
	"slices"

	"github.com/ndklab/ndklab/provider"
)

// rivals reports whether another queue pair waits for a receive of the SRQ that a
// queue pair's sends go to.
func (m *model) rivals(q *modelQP) bool {
	srq := q.peer().srq
	return srq != nil && slices.ContainsFunc(m.qps(), func(o *modelQP) bool {
		return o != q && len(o.blocked) > 0 && o.peer().srq == srq
	})
}

// alone reports whether a request may be in progress together with what has been
// posted since all was at rest, but for the memory that it uses: whether the CQs
// have room for all, nobody else takes from the same SRQ, and the tokens that it
// uses are not changed by another queue pair's requests.
func (m *model) alone(q *modelQP, w *work, p *plan) bool {
	if !m.posted {
		m.useGrants(q, w, p)
		return true
	}
	if closes(w.grant) || p.ends != nil && closes(p.ends.grant) {
		return false
	}
	room := func(c *modelCQ) bool { return c.depth-len(c.entries) >= 2 || c.failure != provider.StatusSuccess }
	if !room(q.initiatorCQ) || p.receive != nil && !room(q.peer().receiveCQ) {
		return false
	}
	if w.op == provider.OperationTypeSend && q.peer().srq != nil {
		return false
	}
	return m.useGrants(q, w, p)
}

// closes reports whether the end of a window may end the region below it too.
func closes(g *modelGrant) bool { return g != nil && g.bound != nil && g.bound.closing != nil }

// useGrants notes which grants a request uses; false if a request of another
// queue pair's does.
func (m *model) useGrants(q *modelQP, w *work, p *plan) bool {
	var uses []*modelGrant
	use := func(d *modelDevice, token uint32) {
		if r := d.tokens[token]; r != nil && r.grant != nil {
			uses = append(uses, r.grant)
		}
	}
	for _, sge := range w.sgl {
		use(q.of.device, sge.MemoryRegionToken)
	}
	if peer := q.peer(); peer != nil {
		use(peer.of.device, w.token)
		if p.receive != nil {
			for _, sge := range p.receive.sgl {
				use(peer.of.device, sge.MemoryRegionToken)
			}
		}
	}
	if w.grant != nil {
		uses = append(uses, w.grant)
	}
	for _, g := range uses {
		if other := m.grants[g]; other != nil && other != q {
			return false
		}
	}
	for _, g := range uses {
		m.grants[g] = q
	}
	return true
}

// blockedOn reports whether a request that waits uses a region: it must not be
// taken away then, since when that is found out depends on the network.
func (m *model) blockedOn(r *modelRegion) bool {
	if r == nil {
		return false
	}
	if g := r.grant; g != nil && g.bound != nil && m.blockedOn(g.bound.region) { // which may leave with its last window
		return true
	}
	for _, q := range m.qps() {
		for _, w := range q.blocked {
			for _, sge := range w.sgl {
				if q.of.device.tokens[sge.MemoryRegionToken] == r {
					return true
				}
			}
		}
	}
	return false
}

// A claim is memory that what has been posted since all was at rest uses.
type claim struct {
	span
	writes bool
}

// conflicts reports whether memory is in use in a way that makes the outcome
// depend on what is first.
func (m *model) conflicts(claims []claim) bool {
	for _, c := range claims {
		for _, other := range m.claims {
			if c.overlaps(other) {
				return true
			}
		}
	}
	return false
}

func (c claim) overlaps(o claim) bool {
	return c.in == o.in && (c.writes || o.writes) && c.at < o.at+o.n && o.at < c.at+c.n
}

// waitedFrom reports whether what is to be written is what a request sends that
// waits: the responder may have some of it already.
func (m *model) waitedFrom(claims []claim) bool {
	for _, q := range m.qps() {
		for _, w := range q.blocked {
			if w.flags&provider.OpInline != 0 {
				continue
			}
			from, _ := q.gather(w.sgl, lengthOf(w.sgl), localRead)
			for _, read := range claimsOf(from, false) {
				if slices.ContainsFunc(claims, read.overlaps) {
					return true
				}
			}
		}
	}
	return false
}

// inItself reports whether a request uses memory in such a way.
func inItself(claims []claim) bool {
	for i, c := range claims {
		for _, other := range claims[:i] {
			if c.overlaps(other) {
				return true
			}
		}
	}
	return false
}

func claimsOf(s spans, writes bool) (claims []claim) {
	for _, p := range s {
		claims = append(claims, claim{p, writes})
	}
	return claims
}
