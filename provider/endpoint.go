package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider/roce/mad"
)

// The range from which ports are chosen when port 0 is asked for (ndkpi.md
// 2.11).
const (
	firstEphemeralPort = 49152
	lastEphemeralPort  = 65535
)

// An endpoint is a local address and port in use (NDK-EP-01 to 13): by a
// listener, by the connectors that came from it, by a shared endpoint and the
// connectors that connect from it, or by a connector of its own.
// The port space is that of rdma_cm, apart from TCP's and UDP's. Guarded by
// Miniport.cmMu.
type endpoint struct {
	address    netip.AddrPort
	references int
	listener   *Listener       // nil where nobody listens (any more)
	shared     *SharedEndpoint // that it was made for, nil if none
}

// claim takes a local address and port into use, choosing a port if that is 0.
// cmMu is held.
func (m *Miniport) claim(address netip.AddrPort) (*endpoint, Status) {
	if !m.hasAddress(address.Addr()) {
		return nil, StatusInvalidAddress
	}
	if address.Port() != 0 {
		if !m.takePort(address) {
			return nil, StatusSharingViolation
		}
	} else {
		port, ok := m.takeAnyPort(address.Addr())
		if !ok {
			return nil, StatusTooManyAddresses
		}
		address = netip.AddrPortFrom(address.Addr(), port)
	}
	e := &endpoint{address: address, references: 1}
	m.endpoints[address] = e
	return e, StatusSuccess
}

// takePort takes a port that nobody has, neither here nor in another process
// that shares the device.
func (m *Miniport) takePort(address netip.AddrPort) bool {
	return m.endpoints[address] == nil && m.ledger.claimPort(address)
}

// takeAnyPort takes an ephemeral port, going round so that a port is left alone
// for long after its last use.
func (m *Miniport) takeAnyPort(address netip.Addr) (uint16, bool) {
	for range lastEphemeralPort - firstEphemeralPort + 1 {
		port := m.nextPort
		m.nextPort++
		if port == lastEphemeralPort {
			m.nextPort = firstEphemeralPort
		}
		if m.takePort(netip.AddrPortFrom(address, port)) {
			return port, true
		}
	}
	return 0, false
}

// unclaim gives up one reference. cmMu is held.
func (m *Miniport) unclaim(e *endpoint) {
	e.references--
	if e.references == 0 {
		delete(m.endpoints, e.address)
		m.ledger.releasePort(e.address)
	}
}

// refuses is why a connection request is not to be delivered, 0 if it is; the
// connection manager asks, with cmMu held.
func (m *Miniport) refuses(local, _ netip.AddrPort) mad.Reason {
	e := m.endpoints[local]
	if e == nil || e.listener == nil || m.state.failed.Load() {
		return mad.ReasonInvalidServiceID
	}
	return e.listener.refuses()
}
