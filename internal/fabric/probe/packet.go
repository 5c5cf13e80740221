package probe

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A probe is an Ethernet frame to the nearest bridge's group (IEEE 802.1Q, table
// 8-1), of IPv4 (RFC 791) and UDP without checksum (RFC 768), so that whatever is
// changed on the way arrives. Both addresses are the dummy address of RFC 7600, and
// the destination port is discard's. The payload begins with copies of the
// probe's name; the rest is zero.
const (
	etherLen  = 14
	ipLen     = 20
	udpLen    = 8
	headerLen = etherLen + ipLen + udpLen
	copyLen   = 8 // flight and number
	copies    = 3

	// MinSize is the least size of a probe, bytes.
	MinSize = headerLen + copies*copyLen
)

// maxChanged bounds the bits of a flight's number that may have changed in a name
// for it to be taken as that flight's.
const maxChanged = 4

var (
	group = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}
	// sender is an address that no interface has. A bridge that learns it sends
	// nothing to it.
	sender = [6]byte{0x02, 'n', 'd', 'p', 'r', 'b'}
	dummy  = [4]byte{192, 0, 0, 8}
)

const (
	ect0        = 2 // ECN-capable transport (RFC 3168)
	experienced = 3
	discardPort = 9
)

// compose makes a probe of the whole of b.
func compose(b []byte, flight, number uint32) {
	clear(b)
	copy(b, group[:])
	copy(b[6:], sender[:])
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[etherLen:]
	ip[0] = 0x45
	ip[1] = ect0
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[6] = 0x40 // don't fragment
	ip[8] = 1    // hop
	ip[9] = 17   // UDP
	copy(ip[12:], dummy[:])
	copy(ip[16:], dummy[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipLen]))
	udp := ip[ipLen:]
	binary.BigEndian.PutUint16(udp[0:], discardPort)
	binary.BigEndian.PutUint16(udp[2:], discardPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	for i := range copies {
		binary.BigEndian.PutUint32(b[headerLen+i*copyLen:], flight)
		binary.BigEndian.PutUint32(b[headerLen+i*copyLen+4:], number)
	}
}

// isProbe reports whether a frame is a probe. Corruption leaves Ethernet headers
// alone.
func isProbe(b []byte) bool {
	return len(b) >= MinSize && bytes.Equal(b[:6], group[:]) && bytes.Equal(b[6:12], sender[:])
}

// decompose reads a probe's name, of each bit what two copies agree on.
func decompose(b []byte) (flight, number uint32) {
	var c [copies]uint64
	for i := range c {
		c[i] = binary.BigEndian.Uint64(b[headerLen+i*copyLen:])
	}
	name := c[0]&c[1] | c[1]&c[2] | c[0]&c[2]
	return uint32(name >> 32), uint32(name)
}

func marked(b []byte) bool { return b[etherLen+1]&3 == experienced }

// intact reports whether a probe is as it was sent, but for a mark and the
// checksum that goes with it.
func intact(b []byte, flight, number uint32) bool {
	sent := make([]byte, len(b))
	compose(sent, flight, number)
	if marked(b) {
		sent[etherLen+1] |= experienced
		binary.BigEndian.PutUint16(sent[etherLen+10:], 0)
		binary.BigEndian.PutUint16(sent[etherLen+10:], checksum(sent[etherLen:etherLen+ipLen]))
	}
	return bytes.Equal(sent, b)
}

// distance returns the number of bits in which a and b differ.
func distance(a, b uint32) int { return bits.OnesCount32(a ^ b) }

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
