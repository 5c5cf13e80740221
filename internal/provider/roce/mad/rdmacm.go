package mad

import (
	"encoding/binary"
	"net/netip"
)

// The prefixes are rdma_cm's port spaces for reliable connections, RDMA_PS_TCP, and datagrams,
// RDMA_PS_UDP, above the 16 bits of the port (roce.md 12.1).
const (
	servicePrefix  = 0x0106 << 16
	datagramPrefix = 0x0111 << 16
)

// ServiceID returns the service that listens on an rdma_cm port.
func ServiceID(port uint16) uint64 { return servicePrefix | uint64(port) }

// ServicePort returns the inverse of ServiceID; false for IDs outside its range.
func ServicePort(id uint64) (port uint16, ok bool) {
	return uint16(id), id&^0xFFFF == servicePrefix
}

// DatagramServiceID returns the service of datagrams on an rdma_cm port.
func DatagramServiceID(port uint16) uint64 { return datagramPrefix | uint64(port) }

// DatagramServicePort returns the inverse of DatagramServiceID; false for IDs outside its range.
func DatagramServicePort(id uint64) (port uint16, ok bool) {
	return uint16(id), id&^0xFFFF == datagramPrefix
}

// IPHeaderSize is the part of a REQ's and a SIDR_REQ's private data that rdma_cm uses, and
// ConsumerPrivateData and ConsumerLookUpData are the parts that it leaves, in bytes.
const (
	IPHeaderSize        = 36
	ConsumerPrivateData = REQPrivateData - IPHeaderSize
	ConsumerLookUpData  = SIDRREQPrivateData - IPHeaderSize
)

// DatagramQKey is the Q_Key that rdma_cm gives to the queue pairs of datagram services, RDMA_UDP_QKEY.
const DatagramQKey = 0x01234567

// An IPHeader is the header that rdma_cm puts in front of the private data of a REQ
// or SIDR_REQ (roce.md 12.2). The destination's port is in the service ID.
type IPHeader struct {
	Source      netip.AddrPort
	Destination netip.Addr
}

// Put writes the header to the first IPHeaderSize bytes of p. Both addresses are
// of one family.
func (h IPHeader) Put(p []byte) {
	p[0] = 0 // version 0.0
	binary.BigEndian.PutUint16(p[2:], h.Source.Port())
	source := p[4:20]
	destination := p[20:36]
	if h.Source.Addr().Is4() {
		p[1] = 4 << 4
		putIPv4(source, h.Source.Addr())
		putIPv4(destination, h.Destination)
		return
	}
	p[1] = 6 << 4
	putGID(source, h.Source.Addr())
	putGID(destination, h.Destination)
}

// Decode reads the header from the first IPHeaderSize bytes of p; false if its
// version or its IP version is unknown.
func (h *IPHeader) Decode(p []byte) bool {
	port := binary.BigEndian.Uint16(p[2:])
	switch {
	case p[0] == 0 && p[1]>>4 == 4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:20])), port)
		h.Destination = netip.AddrFrom4([4]byte(p[32:36]))
	case p[0] == 0 && p[1]>>4 == 6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(p[4:20])), port)
		h.Destination = netip.AddrFrom16([16]byte(p[20:36]))
	default:
		return false
	}
	return true
}

// putIPv4 writes an address to the last four of 16 bytes; the rest is zero, not
// the prefix of an IPv4-mapped address.
func putIPv4(p []byte, a netip.Addr) {
	clear(p[:12])
	v4 := a.As4()
	copy(p[12:], v4[:])
}

// FlowLabel returns the IPv6 flow label that rdma_cm gives to a connection between two
// ports (roce.md 12.3); 20 bits.
func FlowLabel(source, destination uint16) uint32 {
	return (uint32(source)*31 + uint32(destination)) & 0xFFFFF
}
