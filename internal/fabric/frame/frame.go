// Package frame is an Ethernet frame as a packet socket gives it: with a virtio
// header in front, which says whether the frame is one packet or a super-packet
// that stands for many, and what of its checksums is still to be computed.
//
// With segmentation offload a sender's kernel hands 64 KiB of TCP or UDP to its
// interface as one frame, and over veth it stays one up to the receiver's
// socket. An emulated link deals with the packets that a wire would have
// carried: a Frame knows how many those are and how long each is, and writes
// the headers of any run of them, so that a super-packet can be passed on in
// parts without copying its payload.
//
// Open, Receiver and Overruns are the packet sockets that such frames come
// from. Start reading at Parse.
package frame

import (
	"encoding/binary"
	"errors"
)

// HeaderLen is the length of the virtio header before a frame, bytes.
const HeaderLen = 10

// MaxLen is the length of the longest frame with its virtio header, bytes: an
// IPv6 packet of 65535 bytes after its header.
const MaxLen = HeaderLen + ethernetLen + ipv6Len + 65535

// MaxHeaders bounds what AppendHeaders writes, bytes.
const MaxHeaders = 256

// The virtio header (linux/virtio_net.h, struct virtio_net_hdr) is in the byte
// order of the machine on a packet socket (net/packet/af_packet.c, vio_le).
const (
	offFlags      = 0
	offGSO        = 1
	offHeaders    = 2
	offGSOSize    = 4
	offCsumStart  = 6
	offCsumOffset = 8

	needsCsum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDP   = 5    // VIRTIO_NET_HDR_GSO_UDP_L4
	gsoECN   = 0x80 // the first TCP segment has CWR set
)

