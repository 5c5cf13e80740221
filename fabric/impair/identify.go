package impair

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// Offsets in the payload of a UDP datagram (roce.md 2.1, 2.2, 10.1).
const (
	bthQP   = 4 // behind 8 bits of other use
	bthPSN  = 8 // likewise
	bthLen  = 12
	dethLen = 8

	madAttribute = bthLen + dethLen + 16
)

// Identify reads the identity of a RoCEv2 packet into id: datagram is what the
// UDP header is followed by. It reports whether it is one, as far as its length
// tells.
func Identify(datagram []byte, id *Identity) bool {
	if len(datagram) < bthLen {
		return false
	}
	*id = Identity{
		Opcode: roce.Opcode(datagram[0]),
		QP:     binary.BigEndian.Uint32(datagram[bthQP:]) & 0xffffff,
		PSN:    binary.BigEndian.Uint32(datagram[bthPSN:]) & roce.PSNMask,
	}
	switch rest := datagram[bthLen:]; {
	case id.Opcode.HasAETH() && len(rest) > 0:
		id.Syndrome = roce.Syndrome(rest[0])
	case id.QP == mad.QPN && id.Opcode == roce.UDSendOnly && len(datagram) >= madAttribute+2:
		id.CM = mad.Attribute(binary.BigEndian.Uint16(datagram[madAttribute:]))
	}
	return true
}
