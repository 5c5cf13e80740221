package gsi

import (
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// The range from which ports are chosen when port 0 is asked for (ndkpi.md
// 2.11).
const (
	firstEphemeralPort = 49152
	lastEphemeralPort  = 65535
)

// AnyPort draws an ephemeral port.
func AnyPort(r *rand.Rand) uint16 {
	return firstEphemeralPort + uint16(r.IntN(lastEphemeralPort-firstEphemeralPort+1))
}

// An Endpoint is a local address and port in use (NDK-EP-01 to 13). The port space is that of rdma_cm, apart
// from TCP's and UDP's. The manager's lock guards it.
type Endpoint struct {
	Address    netip.AddrPort
	Listener   Listener // nil where nobody listens (any more)
	LookUps    LookUps  // nil where there is no service of datagrams
	Owner      any      // the object that it was made for, of the object model
	references int
}

// Refer adds a reference, which Release gives up.
func (e *Endpoint) Refer() { e.references++ }

// Claim takes a local address and port into use, with one reference, choosing a port if that is 0. ok is false
// if it is in use, or all ports are. The address is the device's. The lock is held.
func (m *Manager) Claim(address netip.AddrPort) (_ *Endpoint, ok bool) {
	if address.Port() == 0 {
		address, ok = m.takeAnyPort(address.Addr())
	} else {
		ok = m.takePort(address)
	}
	if !ok {
		return nil, false
	}
	e := &Endpoint{Address: address, references: 1}
	m.endpoints[address] = e
	return e, true
}

// takePort takes a port that nobody has, neither here nor in another process
// that shares the device.
func (m *Manager) takePort(address netip.AddrPort) bool {
	return m.endpoints[address] == nil && m.config.Ports.ClaimPort(address)
}

// takeAnyPort takes an ephemeral port, going round so that a port is left alone
// for long after its last use.
func (m *Manager) takeAnyPort(address netip.Addr) (taken netip.AddrPort, ok bool) {
	for range lastEphemeralPort - firstEphemeralPort + 1 {
		taken = netip.AddrPortFrom(address, m.nextPort)
		m.nextPort++
		if taken.Port() == lastEphemeralPort {
			m.nextPort = firstEphemeralPort
		}
		if m.takePort(taken) {
			return taken, true
		}
	}
	return taken, false
}

// Release gives up one reference. The lock is held.
func (m *Manager) Release(e *Endpoint) {
	e.references--
	if e.references == 0 {
		delete(m.endpoints, e.Address)
		m.config.Ports.ReleasePort(e.Address)
	}
}

// EndpointAt returns what is in use at an address; nil if nothing is. The lock is held.
func (m *Manager) EndpointAt(address netip.AddrPort) *Endpoint { return m.endpoints[address] }

// HasAddress reports whether an address is the device's.
func (m *Manager) HasAddress(address netip.Addr) bool {
	return slices.Contains(m.config.Carrier.Addresses(), address)
}

// refuses returns why a connection request is not to be delivered, 0 if it is. The lock is held.
func (m *Manager) refuses(local, _ netip.AddrPort) mad.Reason {
	e := m.endpoints[local]
	if e == nil || e.Listener == nil || m.config.Failed() {
		return mad.ReasonInvalidServiceID
	}
	return e.Listener.Refuses()
}

// refusesLookUp returns the answer to a look-up that is not to be delivered. The lock is held.
func (m *Manager) refusesLookUp(local, _ netip.AddrPort) mad.SIDRStatus {
	e := m.endpoints[local]
	if e == nil || e.LookUps == nil || m.config.Failed() {
		return mad.SIDRUnsupported
	}
	return e.LookUps.RefusesLookUp()
}

// Endpoints returns everything that is in use, in the order of the addresses. The lock is held.
func (m *Manager) Endpoints() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, a := range slices.SortedFunc(maps.Keys(m.endpoints), netip.AddrPort.Compare) {
			if !yield(m.endpoints[a]) {
				return
			}
		}
	}
}
