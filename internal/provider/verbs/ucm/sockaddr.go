package ucm

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// AF_IB, which syscall lacks.
const familyIB = 27

// family returns the family of a socket address.
func family(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

// sizeOf returns the size of a socket address by its family, 0 if that is unknown.
func sizeOf(b []byte) int {
	const sockaddrIB = 48
	switch family(b) {
	case syscall.AF_INET:
		return sockaddrIn
	case syscall.AF_INET6:
		return sockaddrIn6
	case familyIB:
		return sockaddrIB
	}
	return 0
}

// addressIn reads a socket address of at least 28 bytes. It is EAFNOSUPPORT if it is neither IPv4 nor IPv6, and
// EINVAL for a link-local one that names no interface.
func addressIn(b []byte) (netip.AddrPort, error) {
	port := binary.BigEndian.Uint16(b[2:])
	switch family(b) {
	case syscall.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), nil
	case syscall.AF_INET6:
		address := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); address.IsLinkLocalUnicast() && scope == 0 {
			return netip.AddrPort{}, syscall.EINVAL
		}
		return netip.AddrPortFrom(address, port), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}

// putAddress writes a socket address to b, of at least 28 bytes, and returns its size: 0 for none.
func putAddress(b []byte, a netip.AddrPort) int {
	if !a.IsValid() {
		return 0
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(b, syscall.AF_INET)
		copy(b[4:], a.Addr().AsSlice())
		return sockaddrIn
	}
	binary.NativeEndian.PutUint16(b, syscall.AF_INET6)
	copy(b[8:], a.Addr().AsSlice())
	return sockaddrIn6
}

// anyAddress returns the unspecified address of a's family.
func anyAddress(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// gidOf returns an address as a GID: IPv4 as ::ffff:a.b.c.d.
func gidOf(a netip.Addr) (gid [16]byte) {
	if a.IsValid() {
		gid = a.As16()
	}
	return gid
}
