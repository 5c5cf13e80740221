package provider

import (
	"sync"

	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// An MR is a memory region: either for Register or, if it was made so, a
// fast-register region (FRMR), whose memory changes by requests of a queue pair
// (frmr.go).
type MR struct {
	object
	Dispatch     MRDispatch // as Adapter.Dispatch
	pd           *PD
	fastRegister bool
	slot         tokenSlot // of an FRMR

	mu      sync.Mutex // guards what follows
	region  *region    // nil while not registered by Register
	windows int        // bound to the region, or about to be
	ending  bool       // and the region stays until the last window is gone
	// Of an FRMR:
	maxPages     uint32 // 0 until it is initialised
	remoteAccess bool
}

// CreateMR makes a memory region, for QP.FastRegister if fastRegister, else for
// Register.
func (pd *PD) CreateMR(fastRegister bool, completion CreateCompletion, context any) (*MR, Status) {
	if !pd.open() {
		return nil, StatusInvalidDeviceState
	}
	m := pd.adapter.miniport
	mr := &MR{pd: pd, fastRegister: fastRegister, slot: tokenSlot{miniport: m}}
	if !mr.reserve(m, sharing.MRs, m.capabilities.MaxMrCount) {
		return nil, StatusInsufficientResources
	}
	mr.Dispatch = mr
	mr.init(pd.clock, ObjectTypeMR, &pd.object)
	return completeCreate(m, mr, &mr.object, completion, context)
}

// Close deregisters the region if need be and closes it. Windows that are bound
// to it work on, and the close pends, until they are invalidated or closed
// (NDK-LIFE-29, 32).
func (mr *MR) Close(completion CloseCompletion, context any) Status {
	return mr.close(func() {
		mr.slot.close(&mr.object)
		mr.mu.Lock()
		defer mr.mu.Unlock()
		if mr.region == nil {
			return
		}
		mr.hold()
		mr.ending = true
		mr.withdrawIfClosing()
	}, nil, completion, context)
}

// withdrawIfClosing withdraws the region of an MR that is closing once no
// window is bound to it. mr.mu is held.
func (mr *MR) withdrawIfClosing() {
	if mr.ending && mr.windows == 0 {
		r := mr.region
		mr.region = nil
		mr.withdraw(r, mr.release)
	}
}

// Register gives the adapter the first length bytes of the memory that mdl
// describes, at mdl's virtual address, with the given rights. The memory must
// stay the region's until it is deregistered; peers write to it at any time.
func (mr *MR) Register(mdl *MDL, length uint64, flags MRFlags, completion RequestCompletion, context any) Status {
	const known = MRAllowLocalWrite | MRAllowRemoteRead | MRAllowRemoteWrite | MRReadSink
	m := mr.pd.adapter.miniport
	remoteWriteAlone := flags&MRAllowRemoteWrite == MRAllowRemoteWrite&^MRAllowLocalWrite // ndkpi.md T34
	if mr.fastRegister || length > m.info.MaxRegistrationSize || flags&^known != 0 || remoteWriteAlone {
		return StatusInvalidParameter
	}
	memory, ok := mdl.pieces(length)
	if !ok {
		return StatusInvalidParameter
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.region != nil || !mr.open() {
		return StatusInvalidDeviceState
	}
	token, ok := m.regions.Take()
	if !ok {
		return StatusInsufficientResources
	}
	mr.region = &region{token: token, pd: mr.pd, base: mdl.VirtualAddress, flags: mr.pd.rightsOfRegion(flags), memory: memory}
	m.regions.Set(token, mr.region)
	return m.completeRequest(&mr.object, completion, context)
}

// Deregister takes the memory back. When it has completed nothing of it is read
// or written any more. It is StatusDeviceBusy while a window is bound to it.
func (mr *MR) Deregister(completion RequestCompletion, context any) Status {
	if completion == nil {
		return StatusInvalidParameter
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	switch {
	case mr.region == nil:
		return StatusInvalidDeviceState
	case mr.windows > 0:
		return StatusDeviceBusy
	}
	r := mr.region
	mr.region = nil
	mr.hold()
	mr.withdraw(r, func() {
		completion(context, StatusSuccess)
		mr.release()
	})
	return StatusPending
}

// withdraw ends the region's token and runs done when no QP can still be using
// the bytes. A QP uses them only while its lock is held, so that passing through
// the locks once is enough, and the packets' path needs no reference counts.
func (mr *MR) withdraw(r *region, done func()) {
	mr.pd.adapter.miniport.regions.Give(r.token)
	mr.clock.Go(func() {
		mr.pd.adapter.miniport.eachQP(func(qp *QP) {
			qp.channel.Lock()
			//lint:ignore SA2001 the lock is taken to wait for its holder
			qp.channel.Unlock()
		})
		done()
	})
}

// LocalToken returns the token for SGEs; 0 while the region is not registered, or
// for an FRMR, not initialised.
func (mr *MR) LocalToken() uint32 { return mr.token() }

// RemoteToken returns the token to give to peers, as the four bytes that go on the
// wire, in host order; 0 like LocalToken. That of an FRMR changes with each
// FastRegister, and is the new one as soon as that has returned (NDK-MR-27).
func (mr *MR) RemoteToken() uint32 { return mr.token() }

func (mr *MR) token() uint32 {
	if mr.fastRegister {
		return mr.slot.newestToken()
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.region == nil {
		return 0
	}
	return mr.region.token
}
