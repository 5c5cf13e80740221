package provider

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// maxFastRegisterPages is the most pages that an FRMR can have.
const maxFastRegisterPages = 1 << 20

// InitializeFastRegister makes an FRMR ready for FastRegister of up to
// adapterPageCount pages, with rights for peers if remoteAccess. From its
// completion on the region has a token, though that grants nothing yet. Of
// several calls the last counts; it is StatusInvalidDeviceState while memory is
// registered or is about to be.
func (mr *MR) InitializeFastRegister(adapterPageCount uint32, remoteAccess bool, completion RequestCompletion, context any) Status {
	switch {
	case !mr.fastRegister, adapterPageCount == 0:
		return StatusInvalidParameter
	case adapterPageCount > maxFastRegisterPages:
		return StatusImplementationLimit
	}
	if status := mr.slot.allocate(); status != StatusSuccess {
		return status
	}
	mr.mu.Lock()
	mr.maxPages, mr.remoteAccess = adapterPageCount, remoteAccess
	mr.mu.Unlock()
	return mr.pd.adapter.miniport.completeRequest(&mr.object, completion, context)
}

// FastRegister has an FRMR stand for length bytes of the pages, from byte fbo of
// the first on, at baseVirtualAddress. It takes effect when its turn comes,
// before any later request begins; the region's new token can be had as soon as
// the call returns. The region must not be registered, or its Invalidate must
// have been posted before.
//
// pages may be of several LAMs, and are copied. Parts of them that lie outside of
// the memory that was mapped are part of the region, but cannot be accessed.
func (qp *QP) FastRegister(context any, mr *MR, pages []LogicalAddress, fbo uint32, length uint64, baseVirtualAddress uint64, flags OpFlags) Status {
	c, status := &tokenChange{}, StatusInvalidParameter
	if mr != nil {
		c.slot, c.pd = &mr.slot, mr.pd
		c.region, status = mr.fastRegion(pages, fbo, length, baseVirtualAddress, flags)
	}
	return qp.postChange(rc.OpFastRegister, context, c, status, flags, opFlagsOfFastRegister)
}

// fastRegion returns the region that a FastRegister asks for.
func (mr *MR) fastRegion(pages []LogicalAddress, fbo uint32, length, base uint64, flags OpFlags) (*region, Status) {
	mr.mu.Lock()
	maxPages, remoteAccess := mr.maxPages, mr.remoteAccess
	mr.mu.Unlock()
	rights, ok := rightsOf(flags)
	switch {
	case !mr.fastRegister, !ok:
		return nil, StatusInvalidParameter
	case maxPages == 0:
		return nil, StatusInvalidDeviceState
	case len(pages) > int(maxPages), length == 0, length > mr.pd.adapter.miniport.info.MaxRegistrationSize,
		uint64(fbo)+length > uint64(len(pages))*PageSize,
		base%PageSize != uint64(fbo), // NDK-MR-23, 24, and a first byte that is not in the first page
		base+(length-1) < base:
		return nil, StatusInvalidParameter
	case !remoteAccess && rights&(MRAllowRemoteRead|MRAllowRemoteWrite)&^MRAllowLocalWrite != 0:
		return nil, StatusAccessViolation
	}
	r := &region{pd: mr.pd, base: base, flags: mr.pd.rightsOfRegion(rights), slot: &mr.slot}
	if !r.gather(mr.pd.adapter, pages, uint64(fbo), uint64(fbo)+length) {
		return nil, StatusInvalidParameter
	}
	return r, StatusSuccess
}

// gather makes the memory of a region of what the pages have from one place to
// another, counted from the start of the first page. It is false if one of
// them is not the address of a page that the adapter has mapped.
func (r *region) gather(a *Adapter, pages []LogicalAddress, from, to uint64) bool {
	// Neighbours in a mapping are taken together, so that the region has as few
	// pieces as can be.
	var of *mapping
	var first, next uint64 // what is to be taken of it
	for i, address := range pages {
		m, at := a.mapping(address)
		if m == nil || at%PageSize != 0 {
			return false
		}
		start := uint64(i) * PageSize
		if start >= to {
			continue
		}
		if m != of || at != next {
			if of != nil {
				r.memory = of.appendPages(r.memory, first, next)
			}
			of, first = m, at
			if i == 0 {
				first += from
			}
			if !slices.Contains(r.mappings, m) {
				r.mappings = append(r.mappings, m)
			}
		}
		next = at + min(PageSize, to-start)
	}
	r.memory = of.appendPages(r.memory, first, next)
	return true
}

// rightsOf returns the rights that a FastRegister or Bind asks for; false if they ask
// for remote without local write (ndkpi.md T34).
func rightsOf(flags OpFlags) (_ MRFlags, ok bool) {
	if flags&OpAllowRemoteWrite == OpAllowRemoteWrite&^OpAllowLocalWrite {
		return 0, false
	}
	var rights MRFlags
	for _, f := range []struct {
		op OpFlags
		mr MRFlags
	}{
		{OpAllowRemoteRead, MRAllowRemoteRead},
		{OpAllowLocalWrite, MRAllowLocalWrite},
		{OpAllowRemoteWrite, MRAllowRemoteWrite},
		{OpReadSink, MRReadSink},
	} {
		if flags&f.op == f.op {
			rights |= f.mr
		}
	}
	return rights, true
}
