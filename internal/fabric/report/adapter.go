package report

import "github.com/ndklab/ndklab/internal/node/adapter"

// A NodeAdapter is a node and its adapter.
type NodeAdapter struct {
	NodeState
	Adapter *adapter.State `json:"adapter"` // null if the node has none, or is not ready
}
