package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/gsi"
)

// An endpoint is a local address and port in use (NDK-EP-01 to 13): by a
// listener, by the connectors that came from it, by a shared endpoint and the
// connectors that connect from it, or by a connector of its own. Its owner is the shared
// endpoint that it was made for, if any.
type endpoint = gsi.Endpoint

// claim takes a local address and port into use, choosing a port if that is 0.
// The manager's lock is held.
func (m *Miniport) claim(address netip.AddrPort) (*endpoint, Status) {
	if !m.manager.HasAddress(address.Addr()) {
		return nil, StatusInvalidAddress
	}
	e, ok := m.manager.Claim(address)
	switch {
	case ok:
		return e, StatusSuccess
	case address.Port() == 0:
		return nil, StatusTooManyAddresses
	}
	return nil, StatusSharingViolation
}

// sharedAt returns the shared endpoint at an address; nil if there is none. The manager's lock is held.
func (m *Miniport) sharedAt(address netip.AddrPort) *SharedEndpoint {
	if e := m.manager.EndpointAt(address); e != nil {
		return sharedOf(e)
	}
	return nil
}

func sharedOf(e *endpoint) *SharedEndpoint {
	s, _ := e.Owner.(*SharedEndpoint)
	return s
}
