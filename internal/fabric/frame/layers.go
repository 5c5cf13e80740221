package frame

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Layers holds the offsets of the parts of a frame. They are the same in each of the wire
// packets that a frame stands for.
type Layers struct {
	Payload int   // bytes before the payload of UDP or TCP, before that of IP if it is neither, or 14 if it is not IP
	Class   uint8 // the traffic class in the IP header; 0 of another packet
	ECT     bool  // the IP header permits marking (ECN-capable transport, RFC 3168)
	RoCE    bool  // it is UDP to the port of RoCEv2
	ipv6    bool
	L4      int // offset of the header of UDP or TCP from the Ethernet header on; 0 without one
}

// Layers parses the frame's headers.
func (f *Frame) Layers() Layers {
	p := f.Packet()
	at := Layers{Payload: ethernetLen}
	end, proto, ipv6, first := networkHeader(f.bytes, HeaderLen+ethernetLen)
	if end == 0 {
		return at
	}
	at.Class = roce.ClassOf(p[ethernetLen:])
	at.ECT = roce.IsECT(at.Class)
	at.ipv6 = ipv6
	at.Payload = min(end-HeaderLen, len(p))
	if !first {
		return at
	}
	switch rest := p[at.Payload:]; {
	case proto == protoUDP && len(rest) >= udpLen:
		at.RoCE = binary.BigEndian.Uint16(rest[2:]) == roce.Port
		at.L4 = at.Payload
		at.Payload += udpLen
	case proto == protoTCP && len(rest) >= 20:
		at.L4 = at.Payload
		at.Payload += min(max(int(rest[12]>>4)*4, 20), len(rest))
	}
	return at
}

// Message returns what wire packet i carries behind the headers of UDP or TCP.
func (f *Frame) Message(i int, at Layers) []byte {
	if f.segments > 1 {
		return f.Payload(i, 1)
	}
	return f.Packet()[at.Payload:]
}

// Mark writes Congestion Experienced into the IP header of a packet that begins with its Ethernet
// header. A packet that is not IP is left alone.
func Mark(packet []byte) {
	if len(packet) < ethernetLen {
		return
	}
	switch binary.BigEndian.Uint16(packet[ethernetLen-2:]) {
	case etherIPv4, etherIPv6:
		roce.Mark(packet[ethernetLen:])
	}
}

// Reseal updates the UDP checksum of a wire packet of the frame, complete with checksums, of
// which bytes were changed, if it is RoCEv2: the ICRC has to detect the change, since Linux
// and hardware send no UDP checksum (roce.md 1). The checksum of any other packet stays
// wrong.
func (f *Frame) Reseal(packet []byte, at Layers) {
	if !at.RoCE {
		return
	}
	field := packet[at.L4+udpCsum:]
	partial := f.bytes[offFlags]&needsCsum != 0
	original := binary.BigEndian.Uint16(f.Packet()[at.L4+udpCsum:])
	binary.BigEndian.PutUint16(field, 0)
	if original == 0 && !partial {
		return
	}
	pseudo := packet[ethernetLen+12 : ethernetLen+20]
	if at.ipv6 {
		pseudo = packet[ethernetLen+8 : ethernetLen+ipv6Len]
	}
	length := len(packet) - at.L4
	binary.BigEndian.PutUint16(field, fold(sum(pseudo)+protoUDP+uint64(length)))
	complete(packet, at.L4, at.L4+udpCsum)
}
