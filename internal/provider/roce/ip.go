package roce

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

const (
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8

	protocolUDP = 17
	hopLimit    = 64
)

// These errors say what is wrong with an IP packet, beyond what Decode finds.
var (
	ErrNotRoCE  = errors.New("roce: not a whole IP packet with UDP to port 4791")
	ErrChecksum = errors.New("roce: wrong IPv4 header checksum")
	ErrICRC     = errors.New("roce: wrong ICRC")
)

// putIP writes the IP and UDP headers of a packet with n bytes of UDP payload at
// the beginning of b and returns their length. Both checksums are 0: so rxe
// leaves that of UDP, and IPv4's is the caller's to fill in. So is the traffic class
// (putClass), which the ICRC does not cover.
func putIP(b []byte, from, to *netip.Addr, sourcePort, id uint16, n int) int {
	be := binary.BigEndian
	n += udpLen
	udp := ipv4Len
	if from.Is4() {
		source, destination := from.As4(), to.As4()
		be.PutUint32(b, 0x45<<24|uint32(uint16(ipv4Len+n)))
		be.PutUint32(b[4:], uint32(id)<<16|0x4000) // don't fragment
		be.PutUint32(b[8:], hopLimit<<24|protocolUDP<<16)
		copy(b[12:16], source[:])
		copy(b[16:20], destination[:])
	} else {
		udp = ipv6Len
		source, destination := from.As16(), to.As16()
		be.PutUint32(b, 6<<28)
		be.PutUint32(b[4:], uint32(uint16(n))<<16|protocolUDP<<8|hopLimit)
		copy(b[8:24], source[:])
		copy(b[24:40], destination[:])
	}
	be.PutUint16(b[udp:], sourcePort)
	be.PutUint16(b[udp+2:], Port)
	be.PutUint32(b[udp+4:], uint32(uint16(n))<<16)
	return udp + udpLen
}

// ipv4Checksum returns the checksum that makes an IPv4 header right whose checksum
// field is 0, and 0 of a header that is right.
func ipv4Checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	return ^uint16(sum>>16 + sum)
}

// AppendIP appends p as a whole IP packet, with the UDP checksum left 0 and, in
// IPv4, the identification id, to b and returns it. It is for simulated
// networks, captures and tests; a carrier on sockets leaves IP and UDP headers to
// the kernel, and makes the rest with Append.
func (s *Sealer) AppendIP(b []byte, flow *Flow, id uint16, p *Packet) []byte {
	payloadLen := p.PayloadLen()
	n := p.Header.Opcode.HeaderLen() + payloadLen + padLen(payloadLen) + icrcLen
	length := putIP(s.buf.ip(), &flow.Local, &flow.Remote, flow.SourcePort, id, n)
	start := len(b)
	b = append(b, s.buf.ip()[:length]...)
	putClass(b[start:], p.Class)
	if flow.Local.Is4() {
		binary.BigEndian.PutUint16(b[start+10:], ipv4Checksum(b[start:]))
	}
	return s.Append(b, flow, id, p)
}

// DecodeIP takes apart a whole IP packet, checks its lengths, the IPv4 header
// checksum and, with the identification that it bears, its ICRC. It overwrites all of r,
// whose payload is part of b. Bytes after the packet's end, such as Ethernet
// padding, are ignored. So is the UDP checksum: the ICRC says more, and packets
// captured on a virtual link bear it unfinished.
//
// The errors are those of Decode, ErrNotRoCE, ErrChecksum and ErrICRC. On an
// error r is undefined.
func (v *Verifier) DecodeIP(b []byte, r *Received) error {
	if len(b) < ipv4Len+udpLen {
		return ErrNotRoCE
	}
	r.Class = ClassOf(b)
	be := binary.BigEndian
	var udp, end int
	var protocol byte
	switch {
	case b[0] == 0x45:
		udp, end, protocol = ipv4Len, int(be.Uint16(b[2:])), b[9]
		if be.Uint16(b[6:])&0x3FFF != 0 { // a fragment
			return ErrNotRoCE
		}
		if ipv4Checksum(b) != 0 {
			return ErrChecksum
		}
		r.Flow.Remote = netip.AddrFrom4([4]byte(b[12:16]))
		r.Flow.Local = netip.AddrFrom4([4]byte(b[16:20]))
	case b[0]>>4 == 6 && len(b) >= ipv6Len+udpLen:
		udp, end, protocol = ipv6Len, ipv6Len+int(be.Uint16(b[4:])), b[6]
		r.Flow.Remote = netip.AddrFrom16([16]byte(b[8:24]))
		r.Flow.Local = netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return ErrNotRoCE
	}
	if protocol != protocolUDP || be.Uint16(b[udp+2:]) != Port {
		return ErrNotRoCE
	}
	if end > len(b) {
		return ErrTruncated
	}
	if udp+int(be.Uint16(b[udp+4:])) != end {
		return ErrLength
	}
	r.Flow.SourcePort = be.Uint16(b[udp:])

	n := udp + udpLen
	if end < n {
		return ErrLength
	}
	udpPayload := b[n:end]
	payload, err := Decode(udpPayload, &r.Header)
	if err != nil {
		return err
	}
	r.Payload = payload
	copy(v.buf.ip(), b[:n])
	if v.difference(n, udpPayload) != 0 {
		return ErrICRC
	}
	return nil
}