// Headers below.
const (
	ethernetLen = 14
	ipv6Len     = 40
	udpLen      = 8

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd

	protoTCP = 6
	protoUDP = 17

	udpCsum  = 6 // offset of the checksum field in the header
	tcpCsum  = 16
	tcpFlags = 13

	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// ErrShort says that a frame has no whole Ethernet header.
var ErrShort = errors.New("frame is shorter than an Ethernet header")

// A Frame is one packet or a super-packet. It refers to the bytes it was
// parsed from, which must not change under it but by its own methods.
type Frame struct {
	bytes    []byte // virtio header, then the frame
	segments int    // wire packets it stands for
	segment  int    // payload bytes in each but the last
	ipv6     bool   // what follows is set if segments > 1
	tcp      bool
	l4       int // offset of the TCP or UDP header in bytes
	payload  int // offset of the payload in bytes
}

// Parse reads a frame that begins with its virtio header and refers to it from
// then on. A super-packet of a kind that it cannot split (not plain TCP or UDP
// over IP) is taken for one packet.
func Parse(b []byte) (Frame, error) {
	if len(b) < HeaderLen+ethernetLen {
		return Frame{}, ErrShort
	}
	f := Frame{bytes: b, segments: 1}
	f.parseSuper()
	return f, nil
}

// parseSuper finds the parts of a super-packet and leaves anything else alone.
func (f *Frame) parseSuper() {
	b := f.bytes
	kind := b[offGSO] &^ gsoECN
	size := int(binary.NativeEndian.Uint16(b[offGSOSize:]))
	if kind == gsoNone || size == 0 || b[offFlags]&needsCsum == 0 {
		return
	}
	ip := HeaderLen + ethernetLen
	l4, proto, ipv6, ok := networkHeader(b, ip)
	if !ok || l4 != HeaderLen+int(binary.NativeEndian.Uint16(b[offCsumStart:])) {
		return // the checksum is that of some inner packet
	}
	var payload int
	offset := binary.NativeEndian.Uint16(b[offCsumOffset:])
	switch {
	case kind == gsoUDP && proto == protoUDP && offset == udpCsum && len(b) >= l4+udpLen:
		payload = l4 + udpLen
	case (kind == gsoTCPv4 && !ipv6 || kind == gsoTCPv6 && ipv6) && proto == protoTCP && offset == tcpCsum && len(b) >= l4+20:
		payload = l4 + int(b[l4+12]>>4)*4
		if payload < l4+20 {
			return
		}
	default:
		return
	}
	if payload >= len(b) || payload > MaxHeaders {
		return
	}
	f.segments = (len(b) - payload + size - 1) / size
	f.segment, f.ipv6, f.tcp, f.l4, f.payload = size, ipv6, proto == protoTCP, l4, payload
}

// networkHeader finds the end of the IP header at offset ip and the protocol
// that follows. ok is true only for an IP packet that is not fragmented.
func networkHeader(b []byte, ip int) (l4 int, proto byte, ipv6, ok bool) {
	switch binary.BigEndian.Uint16(b[ip-2:]) {
	case etherIPv4:
		if len(b) < ip+20 || b[ip]>>4 != 4 {
			return 0, 0, false, false
		}
		length := int(b[ip]&15) * 4
		fragment := binary.BigEndian.Uint16(b[ip+6:]) & 0x3fff // more fragments, or an offset
		return ip + length, b[ip+9], false, length >= 20 && len(b) >= ip+length && fragment == 0
	case etherIPv6:
		if len(b) < ip+ipv6Len || b[ip]>>4 != 6 {
			return 0, 0, false, false
		}
		l4, proto = ip+ipv6Len, b[ip+6]
		for proto == 0 || proto == 43 || proto == 60 { // hop-by-hop, routing, destination options
			if len(b) < l4+8 {
				return 0, 0, false, false
			}
			proto, l4 = b[l4], l4+8+int(b[l4+1])*8
		}
		return l4, proto, true, len(b) >= l4
	}
	return 0, 0, false, false
}

// Segments returns the number of wire packets the frame stands for, at least 1.
func (f *Frame) Segments() int { return f.segments }

// Bytes returns the frame with its virtio header, as it was received.
func (f *Frame) Bytes() []byte { return f.bytes }

// Packet returns the frame without its virtio header.
func (f *Frame) Packet() []byte { return f.bytes[HeaderLen:] }

// Move copies the frame to dst, which must have room, and refers to that from
// then on.
func (f *Frame) Move(dst []byte) { f.bytes = dst[:copy(dst, f.bytes)] }

// Size returns the length in bytes of wire packet i, from its Ethernet header on.
func (f *Frame) Size(i int) int {
	if f.segments == 1 {
		return len(f.bytes) - HeaderLen
	}
	return f.payload - HeaderLen + len(f.Payload(i, 1))
}

// Payload returns what packets first to first+count-1 carry after their headers. The frame
// must have several segments.
func (f *Frame) Payload(first, count int) []byte {
	begin := f.payload + first*f.segment
	return f.bytes[begin:min(begin+count*f.segment, len(f.bytes))]
}

// AppendHeaders appends to dst the virtio header and the packet headers, at
// most MaxHeaders bytes, with which the Payload of the same run of packets is a
// frame to send: one packet, or a super-packet whose packets are just what
// they would have been in the original. The frame must have several segments.
//
// The headers follow the kernel's own segmentation (net/ipv4/af_inet.c
// inet_gso_segment, tcp_offload.c, udp_offload.c): the IPv4 identification
// counts up, FIN and PSH stay with the last segment and CWR with the first.
// The TCP or UDP checksum is left to whoever receives it, as in the original.
func (f *Frame) AppendHeaders(dst []byte, first, count int) []byte {
	at := len(dst)
	dst = append(dst, f.bytes[:f.payload]...)
	h := dst[at:]
	size := len(f.Payload(first, count))
	binary.NativeEndian.PutUint16(h[offHeaders:], uint16(f.payload-HeaderLen))
	if count == 1 {
		h[offGSO] = gsoNone
		binary.NativeEndian.PutUint16(h[offGSOSize:], 0)
	} else if first > 0 {
		h[offGSO] &^= gsoECN
	}

	const ip = HeaderLen + ethernetLen
	length := f.payload - f.l4 + size // of the TCP or UDP packet
	var pseudo uint64                 // sum of the pseudo-header
	if f.ipv6 {
		binary.BigEndian.PutUint16(h[ip+4:], uint16(f.l4-ip-ipv6Len+length))
		pseudo = sum(h[ip+8 : ip+40])
	} else {
		binary.BigEndian.PutUint16(h[ip+2:], uint16(f.l4-ip+length))
		id := binary.BigEndian.Uint16(h[ip+4:])
		binary.BigEndian.PutUint16(h[ip+4:], id+uint16(first))
		binary.BigEndian.PutUint16(h[ip+10:], 0)
		binary.BigEndian.PutUint16(h[ip+10:], ^fold(sum(h[ip:f.l4])))
		pseudo = sum(h[ip+12 : ip+20])
	}
	if f.tcp {
		seq := binary.BigEndian.Uint32(h[f.l4+4:])
		binary.BigEndian.PutUint32(h[f.l4+4:], seq+uint32(first*f.segment))
		if first > 0 {
			h[f.l4+tcpFlags] &^= tcpCWR
		}
		if first+count < f.segments {
			h[f.l4+tcpFlags] &^= tcpFIN | tcpPSH
		}
		binary.BigEndian.PutUint16(h[f.l4+tcpCsum:], fold(pseudo+protoTCP+uint64(length)))
	} else {
		binary.BigEndian.PutUint16(h[f.l4+4:], uint16(length))
		binary.BigEndian.PutUint16(h[f.l4+udpCsum:], fold(pseudo+protoUDP+uint64(length)))
	}
	return dst
}

// AppendPacket appends wire packet i to dst, complete with its checksums and
// without a virtio header: what a wire would have carried.
func (f *Frame) AppendPacket(dst []byte, i int) []byte {
	if f.segments == 1 {
		at := len(dst)
		dst = append(dst, f.Packet()...)
		if f.bytes[offFlags]&needsCsum != 0 {
			start := int(binary.NativeEndian.Uint16(f.bytes[offCsumStart:]))
			complete(dst[at:], start, start+int(binary.NativeEndian.Uint16(f.bytes[offCsumOffset:])))
		}
		return dst
	}
	var virtio [MaxHeaders]byte
	headers := f.AppendHeaders(virtio[:0], i, 1)[HeaderLen:]
	at := len(dst)
	dst = append(append(dst, headers...), f.Payload(i, 1)...)
	field := f.l4 - HeaderLen + udpCsum
	if f.tcp {
		field = f.l4 - HeaderLen + tcpCsum
	}
	complete(dst[at:], f.l4-HeaderLen, field)
	return dst
}

// Extract makes wire packet i, complete with its checksums, a frame of its own.
// That is written to dst, which must be HeaderLen bytes longer than the packet.
func (f *Frame) Extract(dst []byte, i int) Frame {
	clear(dst[:HeaderLen])
	return Frame{bytes: f.AppendPacket(dst[:HeaderLen], i), segments: 1}
}

// complete computes the checksum over packet[start:], whose field holds the
// sum of the pseudo-header. A field outside the packet is left alone.
func complete(packet []byte, start, field int) {
	if start > field || field+2 > len(packet) {
		return
	}
	c := ^fold(sum(packet[start:]))
	if c == 0 {
		c = 0xffff // 0 would mean none in UDP; the two are the same number
	}
	binary.BigEndian.PutUint16(packet[field:], c)
}
