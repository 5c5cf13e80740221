package verbs

import (
	"sync/atomic"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/fault"
	"github.com/ndklab/ndklab/internal/provider/rc"
)

// Bytes is memory of this process. Atomic operations on it exclude each other and those of its processors. The program
// may have unmapped it, or protected it: then it is memory that is not registered, for whoever uses it. But what is mapped
// at the same addresses later, by the program or for it, is in its place: a NIC would go on with the old pages.
type Bytes []byte

// longestPayload is the most that a packet carries, bytes: no more is read at once. A longer range is one that is only
// asked for.
const longestPayload = 4096

// Read implements Memory.
func (b Bytes) Read(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	part := b[offset : offset+length : offset+length]
	return append(dst, part), length > longestPayload || fault.Readable(part)
}

// Write implements Memory.
func (b Bytes) Write(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	return append(dst, b[offset:offset+length:offset+length]), true
}

// place copies data to ranges of memory; false if some of that is not there.
func place(ranges [][]byte, data []byte) (ok bool) {
	defer fault.Catch(fault.Expect(), &ok)
	rc.Scatter(ranges, data)
	return true
}

// Atomic implements Memory. The program's address is a multiple of 8, or the processor does it all the same.
func (b Bytes) Atomic(op rc.Op, offset, operand, compare uint64) (original uint64, ok bool) {
	defer fault.Catch(fault.Expect(), &ok)
	at := (*uint64)(unsafe.Pointer(&b[offset : offset+8][0]))
	switch op {
	case rc.OpFetchAdd:
		return atomic.AddUint64(at, operand) - operand, true
	case rc.OpAtomicWrite:
		return atomic.SwapUint64(at, operand), true
	}
	for {
		original = atomic.LoadUint64(at)
		if original != compare || atomic.CompareAndSwapUint64(at, compare, operand) {
			return original, true
		}
	}
}

// An AddressSpace is all memory of this process, whatever is there when it is used: offsets are addresses. Implicit
// regions, which page on demand, are of it.
type AddressSpace struct{}

// addresses is more than a process has, beyond which the processor takes none.
const addresses = 1 << 47

// Read implements Memory.
func (s AddressSpace) Read(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	b, ok := s.at(offset, length)
	if !ok {
		return dst, false
	}
	return b.Read(dst, 0, length)
}

// Write implements Memory.
func (s AddressSpace) Write(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	b, ok := s.at(offset, length)
	if !ok {
		return dst, false
	}
	return b.Write(dst, 0, length)
}

// Atomic implements Memory.
func (s AddressSpace) Atomic(op rc.Op, offset, operand, compare uint64) (original uint64, ok bool) {
	b, ok := s.at(offset, 8)
	if !ok {
		return 0, false
	}
	return b.Atomic(op, 0, operand, compare)
}

// at returns the bytes at an address; false if there cannot be any.
func (AddressSpace) at(address, length uint64) (Bytes, bool) {
	if address == 0 || address > addresses || length > addresses-address {
		return nil, length == 0
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), length), true
}

// Null is memory that reads as zeros and forgets what is written, of any length (ibv_alloc_null_mr).
type Null struct{}

// nothing is read by Null, and oblivion is written by it, piece by piece: many may do so at once.
var nothing, oblivion [1 << 16]byte

// Read implements Memory.
func (Null) Read(dst [][]byte, _, length uint64) ([][]byte, bool) {
	return repeat(dst, nothing[:], length), true
}

// Write implements Memory.
func (Null) Write(dst [][]byte, _, length uint64) ([][]byte, bool) {
	return repeat(dst, oblivion[:], length), true
}

// Atomic implements Memory.
func (Null) Atomic(rc.Op, uint64, uint64, uint64) (original uint64, ok bool) { return 0, true }

// repeat appends a piece as often as makes length bytes.
func repeat(dst [][]byte, piece []byte, length uint64) [][]byte {
	for ; length > 0; length -= uint64(len(piece)) {
		piece = piece[:min(uint64(len(piece)), length)]
		dst = append(dst, piece[:len(piece):len(piece)])
	}
	return dst
}
