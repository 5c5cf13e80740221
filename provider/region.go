package provider

import (
	"sync"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/token"
)

// A region describes what a token grants: memory under virtual addresses, and what
// may be done to it. It is immutable once it is in the table, and leaves the table
// when its token ends.
type region struct {
	token  uint32
	pd     *PD
	base   uint64
	flags  MRFlags
	memory pieces

	// The fields below are for the regions of FRMRs and windows only, which come
	// and go with requests; see tokenSlot.
	slot     *tokenSlot
	window   bool       // remote access only
	of       *MR        // whose memory a window opens
	mappings []*mapping // whose pages an FRMR has
	// users is held for reading by the queue pairs that are using the bytes,
	// each for no longer than it holds its own lock, and for writing, for good,
	// once the token has ended and nobody does.
	users sync.RWMutex
}

// rightsOfRegion returns the rights of a region in the domain for which the consumer asked
// for flags: where a read's sink needs no right of its own, all have that one.
func (pd *PD) rightsOfRegion(flags MRFlags) MRFlags {
	if pd.adapter.miniport.info.AdapterFlags&AdapterReadSinkNotRequired != 0 {
		flags |= MRReadSink
	}
	return flags
}

// allows reports whether the region's rights include an access. Local read is
// always granted (ndkpi.md 2.5), but not by a window, which is for peers.
func (r *region) allows(access rc.Access) bool {
	switch access {
	case rc.LocalRead:
		return !r.window
	case rc.LocalWrite:
		return !r.window && r.flags&MRAllowLocalWrite != 0
	case rc.ReadSink:
		return r.allows(rc.LocalWrite) && r.flags&MRReadSink != 0
	case rc.RemoteRead:
		return r.flags&MRAllowRemoteRead != 0
	case rc.RemoteWrite:
		return r.flags&MRAllowRemoteWrite == MRAllowRemoteWrite
	}
	return false
}

// use has the bytes stay until unuse: who ends the token or releases the pages waits for
// that. It is false if that has been done.
func (r *region) use() bool {
	if !r.users.TryRLock() {
		return false
	}
	for i, m := range r.mappings {
		if m.users.TryRLock() {
			continue
		}
		for _, held := range r.mappings[:i] {
			held.users.RUnlock()
		}
		r.users.RUnlock()
		return false
	}
	return true
}

func (r *region) unuse() {
	for _, m := range r.mappings {
		m.users.RUnlock()
	}
	r.users.RUnlock()
}

// A regionTable has the regions by their tokens.
type regionTable struct{ token.Table[region] }

// valid returns the region of a token that is valid; nil for any other.
func (t *regionTable) valid(token uint32) *region {
	r := t.At(token)
	if r == nil || r.token != token {
		return nil
	}
	return r
}
