// Package rctest has what tests of queue pairs need beside one.
package rctest

import "github.com/ndklab/ndklab/internal/provider/rc"

// A Memory is a protection domain of flat regions, by token: region t begins at address t<<32, and
// allows everything but what only windows and atomics are for.
type Memory map[uint32][]byte

// Piece returns n bytes of the region with the given token, from offset.
func Piece(token uint32, offset, n int) rc.SGE {
	return rc.SGE{Address: uint64(token)<<32 + uint64(offset), Length: uint32(n), Token: token}
}

// Local implements rc.Memory.
func (m Memory) Local(dst [][]byte, sge rc.SGE, access rc.Access) ([][]byte, bool) {
	return m.Remote(dst, sge.Token, sge.Address, sge.Length, access)
}

// Remote implements rc.Memory.
func (m Memory) Remote(dst [][]byte, token uint32, va uint64, length uint32, _ rc.Access) ([][]byte, bool) {
	at, size := va-uint64(token)<<32, uint64(len(m[token])) // below the region it wraps to more than any size
	if at > size || uint64(length) > size-at {
		return dst, false
	}
	return append(dst, m[token][at:at+uint64(length)]), true
}

// Atomic implements rc.Memory.
func (Memory) Atomic(rc.Op, uint32, uint64, uint64, uint64) uint64 { panic("an atomic") }

// Invalidate implements rc.Memory.
func (Memory) Invalidate(uint32) bool { panic("an invalidation") }

// InvalidateLocal implements rc.Memory.
func (Memory) InvalidateLocal(uint32) bool { panic("an invalidation") }
