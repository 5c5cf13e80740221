package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// A SharedEndpoint is a local address and port from which any number of
// connectors connect, each to another destination.
type SharedEndpoint struct {
	object
	Dispatch SharedEndpointDispatch // as Adapter.Dispatch
	adapter  *Adapter
	endpoint *endpoint // it holds one reference (ndkpi.md T28)

	// destinations has the connectors that are connected from here, or are about to
	// be, by the addresses they are connected to. Guarded by the lock of
	// Miniport.manager.
	destinations map[netip.AddrPort]*Connector
}

// CreateSharedEndpoint takes a local address into use for
// Connector.ConnectWithSharedEndpoint. Port 0 has a free ephemeral port chosen.
func (a *Adapter) CreateSharedEndpoint(address netip.AddrPort,
	completion CreateCompletion, context any) (*SharedEndpoint, Status) {
	if !a.open() {
		return nil, StatusInvalidDeviceState
	}
	m := a.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	e, status := m.claim(address)
	if status != StatusSuccess {
		return nil, status // ndkpi.md T29
	}
	s := &SharedEndpoint{adapter: a, endpoint: e, destinations: map[netip.AddrPort]*Connector{}}
	e.Owner = s
	m.ledger.UsePort(e.Address, sharing.PortOfSharedEndpoint)
	s.Dispatch = s
	s.init(a.clock, ObjectTypeSharedEndpoint, &a.object)
	return completeCreate(m, s, &s.object, completion, context)
}

// LocalAddress returns where connectors connect from.
func (s *SharedEndpoint) LocalAddress() netip.AddrPort { return s.endpoint.Address }

// Close gives the address up when the connectors that were used with the
// endpoint are closed, and until then changes nothing (NDK-EP-08).
func (s *SharedEndpoint) Close(completion CloseCompletion, context any) Status {
	m := s.adapter.miniport
	return s.close(nil, func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		m.manager.Release(s.endpoint)
	}, completion, context)
}

// leadsTo reports whether a connector is connected, or about to be, from here to
// a destination. It may be nil. The manager's lock is held.
func (s *SharedEndpoint) leadsTo(destination netip.AddrPort) bool {
	return s != nil && s.destinations[destination] != nil
}

// join has a connector connect from s. The manager's lock is held.
func (s *SharedEndpoint) join(c *Connector) {
	if c.shared != s { // a refused connector may try again from the same
		c.addAntecedent(&s.object)
		c.shared = s
	}
	s.destinations[c.remote] = c
}

// leave lets others connect to the connector's destination. The connector
// keeps its references until it is closed. s may be nil. The manager's lock is held.
func (s *SharedEndpoint) leave(c *Connector) {
	if s != nil && s.destinations[c.remote] == c {
		delete(s.destinations, c.remote)
	}
}
