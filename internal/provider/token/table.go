// Package token finds things by token: what memory is known by on the wire (roce.md 9).
package token

import (
	"sync"
	"sync/atomic"
)

// A Table finds things by token: the index of a slot in the upper 24 bits,
// a key in the low 8 that changes each time the slot is used again, so that a
// stale token finds nothing (roce.md 9). Look-ups take no lock.
type Table[T any] struct {
	pages [numPages]atomic.Pointer[tablePage[T]]

	mu   sync.Mutex // guards what follows
	free []uint32   // tokens of slots that were given up, with the key to use next
	next uint32     // last slot ever used; slot 0 stays unused: no token is below 1 << KeyBits
	used int        // slots
}

// KeyBits is the number of bits of a token that are its key.
const KeyBits = 8

const (
	numPages = 1 << 12
	pageSize = 1 << 12
)

type tablePage[T any] [pageSize]atomic.Pointer[T]

// At returns what the token's slot has, whatever the key; nil if nothing.
func (t *Table[T]) At(token uint32) *T {
	slot := token >> KeyBits
	page := t.pages[slot/pageSize].Load()
	if page == nil {
		return nil
	}
	return page[slot%pageSize].Load()
}

// Take reserves a slot and returns its token; false if there are none left. The
// slots that were given up are used again, the longest unused first and not
// before there are many, which keeps a stale token invalid for long.
func (t *Table[T]) Take() (token uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	unused := t.next < numPages*pageSize-1
	switch {
	case len(t.free) > pageSize, !unused && len(t.free) > 0:
		token = t.free[0]
		t.free = t.free[1:]
	case unused:
		t.next++
		token = t.next<<KeyBits | 1
	default:
		return 0, false
	}
	if page := &t.pages[token>>KeyBits/pageSize]; page.Load() == nil {
		page.Store(new(tablePage[T]))
	}
	t.used++
	return token, true
}

// Set puts a thing in the slot of a token that has been taken.
func (t *Table[T]) Set(token uint32, thing *T) {
	slot := token >> KeyBits
	t.pages[slot/pageSize].Load()[slot%pageSize].Store(thing)
}

// Give gives the slot of the token up; the token must be the last that was used
// of the slot.
func (t *Table[T]) Give(token uint32) {
	t.Set(token, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, Next(token))
	t.used--
}

// Next returns the token of the same slot that follows.
func Next(token uint32) uint32 {
	const keys = 1<<KeyBits - 1
	return token&^keys | (token+1)&keys
}

// InUse counts the tokens that are taken.
func (t *Table[T]) InUse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// Leave has no more than n slots be left that have never been used: for tests.
func (t *Table[T]) Leave(n uint32) { t.next = numPages*pageSize - 1 - n }
