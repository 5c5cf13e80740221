package roce

import (
	"encoding/binary"
	"hash/crc32"
)

// icrcSeed is the CRC of the eight bytes of ones that stand for the link
// header, in the form that crc32.Update continues from (roce.md 4).
const icrcSeed = 0x2144DF1C

// A scratch is room for the part of a packet that the ICRC does not cover as it
// is: IP, UDP and RoCE headers. It is kept in longer-lived structures because
// crc32.Update makes what it is given escape to the heap.
type scratch [ipv6Len + udpLen + MaxHeaderLen]byte

var zeros [3]byte

// mask sets the fields of IP and UDP headers that change on the way to ones.
func mask(headers []byte) {
	udp := len(headers) - udpLen
	headers[udp+6], headers[udp+7] = 0xFF, 0xFF
	if headers[0]>>4 == 4 {
		headers[1] = 0xFF                     // TOS
		headers[8] = 0xFF                     // TTL
		headers[10], headers[11] = 0xFF, 0xFF // header checksum
		return
	}
	headers[0] |= 0x0F // traffic class and flow label
	headers[1], headers[2], headers[3] = 0xFF, 0xFF, 0xFF
	headers[7] = 0xFF // hop limit
}

// A Sealer computes the ICRCs of packets to send. The zero Sealer is ready for
// use, by one goroutine at a time.
type Sealer struct {
	buf scratch
}

// AppendTrailer appends what follows a packet's payload, padding and ICRC, 4 to
// 7 bytes, to b and returns it. header is the packet's BTH and extended headers as
// Header.Append made them. id is the IPv4 identification that the packet will
// have; IPv6 has none. An unconnected UDP socket that forbids fragmentation
// gives the segments of one super-packet 0, 1, 2 and so on (roce.md 17).
//
// Nothing is kept, nothing is changed but b.
func (s *Sealer) AppendTrailer(b []byte, flow *Flow, id uint16, header []byte, payload [][]byte) []byte {
	payloadLen := 0
	for _, piece := range payload {
		payloadLen += len(piece)
	}
	pad := zeros[:padLen(payloadLen)]
	n := putIP(s.buf[:], flow, id, len(header)+payloadLen+len(pad)+icrcLen)
	mask(s.buf[:n])
	end := n + copy(s.buf[n:], header)
	s.buf[n+4] = 0xFF // FECN, BECN and reserved bits

	crc := crc32.Update(icrcSeed, crc32.IEEETable, s.buf[:end])
	for _, piece := range payload {
		crc = crc32.Update(crc, crc32.IEEETable, piece)
	}
	crc = crc32.Update(crc, crc32.IEEETable, pad)
	b = append(b, pad...)
	return binary.LittleEndian.AppendUint32(b, crc)
}
