package roce

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// A Verifier checks the ICRCs of received packets. The zero Verifier is ready
// for use, by one goroutine at a time.
//
// The ICRC covers the IPv4 identification, which a UDP socket does not show.
// But a CRC is linear: the difference between the ICRC received and the one
// computed with a guessed ID is the difference of the IDs times a power of x
// that depends on the packet's length alone. Dividing by that gives the ID in
// which an intact packet was sent, at the price of some strength: of the 2^32
// differences that corruption may leave, as many look intact as there are IDs
// that the caller then believes. If it believes 128 of them, a corrupted packet
// passes one time in 2^25; if all 65536, one time in 2^16; if one, or over IPv6,
// one time in 2^32.
type Verifier struct {
	buf scratch
	// quotients[n/4%len] is what solve multiplies with for a UDP payload of
	// n bytes. Traffic has few lengths, so collisions are rare.
	quotients [32]struct {
		length   int
		quotient uint32
	}
}

// Verify checks the ICRC of a packet of which a UDP socket handed over the
// payload, BTH to ICRC. As in Received, flow.Local is the receiver. The socket hides
// the IPv4 identification: hint is tried first and costs one pass over the
// bytes, then the ID is solved for at once. It returns the ID that fits, which it is
// for the caller to believe or not, with the loss of strength that Verifier
// tells of; ok is false if none does. Over IPv6 the ID is 0.
//
// Our own peers send the index of the segment in its super-packet. The best hint
// is the index in the received super-packet, which is the same if nothing on the
// way dropped or split packets. If the IP header can be seen, DecodeIP is better.
//
// The packet is assumed to have come without IP options and with the
// don't-fragment flag set.
func (v *Verifier) Verify(flow *Flow, udpPayload []byte, hint uint16) (id uint16, ok bool) {
	if len(udpPayload) < bthLen+icrcLen {
		return 0, false
	}
	n := putIP(v.buf.ip(), &flow.Remote, &flow.Local, flow.SourcePort, hint, len(udpPayload))
	difference := v.difference(n, udpPayload)
	if flow.Local.Is6() {
		return 0, difference == 0
	}
	if difference == 0 {
		return hint, true
	}
	x, ok := v.solve(difference, len(udpPayload))
	if !ok {
		return 0, false
	}
	return hint ^ x, true
}

// difference returns the ICRC that a UDP payload bears, exclusive or the one computed of
// the IP and UDP headers, the first n bytes of v.buf.ip(), and the payload.
func (v *Verifier) difference(n int, udpPayload []byte) uint32 {
	end := len(udpPayload) - icrcLen
	return v.buf.icrc(n, udpPayload[:end]) ^ binary.LittleEndian.Uint32(udpPayload[end:])
}

// solve finds which change x of the IPv4 identification explains a difference
// of ICRCs in a packet with n bytes of UDP payload; ok is false if none does.
//
// With polynomials over GF(2) modulo the CRC's, the difference is
// x * X^32 * X^(8*k), k being the number of bytes hashed after the ID: 14 of the
// IPv4 header, 8 of UDP, the payload without ICRC.
func (v *Verifier) solve(difference uint32, n int) (x uint16, ok bool) {
	q := &v.quotients[n/4%len(v.quotients)]
	if q.length != n {
		q.length = n
		q.quotient = powX8Inverse(icrcLen + 14 + udpLen + n - icrcLen)
	}
	// In this reflected CRC the highest bit of a word is the coefficient of
	// X^0. x has degree 15 or less, hence is the upper half, and the bytes
	// of a message come lowest first.
	y := multiply(difference, q.quotient)
	return bits.ReverseBytes16(uint16(y >> 16)), y&0xFFFF == 0
}

// multiply returns the product of two polynomials modulo the CRC's.
func multiply(a, b uint32) uint32 {
	var product uint32
	for a != 0 {
		product ^= b & uint32(int32(a)>>31)
		a <<= 1
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// powX8Inverse returns X^(-8*n).
func powX8Inverse(n int) uint32 {
	const one = 1 << 31
	// X^-8: X divides the polynomial plus one, eight times over.
	inverse := uint32(one)
	for range 8 {
		if inverse&one != 0 {
			inverse = (inverse^crc32.IEEE)<<1 | 1
		} else {
			inverse <<= 1
		}
	}
	return power(inverse, n)
}

// power returns base to the power of n, which is not negative.
func power(base uint32, n int) uint32 {
	result := uint32(1 << 31)
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			result = multiply(result, base)
		}
		base = multiply(base, base)
	}
	return result
}
