package report

import (
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// An Observation describes a lab to a monitor, in the order of its topology.
type Observation struct {
	Lab   string         `json:"lab"`
	Seed  uint64         `json:"seed"`
	State string         `json:"state"`
	Up    float64        `json:"up_seconds"` // since all nodes were ready; 0 before
	Nodes []ObservedNode `json:"nodes"`
	// Links have counters, DelayBars and what they are set to in quality, and no more.
	Links []Link `json:"links"`
}

// An ObservedNode is a node, without its addresses and ports, and what goes on there.
type ObservedNode struct {
	Node
	Connections []adapter.ConnectionCount `json:"connections,omitempty"`
	Workloads   []ObservedWorkload        `json:"workloads,omitempty"`
	Sending     []ObservedPair            `json:"sending,omitempty"` // of a host
	Pauses      []adapter.Pause           `json:"pauses,omitempty"`  // likewise
}

// An ObservedPair is a queue pair of a node's workloads.
type ObservedPair struct {
	adapter.SendState
	Peer string `json:"peer,omitempty"` // the node that has the remote address; "": none of the lab's
}

// An ObservedWorkload sums up the progress of a workload's clients in a node.
type ObservedWorkload struct {
	Name     string         `json:"name"`
	Clients  int            `json:"clients"`
	Messages uint64         `json:"messages"` // completed with success, also while warming up
	Bytes    uint64         `json:"bytes"`    // payload of those
	Errors   uint64         `json:"errors"`
	Latency  histogram.Bars `json:"latency_ns"` // not of the warm-up
}
