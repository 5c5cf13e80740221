package roce

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestCRC compares the folded CRC with that of the standard library, from every
// offset in a row on, for heads of several lengths, and for lengths around those where
// another way is taken; and what a processor does that cannot fold.
func TestCRC(t *testing.T) {
	p := make([]byte, 3*MaxMTU)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	s := new(scratch)
	defer func(can bool) { wide = can }(wide)
	if !wide {
		t.Log("this processor cannot fold")
	}
	for _, wide = range []bool{wide, false} {
		for offset := range 64 {
			for _, length := range []int{64, 80, 112} {
				head := p[offset:][:length]
				for _, n := range []int{0, 1, foldLeast - 1, foldLeast, foldLeast + 1, foldLeast + 255, MaxMTU, MaxMTU + 28, 2*MaxMTU + offset} {
					rest := p[len(p)-n:]
					want := crc32.Update(crc32.Update(registerZero, crc32.IEEETable, head), crc32.IEEETable, rest)
					if got := s.crc(head, rest); got != want {
						t.Fatalf("folding %v, %d and %d bytes at %d: %#x, want %#x", wide, length, n, offset, got, want)
					}
				}
			}
		}
	}
}
