package roce

import (
	"encoding/binary"
	"slices"
)

const (
	// hash/crc32 is quick with a piece of at least crcLeast bytes whose length is a
	// multiple of crcBlock: a piece that is not so takes longer than the next larger
	// one that is. So one call for several parts is much quicker than one for each.
	crcBlock = 16
	crcLeast = 64
	// fold takes blocks of so many bytes, and at least so many.
	foldBlock = 256
	foldLeast = 2048
	// together is the least that is worth a call of its own.
	together = 256

	// zerosLen is the number of zeros that a scratch begins with: enough to fill up the
	// ones and the shortest headers to crcLeast, or anything to a whole block.
	zerosLen = 32
	onesLen  = 4
	headerAt = zerosLen + onesLen

	// registerZero is a register of zeros as crc32.Update has it.
	registerZero = ^uint32(0)
)

// A scratch holds that part of a packet which the ICRC does not cover as it is, put
// together so that the ICRC is quick to compute:
//
//	zeros | 4 bytes of ones | IP and UDP headers, masked | BTH, masked | what follows it
//
// The link header that there is none of counts as eight bytes of ones (roce.md 4). A
// CRC's register begins with ones, too, and the first four of these turn it to
// zero. It stays so for as many zeros as come next: so any number of them can stand
// for both, to make whole blocks.
//
// It is kept in longer-lived structures because crc32.Update makes what it is
// given escape to the heap.
type scratch struct {
	buf    [headerAt + ipv6Len + udpLen + bthLen + together]byte
	folded [64]byte // see crc
}

// ip returns where the IP header begins.
func (s *scratch) ip() []byte { return s.buf[headerAt:] }

// icrc returns the ICRC of a packet whose IP and UDP headers are the first n bytes of
// s.ip(), where they are masked. udpPayload is from the BTH up to the padding.
func (s *scratch) icrc(n int, udpPayload []byte) uint32 {
	apart := (len(udpPayload) - bthLen) &^ (crcBlock - 1)
	if apart < together {
		apart = 0
	}
	// Bytes beyond whole blocks of fold would take as long as a tenth of those. They cost nothing where the head is
	// filled up with zeros: so the RETH of a WRITE is part of it.
	if more := apart & (foldBlock - 1); apart-more >= foldLeast && onesLen+n+len(udpPayload)-apart+more <= crcLeast {
		apart -= more
	}
	near := udpPayload[:len(udpPayload)-apart]
	return s.crc(s.head(n, near), udpPayload[len(near):])
}

// head returns what the ICRC covers up to and with near, the first bytes of the UDP payload, in whole blocks, where the IP and UDP
// headers are the first n bytes of s.ip().
func (s *scratch) head(n int, near []byte) []byte {
	b := s.buf[:]
	b[zerosLen], b[zerosLen+1], b[zerosLen+2], b[zerosLen+3] = 0xFF, 0xFF, 0xFF, 0xFF
	bth := headerAt + n
	mask(b[headerAt:bth])
	end := bth + copy(b[bth:], near)
	b[bth+4] = 0xFF // FECN, BECN and reserved bits

	blocks := max(crcLeast, (end-zerosLen+crcBlock-1)&^(crcBlock-1))
	return b[end-blocks : end]
}

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

// Append appends the UDP payload of a packet, from BTH to ICRC, to b and returns it. id is as appendTrailer has it. Nothing is
// kept, and what b holds already is not changed.
func (s *Sealer) Append(b []byte, flow *Flow, id uint16, p *Packet) []byte {
	start, length := len(b), p.PayloadLen()
	b = p.Header.Append(b, length)
	if len(p.Payload) == 1 && canCopy(length) {
		headers := b[start:]
		n := putIP(s.buf.ip(), &flow.Local, &flow.Remote, flow.SourcePort, id, len(headers)+length+icrcLen)
		if head := s.buf.head(n, headers); len(head) == crcLeast {
			b = slices.Grow(b, length+icrcLen)
			whole := b[:len(b)+length]
			return binary.LittleEndian.AppendUint32(whole, s.buf.copyWithCRC((*[crcLeast]byte)(head), whole[len(b):], p.Payload[0]))
		}
	}
	for _, piece := range p.Payload {
		b = append(b, piece...)
	}
	return s.appendTrailer(b, start, flow, id)
}

// appendTrailer appends what follows a packet's payload, padding and ICRC, 4 to
// 7 bytes, to b and returns it. The packet is b from start on: BTH and extended
// headers as Header.Append made them, and the payload. id is the IPv4 identification
// that the packet will have; IPv6 has none. An unconnected UDP socket that forbids
// fragmentation gives the segments of one super-packet 0, 1, 2 and so on (roce.md
// 17).
//
// Nothing is kept, and what b holds already is not changed.
func (s *Sealer) appendTrailer(b []byte, start int, flow *Flow, id uint16) []byte {
	for range padLen(len(b) - start) { // headers are multiples of 4
		b = append(b, 0)
	}
	udpPayload := b[start:]
	n := putIP(s.buf.ip(), &flow.Local, &flow.Remote, flow.SourcePort, id, len(udpPayload)+icrcLen)
	return binary.LittleEndian.AppendUint32(b, s.buf.icrc(n, udpPayload))
}
