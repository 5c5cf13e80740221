package report

// Connections are what the adapters of a lab's nodes have of connections,
// listeners and shared endpoints.
type Connections struct {
	Lab         string       `json:"lab"`
	Nodes       []NodeState  `json:"nodes"` // that were asked
	Connections []Connection `json:"connections"`
}

// A Connection is an entry in the list of an adapter, as netstat -xan has it on
// Windows and then some.
type Connection struct {
	Node      string `json:"node"`
	Mode      string `json:"mode"`      // Kernel: the node's workloads; User: another process in the node
	Interface string `json:"interface"` // of the local address
	IfIndex   int    `json:"if_index"`  // of that, in the node
	Type      string `json:"type"`      // Connection, Listener, SharedEndpoint or QueuePair
	Local     string `json:"local"`     // address and port; "" of a queue pair that is not connected
	Remote    string `json:"remote,omitempty"`
	PID       int    `json:"pid"`                 // of the process, as the host sees it; 0 in mode Kernel
	Process   string `json:"process,omitempty"`   // its name
	State     string `json:"state,omitempty"`     // of a connection or queue pair
	Transport string `json:"transport,omitempty"` // of a queue pair of verbs: RC, UC or UD
	QPN       uint32 `json:"qpn,omitempty"`
	RemoteQPN uint32 `json:"remote_qpn,omitempty"`
	// Sent and Received are packets, of a queue pair of verbs.
	Sent     uint64 `json:"packets_sent,omitempty"`
	Received uint64 `json:"packets_received,omitempty"`
}
