package adapter

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// A State is what a node's adapter is and how it is.
type State struct {
	Info          provider.AdapterInfo
	Capabilities  provider.Capabilities
	MissingMask   uint64 // of counters (NDIS_NDK_CAPABILITIES)
	Configuration provider.Configuration
	Enabled       bool
	Usage         provider.Usage
	ReceiveBuffer provider.ReceiveBuffer
	Addresses     []Address
}

// An Address is an address of an adapter, and the interface that has it.
type Address struct {
	provider.ActiveAddress
	Interface string
}

// Describe is what a device is and how it is. interfaces are the names of those that
// have its addresses, as far as they are known.
func Describe(m *provider.Miniport, interfaces map[netip.Addr]string) *State {
	attributes := m.Attributes()
	s := &State{
		Info: *attributes.Capabilities.NdkInfo, Capabilities: attributes.Capabilities.Capabilities,
		MissingMask: attributes.Capabilities.MissingCounterMask, Configuration: m.Configuration(),
		Enabled: attributes.Enabled, Usage: m.Usage(), ReceiveBuffer: m.ReceiveBuffer(),
	}
	for _, active := range m.ActiveAddresses() {
		s.Addresses = append(s.Addresses, Address{active, interfaces[active.Address]})
	}
	return s
}
