package provider

import "net/netip"

// The sizes of an address in the forms that the interface has it: SOCKADDR_IN
// and SOCKADDR_IN6, in bytes.
const (
	sockaddrIn  = 16
	sockaddrIn6 = 28
)

// giveAddress is how all address getters answer: length holds the bytes that
// address has room for, counted as a SOCKADDR, and then the bytes written; if
// they are too few, StatusBufferTooSmall and the bytes needed (NDK-CONN-34, 35).
func giveAddress(from netip.AddrPort, address *netip.AddrPort, length *uint32) Status {
	if length == nil {
		return StatusInvalidParameter
	}
	given := *length
	*length = sockaddrIn
	if from.Addr().Is6() {
		*length = sockaddrIn6
	}
	if address == nil || given < *length {
		return StatusBufferTooSmall
	}
	*address = from
	return StatusSuccess
}

// GetLocalAddress is the connection's address on this adapter, in a buffer.
func (c *Connector) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	from, status := c.LocalAddress()
	if status != StatusSuccess {
		return status
	}
	return giveAddress(from, address, length)
}

// GetPeerAddress is the connection's address at the peer, in a buffer.
func (c *Connector) GetPeerAddress(address *netip.AddrPort, length *uint32) Status {
	from, status := c.PeerAddress()
	if status != StatusSuccess {
		return status
	}
	return giveAddress(from, address, length)
}

// GetLocalAddress is where the listener listens, in a buffer.
func (l *Listener) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	from, status := l.LocalAddress()
	if status != StatusSuccess {
		return status
	}
	return giveAddress(from, address, length)
}

// GetLocalAddress is where connectors connect from, in a buffer.
func (s *SharedEndpoint) GetLocalAddress(address *netip.AddrPort, length *uint32) Status {
	return giveAddress(s.LocalAddress(), address, length)
}
