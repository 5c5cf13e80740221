package provider

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// An OID names what NDIS asks of a device or tells it (ndkpi.md 4.14).
type OID uint32

// The OIDs.
const (
	OIDNDKSetState       OID = 0xFC040201 // set
	OIDNDKStatistics     OID = 0xFC040202 // query
	OIDNDKConnections    OID = 0xFC040203 // query
	OIDNDKLocalEndpoints OID = 0xFC040204 // query
)

// QueryOID answers a query into buffer, laid out as on a 64-bit little-endian
// Windows, and says how many bytes that are. If the buffer is too short, it says
// how many are needed, with StatusBufferTooShort, and the buffer is as it was.
// Queries may run at the same time as each other and as anything else.
func (m *Miniport) QueryOID(oid OID, buffer []byte) (n uint32, status Status) {
	var answer []byte
	switch oid {
	case OIDNDKStatistics:
		answer = appendStatistics(nil, m.Counters())
	case OIDNDKConnections:
		answer = appendConnections(nil, m.Connections())
	case OIDNDKLocalEndpoints:
		answer = appendLocalEndpoints(nil, m.LocalEndpoints())
	default:
		return 0, StatusNotSupported
	}
	if len(buffer) < len(answer) {
		return uint32(len(answer)), StatusBufferTooShort
	}
	return uint32(copy(buffer, answer)), StatusSuccess
}

// SetOID takes a setting. It never pends.
func (m *Miniport) SetOID(oid OID, buffer []byte) Status {
	switch {
	case oid != OIDNDKSetState:
		return StatusNotSupported
	case len(buffer) != 1: // sizeof(BOOLEAN)
		return StatusInvalidLength
	}
	return m.SetState(buffer[0] != 0)
}

// The sizes of NDIS structures in bytes (ndkpi.md 3.5).
const (
	statisticsSize         = 248
	listSize               = 16 // before the entries
	connectionEntrySize    = 64
	localEndpointEntrySize = 36
	sockaddrInetSize       = 28
)

// appendNDISHeader appends a header and the flags that follow it, which are 0.
// A size above the largest that the header can hold is given as that largest.
func appendNDISHeader(b []byte, size int) []byte {
	b = append(b, ndisDefault, ndisRevision)
	b = binary.LittleEndian.AppendUint16(b, uint16(min(size, 65535)))
	return append(b, 0, 0, 0, 0)
}

// appendStatistics appends an NDIS_NDK_STATISTICS_INFO.
func appendStatistics(b []byte, c Counters) []byte {
	b = appendNDISHeader(b, statisticsSize)
	for _, counter := range c.set() {
		b = binary.LittleEndian.AppendUint64(b, counter)
	}
	return b
}

// appendListHeader appends what a list begins with. Connections here are not
// mapped onto TCP's, so that an entry stands for itself (NDK-OID-07).
func appendListHeader(b []byte, count, entrySize int) []byte {
	b = appendNDISHeader(b, listSize+count*entrySize)
	b = binary.LittleEndian.AppendUint32(b, uint32(count))
	return append(b, boolean(false), 0, 0, 0)
}

// appendConnections appends an NDIS_NDK_CONNECTIONS of those that are active. It changes entries.
func appendConnections(b []byte, entries []ConnectionEntry) []byte {
	entries = slices.DeleteFunc(entries, func(e ConnectionEntry) bool { return !e.active() })
	b = appendListHeader(b, len(entries), connectionEntrySize)
	for i := range entries {
		e := &entries[i]
		b = appendSockaddrInet(b, e.Local)
		b = appendSockaddrInet(b, e.Remote)
		b = append(b, boolean(e.UserModeOwner), 0, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, e.OwnerPID)
	}
	return b
}

// appendLocalEndpoints appends an NDIS_NDK_LOCAL_ENDPOINTS.
func appendLocalEndpoints(b []byte, entries []LocalEndpointEntry) []byte {
	b = appendListHeader(b, len(entries), localEndpointEntrySize)
	for i := range entries {
		e := &entries[i]
		b = appendSockaddrInet(b, e.Local)
		b = append(b, boolean(e.UserModeOwner), boolean(e.Listener), 0, 0)
		b = binary.LittleEndian.AppendUint32(b, e.OwnerPID)
	}
	return b
}

// appendSockaddrInet appends a SOCKADDR_INET: a SOCKADDR_IN, or a SOCKADDR_IN6
// with neither flow information nor scope.
func appendSockaddrInet(b []byte, a netip.AddrPort) []byte {
	const inet, inet6 = 2, 23 // as Windows numbers them
	family := uint16(inet)
	if a.Addr().Is6() {
		family = inet6
	}
	end := len(b) + sockaddrInetSize
	b = binary.LittleEndian.AppendUint16(b, family)
	b = binary.BigEndian.AppendUint16(b, a.Port())
	if family == inet6 {
		b = append(b, 0, 0, 0, 0)
	}
	b = append(b, a.Addr().AsSlice()...)
	return append(b, make([]byte, end-len(b))...)
}

// boolean returns a BOOLEAN.
func boolean(b bool) byte {
	if b {
		return 1
	}
	return 0
}
