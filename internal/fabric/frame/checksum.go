package frame

import (
	"encoding/binary"
	"math/bits"
)

// sum adds up b as big-endian 16-bit words for the Internet checksum
// (RFC 1071); the result still has to be folded.
func sum(b []byte) uint64 {
	var s, carry uint64
	for len(b) >= 8 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	// Below 2^34 after this, so that what follows cannot overflow.
	s = s>>32 + s&0xffffffff + carry
	for len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// fold reduces a sum to 16 bits, carries added back in.
func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
