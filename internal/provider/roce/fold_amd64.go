package roce

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

// hash/crc32 folds one row of 64 bytes at a time where the processor has AVX-512, and
// mostly waits for the product. Four rows at a time take three quarters of the time for a packet of
// 4 KiB. For less than foldLeast bytes the two are alike. A packet's headers are folded along.
//
// Folding leaves 64 bytes of which the CRC is that of the whole. A CRC is the remainder
// of a division by a polynomial, in which X^n may stand for its own remainder. So 8
// bytes that are n bits before others may be multiplied by that, and added to them
// instead (V. Gopal and others, Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction, Intel 2009).

// wide says that the processor can do it.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

// foldKeys are the factors that move the halves of 16 bytes on by four rows, and then by
// one.
var foldKeys = [4]uint64{foldKey(2048 + 64), foldKey(2048), foldKey(512 + 64), foldKey(512)}

// foldKey returns X^n modulo the CRC's polynomial, for 8 bytes. The bits of all words are in
// reverse: where it stands, 32 bits count X^31 times themselves in 64, and the 127
// bits of a product X times themselves in 128.
func foldKey(n int) uint64 { return uint64(power(1<<30, n-32)) << 1 }

// fold leaves 64 bytes that have the same CRC, begun with a register of zeros, as head and p
// behind it have. The length of p is a multiple of foldBlock, and not 0. Unless dst is nil, p is copied there. Each
// byte is read once, so that the copy has the bytes that are folded, whoever changes p meanwhile.
//
//go:noescape
func fold(rest, head *[64]byte, dst *byte, p []byte, keys *[4]uint64)

// crc returns the CRC, begun with a register of zeros, of head and p behind it.
func (s *scratch) crc(head, p []byte) uint32 {
	if n := len(p) &^ (foldBlock - 1); wide && n >= foldLeast && len(head) == len(s.folded) {
		// The head's CRC alone would take a quarter of the time, mostly to wait for products.
		fold(&s.folded, (*[64]byte)(head), nil, p[:n], &foldKeys)
		head, p = s.folded[:], p[n:]
	}
	register := crc32.Update(registerZero, crc32.IEEETable, head)
	if len(p) == 0 {
		return register
	}
	return crc32.Update(register, crc32.IEEETable, p)
}

// canCopy reports whether copyWithCRC can copy n bytes.
func canCopy(n int) bool { return wide && n >= foldLeast && n%foldBlock == 0 }

// copyWithCRC copies p to dst, which is as long, and returns what crc does. The bytes are in the processor's registers once, not
// twice.
func (s *scratch) copyWithCRC(head *[64]byte, dst, p []byte) uint32 {
	fold(&s.folded, head, &dst[0], p, &foldKeys)
	return crc32.Update(registerZero, crc32.IEEETable, s.folded[:])
}
