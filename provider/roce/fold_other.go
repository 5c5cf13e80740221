//go:build !amd64

package roce

import "hash/crc32"

// update is crc32.Update of the IEEE polynomial.
func (s *scratch) update(crc uint32, p []byte) uint32 {
	return crc32.Update(crc, crc32.IEEETable, p)
}
