package roce

import "encoding/binary"

// A traffic class is the second byte of an IPv4 header, the TOS, or the byte behind the
// version of an IPv6 header: a DSCP in the upper six bits and the ECN field in the others
// (roce.md 14.1). The network may change both on the way.
const (
	ECNMask uint8 = 0b11

	// The ECN fields of packets that the network may mark, and CE, which marks them
	// (RFC 3168, 5).
	ECT0 uint8 = 0b10
	ECT1 uint8 = 0b01
	CE   uint8 = 0b11
)

// IsECT reports whether a traffic class says that the network may mark the packet instead of
// dropping it, and has not.
func IsECT(class uint8) bool { return class&ECNMask == ECT0 || class&ECNMask == ECT1 }

// IsCE reports whether a traffic class says that the packet met congestion.
func IsCE(class uint8) bool { return class&ECNMask == CE }

// ClassOf returns the traffic class in an IP header.
func ClassOf(b []byte) uint8 {
	if b[0]>>4 == 4 {
		return b[1]
	}
	return uint8(binary.BigEndian.Uint16(b) >> 4)
}

// putClass writes a traffic class into an IP header that has class 0.
func putClass(b []byte, class uint8) {
	if b[0]>>4 == 4 {
		b[1] = class
		return
	}
	binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(b)|uint16(class)<<4)
}

// RequestedClass returns the traffic class of packets for which a program asks for one: its ECN field is the
// transport's to set, and here is that of packets which may not be marked.
func RequestedClass(class uint8) uint8 { return class &^ ECNMask }

// Mark writes CE into the IP header that a packet begins with, as a network does that met
// congestion, and brings the checksum of IPv4 up to date (RFC 1624, equation 3). A packet that is
// not IP is left alone.
func Mark(b []byte) {
	be := binary.BigEndian
	switch {
	case len(b) < ipv4Len:
	case b[0]>>4 == 4:
		before := be.Uint16(b)
		b[1] |= CE
		sum := uint32(^be.Uint16(b[10:])) + uint32(^before) + uint32(be.Uint16(b))
		sum = sum>>16 + sum&0xFFFF
		be.PutUint16(b[10:], ^uint16(sum>>16+sum))
	case b[0]>>4 == 6:
		b[1] |= CE << 4
	}
}
