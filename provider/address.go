package provider

import "net/netip"

// The sizes of an address in the forms that the interface has it: SOCKADDR_IN
// and SOCKADDR_IN6, in bytes.
const (
	sockaddrIn  = 16
	sockaddrIn6 = 28
)

// giveAddress answers for all address getters: length holds the bytes that
// address has room for, counted as a SOCKADDR, and then the bytes written; if
// they are too few, StatusBufferTooSmall and the bytes needed (NDK-CONN-34, 35).
// from finds the address.
func giveAddress(from func() (netip.AddrPort, Status), address *netip.AddrPort, length *uint32) Status {
	found, status := from()
	if status != StatusSuccess {
		return status
	}
	if length == nil {
		return StatusInvalidParameter
	}
	given := *length
	*length = sockaddrIn
	if found.Addr().Is6() {
		*length = sockaddrIn6
	}
	if address == nil || given < *length {
		return StatusBufferTooSmall
	}
	*address = found
	return StatusSuccess
}

// GetLocalAddress stores the connection's address on this adapter.
func (c *Connector) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	return giveAddress(c.LocalAddress, address, length)
}

// GetPeerAddress stores the connection's address at the peer.
func (c *Connector) GetPeerAddress(address *netip.AddrPort, length *uint32) Status {
	return giveAddress(c.PeerAddress, address, length)
}

// GetLocalAddress stores the address at which the listener listens.
func (l *Listener) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	return giveAddress(l.LocalAddress, address, length)
}

// GetLocalAddress stores the address that connectors connect from.
func (s *SharedEndpoint) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	from := func() (netip.AddrPort, Status) { return s.LocalAddress(), StatusSuccess }
	return giveAddress(from, address, length)
}
