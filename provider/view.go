package provider

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A view is the memory of a protection domain as one of its queue pairs sees it.
// It implements rc.Memory, and is guarded by the queue pair's lock.
//
// Registered regions are used without a trace, since whoever ends them waits for every
// queue pair (MR.withdraw), and so are mapped pages that a request of the consumer's
// names by the privileged token: whoever releases them knows that none is under way.
// FRMRs and windows end more often than every queue pair can be waited for, and peers
// use them unasked. So their users are counted, and those of an FRMR's mapped pages: in
// uses are the regions that are held until the packets at hand are dealt with.
type view struct {
	qp      *QP
	regions *regionTable // of the device
	uses    []*region
}

// Local implements rc.Memory.
func (v *view) Local(dst [][]byte, sge rc.SGE, access rc.Access) ([][]byte, bool) {
	if sge.Token == privilegedToken {
		return v.qp.pd.adapter.logical(dst, sge, access)
	}
	return v.resolve(dst, sge.Token, sge.Address, sge.Length, access)
}

// Remote implements rc.Memory. A token counts only on connections of its own
// domain (ndkpi.md T70).
func (v *view) Remote(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	return v.resolve(dst, token, va, length, access)
}

// Atomic implements rc.Memory. NDKPI allows none, so it is not called.
func (v *view) Atomic(rc.Op, uint32, uint64, uint64, uint64) uint64 { return 0 }

func (v *view) resolve(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	r := v.regions.valid(token)
	if r == nil || r.pd != v.qp.pd || !r.allows(access) || r.slot != nil && !v.use(r) {
		return dst, false
	}
	// Below the base the offset wraps to more than any length.
	return r.memory.appendRange(dst, va-r.base, uint64(length))
}

// use notes that the queue pair uses a region until done is called; false if it
// must not any more.
func (v *view) use(r *region) bool {
	if n := len(v.uses); n == 0 || v.uses[n-1] != r {
		if !r.use() {
			return false
		}
		v.uses = append(v.uses, r)
	}
	return true
}

// endUses ends all uses.
func (v *view) endUses() {
	for _, r := range v.uses {
		r.unuse()
	}
	clear(v.uses)
	v.uses = v.uses[:0]
}

// endUse ends the uses of one region.
func (v *view) endUse(r *region) {
	v.uses = slices.DeleteFunc(v.uses, func(used *region) bool {
		if used == r {
			r.unuse()
		}
		return used == r
	})
}

// Invalidate implements rc.Memory: a peer may end what was granted to peers by
// fast registration or a window, never a registered region.
func (v *view) Invalidate(token uint32) bool {
	const remote = (MRAllowRemoteRead | MRAllowRemoteWrite) &^ MRAllowLocalWrite
	r := v.regions.valid(token)
	return r != nil && r.flags&remote != 0 && v.endToken(r)
}

// InvalidateLocal implements rc.Memory.
func (v *view) InvalidateLocal(token uint32) bool {
	regions := v.regions
	if r := regions.At(token); r != nil && r.slot != nil {
		r.slot.readDone(v.qp, token)
	}
	r := regions.valid(token)
	return r != nil && v.endToken(r)
}

// endToken ends the token of a region if it is an FRMR's or a window's.
func (v *view) endToken(r *region) bool {
	if r.slot == nil || r.pd != v.qp.pd {
		return false
	}
	g := r.slot
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.region != r {
		return false
	}
	g.endToken(v.qp)
	return true
}

// isPermanent reports whether no request can end a token: that of a registered
// region or the privileged one.
func (v *view) isPermanent(token uint32) bool {
	r := v.regions.valid(token)
	return token == privilegedToken || r != nil && r.slot == nil
}

// addPendingRead notes that a READ that has been posted will end the token of its
// first piece, so that what is posted next may build on it. A token that is not
// valid then will fail the READ.
func (v *view) addPendingRead(token uint32) {
	r := v.regions.At(token)
	if r == nil || r.slot == nil {
		return
	}
	g := r.slot
	g.mu.Lock()
	defer g.mu.Unlock()
	v.qp.changes.add(&tokenChange{slot: g, qp: v.qp, read: token})
}

// readDone notes that a READ of the queue pair that ends the token is complete.
func (g *tokenSlot) readDone(qp *QP, token uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.pending, func(c *tokenChange) bool { return c.qp == qp && c.read == token })
	if i >= 0 {
		g.pending[i].removePending()
	}
}
