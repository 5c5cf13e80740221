package verbs

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Access has the rights to memory, numbered as ibv_access_flags.
type Access uint32

// The rights. Local memory may always be read.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
	AccessBindWindow
	AccessZeroBased
	AccessOnDemand
	AccessHugePages
)

// AccessOptional are rights that a provider may ignore (IBV_ACCESS_OPTIONAL_RANGE), of which
// IBV_ACCESS_RELAXED_ORDERING is one.
const AccessOptional Access = 0x3FF << 20

const accessKnown = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessBindWindow |
	AccessZeroBased | AccessOnDemand | AccessHugePages | AccessOptional

// check returns EINVAL for what makes no sense: unknown rights, or peers that may write where the consumer may not.
func (a Access) check() error {
	if a&^accessKnown != 0 || a&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && a&AccessLocalWrite == 0 {
		return syscall.EINVAL
	}
	return nil
}

// Memory is the bytes of a region: the program's own, wherever it runs. Offsets count from the region's first
// byte; the ranges that are asked for are inside.
type Memory interface {
	// Read and Write append the bytes to dst. They report false if there are none, which may turn out only when they
	// are used.
	Read(dst [][]byte, offset, length uint64) ([][]byte, bool)
	Write(dst [][]byte, offset, length uint64) ([][]byte, bool)
	// Atomic is rc.Memory's, of the 8 bytes at an offset; false if they are not there.
	Atomic(op rc.Op, offset, operand, compare uint64) (original uint64, ok bool)
}

// A PD is a protection domain.
type PD struct {
	context *Context
	holds   atomic.Int64     // objects that were made in it
	qps     map[*QP]struct{} // those of them; guarded by the context's mu
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	if err := c.take(&c.inUse.pds, c.limits.PDs); err != nil {
		return nil, err
	}
	return &PD{context: c, qps: map[*QP]struct{}{}}, nil
}

// Dealloc ends the domain: EBUSY while there is anything in it.
func (pd *PD) Dealloc() error {
	if pd.holds.Load() > 0 {
		return syscall.EBUSY
	}
	pd.context.give(&pd.context.inUse.pds)
	return nil
}

// A region describes what a token grants. It is immutable once it is in the table, and leaves it when its token ends.
type region struct {
	token  uint32
	pd     *PD
	base   uint64 // address of its first byte
	length uint64
	offset uint64 // of its first byte in memory
	access Access
	window bool // remote access only
	by     *MW  // the window
	qp     *QP  // of a type 2 window: by which alone it may be used
	memory Memory
}

// needed lists the rights that accesses need.
var needed = [...]Access{
	rc.LocalRead: 0, rc.LocalWrite: AccessLocalWrite, rc.ReadSink: AccessLocalWrite,
	rc.RemoteRead: AccessRemoteRead, rc.RemoteWrite: AccessRemoteWrite, rc.RemoteAtomic: AccessRemoteAtomic,
	rc.RemoteAtomicWrite: AccessRemoteWrite,
}

// allows reports whether an access is granted.
func (r *region) allows(access rc.Access) bool {
	need := needed[access]
	local := access <= rc.ReadSink
	return !(local && r.window) && r.access&need == need
}

// An MR is a memory region.
type MR struct {
	context *Context
	key     uint32

	mu      sync.Mutex // guards what follows; not held while waiting for a queue pair
	pd      *PD
	region  *region
	windows int // that are bound to it
}

// RegisterMR makes memory of length bytes usable under one token, locally and, as access says, by peers, at
// the addresses from iova on.
func (pd *PD) RegisterMR(memory Memory, length, iova uint64, access Access) (*MR, error) {
	if err := access.check(); err != nil {
		return nil, err
	}
	c := pd.context
	if err := c.take(&c.inUse.mrs, c.limits.MRs); err != nil {
		return nil, err
	}
	t, ok := c.regions.Take()
	if !ok {
		c.give(&c.inUse.mrs)
		return nil, syscall.ENOMEM
	}
	pd.holds.Add(1)
	if access&AccessZeroBased != 0 {
		iova = 0
	}
	mr := &MR{context: c, key: t, pd: pd, region: &region{token: t, pd: pd, base: iova, length: length, access: access, memory: memory}}
	c.regions.Set(t, mr.region)
	return mr, nil
}

// A Registration has what Reregister changes: a field that is nil stays.
type Registration struct {
	PD     *PD
	Memory Memory // with length and address
	Length uint64
	Base   uint64
	Access *Access
}

// Reregister changes what the token grants, at once for whoever uses it next, and returns when nobody uses what it granted
// before: EBUSY while a window is bound to the region.
func (mr *MR) Reregister(to Registration) error {
	before, err := mr.reregister(to)
	if err != nil {
		return err
	}
	before.quiesce()
	return nil
}

// reregister changes what the token grants, and returns the domain that the region was in. It does not wait.
func (mr *MR) reregister(to Registration) (before *PD, err error) {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.windows > 0 {
		return nil, syscall.EBUSY
	}
	r := *mr.region
	if to.Access != nil {
		if err := to.Access.check(); err != nil {
			return nil, err
		}
		r.access = *to.Access
	}
	if to.PD != nil {
		if to.PD.context != mr.context {
			return nil, syscall.EINVAL
		}
		r.pd = to.PD
	}
	if to.Memory != nil {
		r.memory, r.length, r.base = to.Memory, to.Length, to.Base
	}
	r.pd.holds.Add(1)
	before = mr.pd
	before.holds.Add(-1)
	mr.pd, mr.region = r.pd, &r
	mr.context.regions.Set(mr.key, mr.region)
	return before, nil
}

// Key returns the region's token, for local use and for peers.
func (mr *MR) Key() uint32 { return mr.key }

