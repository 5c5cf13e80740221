package impair

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// An Identity holds the fields that tell a RoCEv2 packet from others.
type Identity struct {
	Opcode   roce.Opcode
	Syndrome roce.Syndrome // 0 if the opcode has none
	CM       mad.Attribute // of a connection management message; 0: it is none
	QP       uint32        // the destination's
	PSN      uint32
}

const dethLen = 8

// Identify reads the identity of a RoCEv2 packet from what follows its UDP header,
// whose destination is port 4791. It checks no length or checksum: that is the receiver's.
// ok is false without the headers that the opcode requires.
func Identify(b []byte) (id Identity, ok bool) {
	if len(b) < bthLen {
		return Identity{}, false
	}
	id = Identity{
		Opcode: roce.Opcode(b[0]),
		QP:     binary.BigEndian.Uint32(b[4:]) & roce.PSNMask,
		PSN:    binary.BigEndian.Uint32(b[8:]) & roce.PSNMask,
	}
	if len(b) < id.Opcode.HeaderLen() {
		return Identity{}, false
	}
	// The AETH is the first of the extended headers wherever there is one
	// (roce.md 3.1), the DETH likewise.
	if id.Opcode.HasAETH() {
		id.Syndrome = roce.Syndrome(b[bthLen])
	}
	if id.QP == mad.QPN && id.Opcode == roce.UDSendOnly && len(b) >= bthLen+dethLen+mad.Size {
		if h, err := mad.DecodeHeader(b[bthLen+dethLen : bthLen+dethLen+mad.Size]); err == nil {
			id.CM = h.Attribute
		}
	}
	return id, true
}
