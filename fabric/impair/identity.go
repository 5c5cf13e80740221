package impair

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// An Identity is what tells a RoCEv2 packet from others.
type Identity struct {
	Opcode   roce.Opcode
	Syndrome roce.Syndrome // 0 if the opcode has none
	CM       mad.Attribute // of a connection management message; 0: it is none
	QP       uint32        // the destination's
	PSN      uint32
}

const (
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
	dethLen     = 8
	protocolUDP = 17
)

// Identify reads the identity of a RoCEv2 packet from its headers, which begin
// with that of IP. It checks no length or checksum: a receiver that would refuse
// the packet has its reasons later. It is not ok for anything but UDP to port
// 4791 with the headers that its opcode calls for, right behind an IP header
// without extensions (IPv6) and not in fragments.
func Identify(ip []byte) (id Identity, ok bool) {
	udp := 0
	switch {
	case len(ip) >= ipv4Len && ip[0]>>4 == 4:
		if ip[9] != protocolUDP || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 { // more fragments, or an offset
			return Identity{}, false
		}
		udp = int(ip[0]&15) * 4
		if udp < ipv4Len {
			return Identity{}, false
		}
	case len(ip) >= ipv6Len && ip[0]>>4 == 6 && ip[6] == protocolUDP:
		udp = ipv6Len
	default:
		return Identity{}, false
	}
	if len(ip) < udp+udpLen || binary.BigEndian.Uint16(ip[udp+2:]) != roce.Port {
		return Identity{}, false
	}
	return IdentifyPayload(ip[udp+udpLen:])
}

// IdentifyPayload is Identify for what follows the UDP header of a packet to
// port 4791.
func IdentifyPayload(b []byte) (id Identity, ok bool) {
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
