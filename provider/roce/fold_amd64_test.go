package roce

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestUpdate compares the folded CRC with that of the standard library, from every
// offset in a row on, and for lengths around those where another way is taken; and
// what a processor does that cannot fold.
func TestUpdate(t *testing.T) {
	p := make([]byte, 3*MaxMTU)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	s := new(scratch)
	defer func(can bool) { wide = can }(wide)
	if !wide {
		t.Log("this processor cannot fold")
	}
	for _, wide = range []bool{wide, false} {
		for offset := range 64 {
			for _, n := range []int{0, 1, foldLeast - 1, foldLeast, foldLeast + 1, foldLeast + 255, MaxMTU, MaxMTU + 28, 2*MaxMTU + offset} {
				register := crc32.ChecksumIEEE(p[:offset])
				if got, want := s.update(register, p[offset:][:n]), crc32.Update(register, crc32.IEEETable, p[offset:][:n]); got != want {
					t.Fatalf("folding %v, %d bytes at %d: %#x, want %#x", wide, n, offset, got, want)
				}
			}
		}
	}
}
