package report

import "github.com/ndklab/ndklab/internal/node/adapter"

// A NodeAdapter is a node and its adapter.
type NodeAdapter struct {
	NodeState
	Adapter *adapter.State `json:"adapter"` // null if the node has none, or is not ready
}

// Connections has the connections, listeners and shared endpoints of the
// adapters of a lab's nodes.
type Connections struct {
	Lab         string               `json:"lab"`
	Nodes       []NodeState          `json:"nodes"` // that were asked
	Connections []adapter.Connection `json:"connections"`
}
