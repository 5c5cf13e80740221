package provider

import (
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// An MW is a memory window: a part of a registered region with rights and a
// token of its own, for peers, that comes and goes with requests of a queue
// pair.
type MW struct {
	object
	Dispatch MWDispatch // as Adapter.Dispatch
	pd       *PD
	slot     tokenSlot
}

// CreateMW makes a memory window for QP.Bind.
func (pd *PD) CreateMW(completion CreateCompletion, context any) (*MW, Status) {
	if !pd.open() {
		return nil, StatusInvalidDeviceState
	}
	m := pd.adapter.miniport
	mw := &MW{pd: pd, slot: tokenSlot{miniport: m}}
	if !mw.reserve(m, sharing.MWs, m.capabilities.MaxMwCount) {
		return nil, StatusInsufficientResources
	}
	mw.Dispatch = mw
	mw.init(pd.clock, ObjectTypeMW, &pd.object)
	if status := mw.slot.allocate(); status != StatusSuccess {
		mw.discard()
		return nil, status
	}
	return completeCreate(m, mw, &mw.object, completion, context)
}

// Close closes the window, invalidating it if need be.
func (mw *MW) Close(completion CloseCompletion, context any) Status {
	return mw.close(func() { mw.slot.close(&mw.object) }, nil, completion, context)
}

// RemoteToken returns the token to give to peers. It changes with each Bind, and is
// the new one as soon as that has returned (NDK-MW-02).
func (mw *MW) RemoteToken() uint32 { return mw.slot.newestToken() }

// Bind opens a window to length bytes of a registered region at virtualAddress,
// in the region's addresses. It takes effect when its turn comes, before any
// later request begins. The window must not be bound, or its Invalidate must
// have been posted before. Until it is invalidated or closed the region stays
// registered.
func (qp *QP) Bind(context any, mr *MR, mw *MW, virtualAddress, length uint64, flags OpFlags) Status {
	c, status := &tokenChange{}, StatusInvalidParameter
	if mr != nil && mw != nil {
		c.slot, c.pd = &mw.slot, mw.pd
		c.region, status = mr.bind(mw, virtualAddress, length, flags)
	}
	return qp.postChange(rc.OpBind, context, c, status, flags, opFlagsOfBind)
}

// bind returns the region that a window to part of mr is to have. It counts as bound
// until it is let go.
func (mr *MR) bind(mw *MW, va, length uint64, flags OpFlags) (*region, Status) {
	rights, ok := rightsOf(flags)
	if !ok || mr.pd != mw.pd || flags&OpAllowRemoteWrite == OpAllowLocalWrite ||
		length == 0 || length > mr.pd.adapter.miniport.info.MaxWindowSize {
		return nil, StatusInvalidParameter
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.region == nil || !mr.open() {
		return nil, StatusInvalidParameter
	}
	if rights&MRAllowLocalWrite&^mr.region.flags != 0 {
		return nil, StatusAccessViolation
	}
	offset, size := va-mr.region.base, mr.region.memory.length()
	if offset > size || length > size-offset { // below the base the offset wraps to more than any size
		return nil, StatusInvalidParameter
	}
	mr.windows++
	return &region{
		pd: mr.pd, base: va, flags: rights, memory: pieces(nil).appendPart(mr.region.memory, offset, length),
		slot: &mw.slot, window: true, of: mr,
	}, StatusSuccess
}

// releaseMemory lets go of the MR that a window's region belongs to.
func (r *region) releaseMemory() {
	if r == nil || r.of == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.windows--
	r.of.withdrawIfClosing()
}
