package report

import "github.com/ndklab/ndklab/internal/node/adapter"

// A NodeAdapter is a node and its adapter.
type NodeAdapter struct {
	NodeState
	Adapter *adapter.State `json:"adapter"` // null if the node has none, or is not ready
}

// Connections are what the adapters of a lab's nodes have of connections,
// listeners and shared endpoints.
type Connections struct {
	Lab         string               `json:"lab"`
	Nodes       []NodeState          `json:"nodes"` // that were asked
	Connections []adapter.Connection `json:"connections"`
}
