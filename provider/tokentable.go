package provider

import (
	"sync"
	"sync/atomic"
)

// A tokenTable finds things by token: the index of a slot in the upper 24 bits,
// a key in the low 8 that changes each time the slot is used again, so that a
// stale token finds nothing (roce.md 9). Look-ups take no lock.
type tokenTable[T any] struct {
	pages [tokenPages]atomic.Pointer[tokenPage[T]]

	mu   sync.Mutex // guards what follows
	free []uint32   // tokens of slots that were given up, with the key to use next
	next uint32     // last slot ever used; slot 0 stays unused: no token is below 1 << keyBits
	used int        // slots
}

const (
	tokenPages    = 1 << 12
	tokenPageSize = 1 << 12
	keyBits       = 8
)

type tokenPage[T any] [tokenPageSize]atomic.Pointer[T]

// at is what the token's slot has, whatever the key; nil if nothing.
func (t *tokenTable[T]) at(token uint32) *T {
	slot := token >> keyBits
	page := t.pages[slot/tokenPageSize].Load()
	if page == nil {
		return nil
	}
	return page[slot%tokenPageSize].Load()
}

// take reserves a slot and returns its token; false if there are none left. The
// slots that were given up are used again, the longest unused first and not
// before there are many, which keeps a stale token invalid for long.
func (t *tokenTable[T]) take() (token uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	unused := t.next < tokenPages*tokenPageSize-1
	switch {
	case len(t.free) > tokenPageSize, !unused && len(t.free) > 0:
		token = t.free[0]
		t.free = t.free[1:]
	case unused:
		t.next++
		token = t.next<<keyBits | 1
	default:
		return 0, false
	}
	if page := &t.pages[token>>keyBits/tokenPageSize]; page.Load() == nil {
		page.Store(new(tokenPage[T]))
	}
	t.used++
	return token, true
}

// set puts a thing in the slot of a token that has been taken.
func (t *tokenTable[T]) set(token uint32, thing *T) {
	slot := token >> keyBits
	t.pages[slot/tokenPageSize].Load()[slot%tokenPageSize].Store(thing)
}

// give gives the slot of the token up; the token must be the last that was used
// of the slot.
func (t *tokenTable[T]) give(token uint32) {
	t.set(token, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, nextKey(token))
	t.used--
}

// nextKey is the token of the same slot that follows.
func nextKey(token uint32) uint32 {
	const keys = 1<<keyBits - 1
	return token&^keys | (token+1)&keys
}
