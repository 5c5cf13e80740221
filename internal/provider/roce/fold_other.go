//go:build !amd64

package roce

import "hash/crc32"

// crc returns the CRC, begun with a register of zeros, of head and p behind it.
func (s *scratch) crc(head, p []byte) uint32 {
	return crc32.Update(crc32.Update(registerZero, crc32.IEEETable, head), crc32.IEEETable, p)
}

func canCopy(int) bool { return false }

func (s *scratch) copyWithCRC(*[64]byte, []byte, []byte) uint32 { panic("canCopy forbids it") }
