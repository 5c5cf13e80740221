package provider

import (
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/provider/rc"
)

// A PD is a protection domain: regions and the QPs that may use them.
type PD struct {
	object
	Dispatch PDDispatch // as Adapter.Dispatch
	adapter  *Adapter
}

// CreatePD makes a protection domain.
func (a *Adapter) CreatePD(completion CreateCompletion, context any) (*PD, Status) {
	pd := &PD{adapter: a}
	if !pd.reserve(a.miniport, pdResource, a.miniport.capabilities.MaxPdCount) {
		return nil, StatusInsufficientResources
	}
	pd.Dispatch = pd
	pd.init(a.clock, ObjectTypePD, &a.object)
	return created(a.miniport, pd, &pd.object, completion, context)
}

// Close closes the domain (ndkpi.md 4.2).
func (pd *PD) Close(completion CloseCompletion, context any) Status {
	return pd.close(nil, nil, completion, context)
}

// Local implements rc.Memory.
func (pd *PD) Local(dst [][]byte, sge rc.SGE, access rc.Access) ([][]byte, bool) {
	return pd.resolve(dst, sge.Token, sge.Address, sge.Length, access)
}

// Remote implements rc.Memory. A token counts only on connections of its own
// domain (ndkpi.md T70).
func (pd *PD) Remote(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	return pd.resolve(dst, token, va, length, access)
}

// Invalidate implements rc.Memory: a peer may end only what was made for it by
// fast registration or a window, never a registered region.
func (pd *PD) Invalidate(uint32) bool { return false }

// InvalidateLocal implements rc.Memory.
func (pd *PD) InvalidateLocal(uint32) bool { return false }

func (pd *PD) resolve(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	r := pd.adapter.miniport.regions.get(token)
	if r == nil || r.pd != pd || !r.allows(access) {
		return dst, false
	}
	return r.appendRange(dst, va, length)
}

// regionTable finds regions by token: the index of a slot in the upper 24 bits,
// a key in the low 8 that changes each time the slot is used again, so that a
// stale token finds nothing (roce.md 9). Look-ups take no lock.
type regionTable struct {
	pages [regionPages]atomic.Pointer[regionPage]

	mu   sync.Mutex // guards what follows
	free []uint32   // tokens of removed regions, with the key to use next
	next uint32     // last slot ever used
}

const (
	regionPages    = 1 << 12
	regionPageSize = 1 << 12
)

type regionPage [regionPageSize]atomic.Pointer[region]

// get is nil for a token that is not valid.
func (t *regionTable) get(token uint32) *region {
	slot := token >> 8
	page := t.pages[slot/regionPageSize].Load()
	if page == nil {
		return nil
	}
	r := page[slot%regionPageSize].Load()
	if r == nil || r.token != token {
		return nil
	}
	return r
}

// add gives the region a token; false if there are none left. The slots of
// removed regions are used again, the longest unused first and not before there
// are many, which keeps a stale token invalid for long.
func (t *regionTable) add(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	unused := t.next < regionPages*regionPageSize-1
	switch {
	case len(t.free) > regionPageSize, !unused && len(t.free) > 0:
		r.token = t.free[0]
		t.free = t.free[1:]
	case unused:
		t.next++ // slot 0 stays unused: no token is 0
		r.token = t.next<<8 | 1
	default:
		return false
	}
	slot := r.token >> 8
	page := t.pages[slot/regionPageSize].Load()
	if page == nil {
		page = new(regionPage)
		t.pages[slot/regionPageSize].Store(page)
	}
	page[slot%regionPageSize].Store(r)
	return true
}

func (t *regionTable) remove(r *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := r.token >> 8
	t.pages[slot/regionPageSize].Load()[slot%regionPageSize].Store(nil)
	t.free = append(t.free, slot<<8|(r.token+1)&0xFF)
}