// Access returns the rights to the region.
func (mr *MR) Access() Access {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.region.access
}

// Memory returns the memory that the region was last registered with.
func (mr *MR) Memory() Memory {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	return mr.region.memory
}

// Deregister ends the token, and returns when nobody uses the memory any more: EBUSY while a window is bound to
// it.
func (mr *MR) Deregister() error {
	c := mr.context
	mr.mu.Lock()
	if mr.windows > 0 {
		mr.mu.Unlock()
		return syscall.EBUSY
	}
	c.regions.Give(mr.key)
	pd := mr.pd
	mr.mu.Unlock()
	pd.quiesce()
	pd.holds.Add(-1)
	c.give(&c.inUse.mrs)
	return nil
}

// quiesce returns when no queue pair of the domain uses memory whose token had ended before. Others cannot. They use it
// only while their lock is held, so that it suffices to take each lock once.
func (pd *PD) quiesce() {
	c := pd.context
	c.mu.Lock()
	qps := slices.Collect(maps.Keys(pd.qps))
	c.mu.Unlock()
	for _, qp := range qps {
		qp.lock.Lock()
		//lint:ignore SA2001 the lock is taken to wait for its holder
		qp.lock.Unlock()
	}
}

// region returns nil for a token that is not valid.
func (c *Context) region(t uint32) *region {
	r := c.regions.At(t)
	if r == nil || r.token != t {
		return nil
	}
	return r
}

// A view implements rc.Memory for a queue pair: it has the memory of its protection domain. The queue pair's lock guards
// it.
type view struct{ qp *QP }

// Local implements rc.Memory.
func (v view) Local(dst [][]byte, sge rc.SGE, access rc.Access) ([][]byte, bool) {
	return v.resolve(dst, sge.Token, sge.Address, sge.Length, access)
}

// Remote implements rc.Memory.
func (v view) Remote(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	return v.resolve(dst, token, va, length, access)
}

// isReadable reports whether memory can be read, of which it may turn out later that it is not there. Queue pairs that hear
// nothing of the fate of their packets have to know before these are made.
func isReadable(memory Memory, offset, length uint64) bool {
	m, late := memory.(interface {
		Readable(offset, length uint64) bool
	})
	return !late || m.Readable(offset, length)
}

func (v view) resolve(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	r, offset := v.find(token, va, uint64(length), access)
	if r == nil {
		return dst, false
	}
	switch {
	case access == rc.LocalRead && v.qp.config.Type != RC && !isReadable(r.memory, offset, uint64(length)):
		return dst, false
	case access == rc.LocalRead, access == rc.RemoteRead:
		return r.memory.Read(dst, offset, uint64(length))
	case access >= rc.RemoteAtomic && va%operandBytes == 0: // others are refused for that
		if _, ok := r.memory.Atomic(rc.OpFetchAdd, offset, 0, 0); !ok {
			return dst, false
		}
	}
	return r.memory.Write(dst, offset, uint64(length))
}

// find returns the region of a token and the offset of an address in its memory; nil if the token does not grant
// that access to so many bytes.
func (v view) find(token uint32, va, length uint64, access rc.Access) (*region, uint64) {
	r := v.qp.pd.context.region(token)
	if r == nil || r.pd != v.qp.pd || !r.allows(access) || r.qp != nil && r.qp != v.qp {
		return nil, 0
	}
	at := va - r.base // below the base it wraps to more than any length
	if at > r.length || length > r.length-at {
		return nil, 0
	}
	return r, r.offset + at
}

// Atomic implements rc.Memory.
func (v view) Atomic(op rc.Op, token uint32, va uint64, operand, compare uint64) uint64 {
	access := rc.RemoteAtomic
	if op == rc.OpAtomicWrite {
		access = rc.RemoteAtomicWrite
	}
	r, offset := v.find(token, va, operandBytes, access)
	if r == nil { // the token has ended since Remote resolved it
		return 0
	}
	original, _ := r.memory.Atomic(op, offset, operand, compare) // 0 if the memory has gone since, likewise
	return original
}

// Invalidate implements rc.Memory: a peer may end what a type 2 window grants.
func (v view) Invalidate(token uint32) bool {
	r := v.qp.pd.context.region(token)
	return r != nil && r.window && r.qp == v.qp && v.qp.pd.context.unbind(r)
}

// InvalidateLocal implements rc.Memory. Verbs' READ ends no token.
func (v view) InvalidateLocal(uint32) bool { return false }

// operandBytes is the size of the memory that an atomic operation is applied to.
const operandBytes = 8

// takeOperand makes the 8 bytes that an atomic write writes its operand, and reports whether there are 8 that may be
// read.
func (v view) takeOperand(r *rc.Request) bool {
	if int64(len(r.Inline))+rc.LengthOf(r.SGL) != operandBytes {
		return false
	}
	stored := append(r.Inline[:len(r.Inline):len(r.Inline)], v.read(r.SGL)...)
	if len(stored) != operandBytes {
		return false
	}
	r.Operand, r.SGL, r.Inline = binary.NativeEndian.Uint64(stored), nil, nil
	return true
}

// read returns a copy of the few bytes of an SGL; nil if they may not be read, or are not there.
func (v view) read(sgl []rc.SGE) []byte {
	var pieces [][]byte
	for _, sge := range sgl {
		var ok bool
		if pieces, ok = v.Local(pieces, sge, rc.LocalRead); !ok {
			return nil
		}
	}
	if fetch := v.qp.pd.context.transport.Fetch; fetch != nil {
		done, there, lost := fetch([]roce.Packet{{Payload: pieces}})
		defer done()
		if there == 0 || lost {
			return nil
		}
	}
	return slices.Concat(pieces...)
}
