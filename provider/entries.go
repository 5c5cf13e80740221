package provider

import (
	"cmp"
	"net/netip"
	"slices"
)

// A ConnectionEntry is a connection as the device lists it
// (NDIS_NDK_CONNECTION_ENTRY), and what else may be of interest.
type ConnectionEntry struct {
	Local, Remote netip.AddrPort
	UserModeOwner bool   // false: made through this interface (ndkpi.md T68)
	OwnerPID      uint32 // 0 then

	State     string // connecting, replied, requested, accepting, established or disconnecting
	QPN       uint32 // 0 while not known
	RemoteQPN uint32
}

// active reports whether the connection is one that the OID lists.
func (e *ConnectionEntry) active() bool { return e.State == established.String() }

// A LocalEndpointEntry is a listener or shared endpoint as the device lists it
// (NDIS_NDK_LOCAL_ENDPOINT_ENTRY).
type LocalEndpointEntry struct {
	Local         netip.AddrPort
	UserModeOwner bool
	Listener      bool // false: a shared endpoint
	OwnerPID      uint32
}

// Connections lists the connections, those being made and those being ended
// included, in the order of their addresses.
func (m *Miniport) Connections() []ConnectionEntry {
	m.manager.Lock()
	defer m.manager.Unlock()
	var entries []ConnectionEntry
	for c := range m.connectors() {
		if !c.state.live() {
			continue
		}
		e := ConnectionEntry{Local: c.local, Remote: c.remote, State: c.state.String(), RemoteQPN: c.remoteQPN}
		if c.qp != nil {
			e.QPN = c.qp.Number()
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b ConnectionEntry) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.QPN, b.QPN))
	})
	return entries
}

// LocalEndpoints lists the listeners and shared endpoints, in the order of their
// addresses. The endpoints that Connect makes are not listed (NDK-OID-11).
func (m *Miniport) LocalEndpoints() []LocalEndpointEntry {
	m.manager.Lock()
	defer m.manager.Unlock()
	var entries []LocalEndpointEntry
	for e := range m.manager.Endpoints() {
		if e.Listener != nil || sharedOf(e) != nil {
			entries = append(entries, LocalEndpointEntry{Local: e.Address, Listener: e.Listener != nil})
		}
	}
	return entries
}
