package roce

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
