//go:build cgo

package main

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/token"
)

// handles name objects of one kind to the library: as many bits as the ABI's structures have for them. The handle of an
// object that is gone is known for one for long.
type handles[T any] struct{ table token.Table[entry[T]] }

type entry[T any] struct {
	handle uint32
	object *T
}

// add gives an object a handle, which is never 0. The limits of package verbs are less than there are handles.
func (h *handles[T]) add(object *T) uint64 {
	handle, ok := h.table.Take()
	if !ok {
		panic("no handle is left")
	}
	h.table.Set(handle, &entry[T]{handle, object})
	return uint64(handle)
}

// get returns the object that a handle names; nil if there is none.
func (h *handles[T]) get(handle uint64) *T {
	e := h.table.At(uint32(handle))
	if e == nil || uint64(e.handle) != handle {
		return nil
	}
	return e.object
}

// remove forgets the object that a handle names, unless end, which is called with it, has an error. EINVAL if there is
// none.
func (h *handles[T]) remove(handle uint64, end func(*T) error) error {
	object := h.get(handle)
	if object == nil {
		return syscall.EINVAL
	}
	if err := end(object); err != nil {
		return err
	}
	h.table.Give(uint32(handle))
	return nil
}
