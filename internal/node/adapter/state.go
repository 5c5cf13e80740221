package adapter

import (
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// A State describes a node's adapter, its capabilities, and how much of it is in use. Agents,
// `ndklab adapter` and the checks of runs have it. Things that have a name in NDK have that
// name in JSON.
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

// The types of a Connection.
const (
	ActiveConnection = "Connection"
	Listener         = "Listener"
	SharedEndpoint   = "SharedEndpoint"
	QueuePair        = "QueuePair" // of verbs, that connection management did not connect
)

// A Connection is an entry in an adapter's list of connections, listeners and shared
// endpoints. It has what netstat -xan has on Windows, and more.
type Connection struct {
	Node      string `json:"node"`      // "" from an agent
	Mode      string `json:"mode"`      // Kernel: the node's workloads; User: another process in the node
	Interface string `json:"interface"` // of the local address
	IfIndex   int    `json:"if_index"`  // of that, in the node
	Type      string `json:"type"`      // one of those above
	Local     string `json:"local"`     // address and port; "" of a queue pair that is not connected
	Remote    string `json:"remote,omitempty"`
	PID       int    `json:"pid"`                 // of the process, as the host sees it, from an agent as the supervisor does; 0 in mode Kernel, and of one that has ended
	Process   string `json:"process,omitempty"`   // its name
	State     string `json:"state,omitempty"`     // of a connection or queue pair
	Transport string `json:"transport,omitempty"` // of a queue pair of verbs: RC, UC or UD
	QPN       uint32 `json:"qpn,omitempty"`
	RemoteQPN uint32 `json:"remote_qpn,omitempty"`
	// Sent and Received are packets, of a queue pair of verbs.
	Sent     uint64 `json:"packets_sent,omitempty"`
	Received uint64 `json:"packets_received,omitempty"`
}

// A SendState says how a queue pair of the node's workloads may send now, and what it has counted since it is connected.
type SendState struct {
	QPN           uint32     `json:"qpn"`
	Remote        netip.Addr `json:"remote"`
	BPS           uint64     `json:"bps,omitempty"`          // that its congestion control lets it send, on the wire; 0: any rate
	TargetBPS     uint64     `json:"target_bps,omitempty"`   // that this recovers to; 0: there is none
	Window        uint64     `json:"window_bytes,omitempty"` // that may be in flight; 0: any number
	CNPs          uint64     `json:"cnps,omitempty"`         // that it was sent
	Retransmitted uint64     `json:"retransmitted,omitempty"`
}

// A Pause says how long PFC kept packets of a class from leaving by an interface, since its adapter was started.
type Pause struct {
	Interface string `json:"interface"`
	Class     int    `json:"class"`
	US        uint64 `json:"us"`
}

// A ConnectionKind tells kinds of connections and queue pairs apart, for counting. Its fields
// are those of Connection.
type ConnectionKind struct {
	Type      string `json:"type"`
	Transport string `json:"transport,omitempty"`
	State     string `json:"state,omitempty"`
}

// A ConnectionCount counts those of a kind.
type ConnectionCount struct {
	ConnectionKind
	Count int `json:"count"`
}
