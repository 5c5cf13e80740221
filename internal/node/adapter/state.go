package adapter

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// A State is what a node's adapter is, what it can do, and how much of it is in use. Agents,
// `ndklab adapter` and the checks of runs have it. What NDK has a name for has that name in JSON.
type State struct {
	Enabled       bool                   `json:"enabled"`
	Instances     int                    `json:"instances"` // of the adapter that consumers have open
	Addresses     []Address              `json:"addresses"`
	Info          provider.AdapterInfo   `json:"info"`
	Capabilities  Capabilities           `json:"capabilities"`
	InUse         provider.Usage         `json:"in_use"`
	Configuration provider.Configuration `json:"configuration"`
	ReceiveBuffer provider.ReceiveBuffer `json:"receive_buffer"`
}

// Capabilities are the limits of all consumers of an adapter together (NDIS_NDK_CAPABILITIES).
type Capabilities struct {
	provider.Capabilities
	MissingCounterMask uint64
}

// An Address is an address of an adapter, the interface that has it, and what is in force there.
type Address struct {
	Address       netip.Addr `json:"address"`
	Interface     string     `json:"interface"`
	MTU           int        `json:"mtu"`             // bytes of IP packet
	RoCEFrameSize int        `json:"roce_frame_size"` // bytes of payload in a RoCE packet
}

// Describe returns what a device is and how it is. interfaces are the names of those that
// have its addresses, as far as they are known.
func Describe(m *provider.Miniport, interfaces map[netip.Addr]string) *State {
	attributes, used := m.Attributes(), m.Usage()
	limits := attributes.Capabilities
	s := &State{
		Enabled: attributes.Enabled, Instances: used.Instances, Addresses: []Address{}, Info: *limits.NdkInfo,
		Capabilities: Capabilities{limits.Capabilities, limits.MissingCounterMask}, InUse: used,
		Configuration: m.Configuration(), ReceiveBuffer: m.ReceiveBuffer(),
	}
	for _, a := range m.ActiveAddresses() {
		s.Addresses = append(s.Addresses, Address{a.Address, interfaces[a.Address], a.MTU, a.FrameSize})
	}
	return s
}
