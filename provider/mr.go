package provider

import (
	"sort"
	"sync"

	"github.com/ndklab/ndklab/provider/rc"
)

// An MDL describes consumer memory: byte ranges in order, each with the virtual
// address under which it is known. The address is an index only: it is never
// dereferenced and need not be that of the bytes (NDK-MR-04).
type MDL struct {
	VirtualAddress uint64
	Bytes          []byte
	Next           *MDL
}

// A piece is a part of a region.
type piece struct {
	bytes []byte
	end   uint64 // offset of its end in the region
}

// pieces returns the first length bytes of a chain, at least one; ok is false
// if the chain is shorter, not virtually contiguous, or beyond the last address.
func (m *MDL) pieces(length uint64) (_ []piece, ok bool) {
	if m == nil || m.VirtualAddress+(length-1) < m.VirtualAddress {
		return nil, false
	}
	var pieces []piece
	base, end := m.VirtualAddress, uint64(0)
	for ; end < length; m = m.Next {
		if m == nil || m.VirtualAddress != base+end {
			return nil, false
		}
		if n := min(uint64(len(m.Bytes)), length-end); n > 0 {
			end += n
			pieces = append(pieces, piece{m.Bytes[:n:n], end})
		}
	}
	return pieces, true
}

// An MR is a memory region.
type MR struct {
	object
	Dispatch MRDispatch // as Adapter.Dispatch
	pd       *PD

	mu     sync.Mutex // guards region
	region *region    // nil while not registered
}

// CreateMR makes a memory region for RegisterMR.
func (pd *PD) CreateMR(completion CreateCompletion, context any) (*MR, Status) {
	m := pd.adapter.miniport
	mr := &MR{pd: pd}
	if !mr.reserve(m, mrResource, m.capabilities.MaxMrCount) {
		return nil, StatusInsufficientResources
	}
	mr.Dispatch = mr
	mr.init(pd.clock, ObjectTypeMR, &pd.object)
	return created(m, mr, &mr.object, completion, context)
}

// Close deregisters the region if need be and closes it.
func (mr *MR) Close(completion CloseCompletion, context any) Status {
	return mr.close(func() {
		if r := mr.takeRegion(); r != nil {
			mr.hold()
			mr.withdraw(r, mr.release)
		}
	}, nil, completion, context)
}

// Register gives the adapter the first length bytes of the memory that mdl
// describes, at mdl's virtual address, with the given rights. The memory must
// stay the region's until it is deregistered; peers write to it at any time.
func (mr *MR) Register(mdl *MDL, length uint64, flags MRFlags, completion RequestCompletion, context any) Status {
	const known = MRAllowLocalWrite | MRAllowRemoteRead | MRAllowRemoteWrite | MRReadSink
	remoteWriteAlone := flags&MRAllowRemoteWrite == MRAllowRemoteWrite&^MRAllowLocalWrite // ndkpi.md T34
	if length == 0 || length > mr.pd.adapter.miniport.info.MaxRegistrationSize || flags&^known != 0 || remoteWriteAlone {
		return StatusInvalidParameter
	}
	pieces, ok := mdl.pieces(length)
	if !ok {
		return StatusInvalidParameter
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.region != nil {
		return StatusInvalidDeviceState
	}
	r := &region{pd: mr.pd, base: mdl.VirtualAddress, length: length, flags: flags, pieces: pieces}
	if !mr.pd.adapter.miniport.regions.add(r) {
		return StatusInsufficientResources
	}
	mr.region = r
	return mr.pd.adapter.miniport.settle(&mr.object, completion, context)
}

// Deregister takes the memory back. When it has completed nothing of it is read
// or written any more.
func (mr *MR) Deregister(completion RequestCompletion, context any) Status {
	if completion == nil {
		return StatusInvalidParameter
	}
	r := mr.takeRegion()
	if r == nil {
		return StatusInvalidDeviceState
	}
	mr.hold()
	mr.withdraw(r, func() {
		completion(context, StatusSuccess)
		mr.release()
	})
	return StatusPending
}

func (mr *MR) takeRegion() *region {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	r := mr.region
	mr.region = nil
	return r
}

// withdraw makes the region's token invalid and runs done when no QP can still
// be using the bytes. A QP uses them only while its lock is held, so that
// passing through the locks once is enough, and the packets' path needs no
// reference counts.
func (mr *MR) withdraw(r *region, done func()) {
	mr.pd.adapter.miniport.regions.remove(r)
	mr.clock.Go(func() {
		mr.pd.adapter.miniport.qps.each(func(qp *QP) {
			qp.mu.Lock()
			//lint:ignore SA2001 the lock is taken to wait for its holder
			qp.mu.Unlock()
		})
		done()
	})
}

// LocalToken is the token for SGEs; 0 while the region is not registered.
func (mr *MR) LocalToken() uint32 { return mr.token() }

// RemoteToken is the token to give to peers, as the four bytes that go on the
// wire, in host order; 0 while the region is not registered.
func (mr *MR) RemoteToken() uint32 { return mr.token() }

func (mr *MR) token() uint32 {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.region == nil {
		return 0
	}
	return mr.region.token
}

// region is registered memory. It is immutable once it is in the table.
type region struct {
	token  uint32
	pd     *PD
	base   uint64
	length uint64
	flags  MRFlags
	pieces []piece
}

// allows reports whether the region's rights include an access. Local read is
// always granted (ndkpi.md 2.5); the sink of a read needs no right of its own
// on this adapter (AdapterReadSinkNotRequired) but local write.
func (r *region) allows(access rc.Access) bool {
	switch access {
	case rc.LocalRead:
		return true
	case rc.LocalWrite, rc.ReadSink:
		return r.flags&MRAllowLocalWrite != 0
	case rc.RemoteRead:
		return r.flags&MRAllowRemoteRead != 0
	case rc.RemoteWrite:
		return r.flags&MRAllowRemoteWrite == MRAllowRemoteWrite
	}
	return false
}

// appendRange appends the bytes [va, va+length) to dst, or reports that they
// are not all inside the region.
func (r *region) appendRange(dst [][]byte, va uint64, length uint32) ([][]byte, bool) {
	offset := va - r.base // below the base it wraps to more than any length
	if offset > r.length || uint64(length) > r.length-offset {
		return dst, false
	}
	i := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i].end > offset })
	for end := offset + uint64(length); offset < end; i++ {
		p := &r.pieces[i]
		from := uint64(len(p.bytes)) - (p.end - offset)
		n := min(p.end, end) - offset
		dst = append(dst, p.bytes[from:from+n:from+n])
		offset += n
	}
	return dst, true
}
