package roce

import "encoding/binary"

// GRHLen is the length in bytes of a GRH.
const GRHLen = 40

// GRH returns what stands before the data in a datagram's receive: where the InfiniBand fabric has
// a global route header, RoCEv2 has the IP header of the packet, that of IPv4 in the last 20 bytes
// (IBTA Annex A17, 5.2.7). It is made anew for a packet that has arrived with a traffic class, and so many
// bytes of payload: the identification of IPv4 is 0. The header checksum is right, by which programs tell
// IPv4 from IPv6 (ibv_create_ah_from_wc of libibverbs).
func GRH(flow *Flow, class uint8, op Opcode, payload int) [GRHLen]byte {
	var b [GRHLen + udpLen]byte
	at := 0
	if flow.Local.Is4() {
		at = GRHLen - ipv4Len
	}
	putIP(b[at:], &flow.Remote, &flow.Local, flow.SourcePort, 0, op.HeaderLen()+payload+padLen(payload)+icrcLen)
	putClass(b[at:], class)
	if at > 0 {
		binary.BigEndian.PutUint16(b[at+10:], ipv4Checksum(b[at:]))
	}
	return [GRHLen]byte(b[:GRHLen])
}
