// Package report holds what a run leaves behind: the result of every workload,
// node, link and check, and its forms as JSON and as tables for people.
//
// It computes nothing but totals and formatting; the lab fills it in. The JSON
// field names are an API that test suites read: they are never renamed.
//
// Start reading at Run.
package report

// A Run is the result of running a topology.
type Run struct {
	Lab       string     `json:"lab"`
	Seed      uint64     `json:"seed"`
	Passed    bool       `json:"passed"`
	Seconds   float64    `json:"seconds"` // from all nodes ready to the last workload's end
	Workloads []Workload `json:"workloads"`
	Nodes     []Node     `json:"nodes"`
	Links     []Link     `json:"links"`
	Checks    []Check    `json:"checks"`
	// Problems are failures that are no workload's or check's: a node that
	// died, an engine that could not keep up. A run with any has not passed.
	Problems []string `json:"problems,omitempty"`
	// Recorded is the log of the link engine's decisions; null if there is none.
	Recorded *Recorded `json:"recorded,omitempty"`

	Started     string  `json:"started"`      // RFC 3339
	Host        string  `json:"host"`         // kernel and machine
	WallSeconds float64 `json:"wall_seconds"` // of the whole run, with set-up and taking down
}

// A Workload is the result of one workload.
type Workload struct {
	Name      string  `json:"name"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Operation string  `json:"operation"`
	Size      uint64  `json:"size"` // bytes per message
	Depth     int     `json:"depth"`
	Messages  uint64  `json:"messages"` // completed with success
	Bytes     uint64  `json:"bytes"`    // payload of those
	Errors    uint64  `json:"errors"`
	Error     string  `json:"error,omitempty"` // the first one, in words
	Seconds   float64 `json:"seconds"`         // first post to last completion
	Gbps      float64 `json:"gbps"`            // payload, 10^9 bits per second
	Latency   Latency `json:"latency_us"`
	Verified  bool    `json:"verified"` // asked for, and every payload was right
}

// Latency is from post to completion, in microseconds.
type Latency struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// A NodeState is a node's name and state.
type NodeState struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // ready, down, paused or unresponsive
	Reason string `json:"reason,omitempty"` // why it is not ready
}

// InWords is the state with the reason for it.
func (n NodeState) InWords() string {
	if n.Reason == "" {
		return n.State
	}
	return n.State + ": " + n.Reason
}

// A Node is a node's state and counters.
type Node struct {
	NodeState
	Kind      string            `json:"kind"`               // host, switch or router; only hosts have counters
	PID       int               `json:"pid,omitempty"`      // of the agent, as the host sees it, in inspect only
	Restarts  int               `json:"restarts,omitempty"` // how often it was started again
	Addresses []string          `json:"addresses"`          // CIDR form
	Counters  map[string]uint64 `json:"counters"`           // NDIS_NDK_PERFORMANCE_COUNTERS names
	Transport map[string]uint64 `json:"transport"`          // the transport's own counters: retransmitted packets, NAKs ...
	Ports     []Port            `json:"ports,omitempty"`    // of a switch
	Limits    *Limits           `json:"limits"`             // null: none in force
	Usage     *Usage            `json:"usage"`              // null: not measured, as of nodes without limits
	Health    *Health           `json:"health,omitempty"`   // of a node that has a healthcheck and is not down
}

// A Health is what a node's healthcheck says.
type Health struct {
	State    string `json:"state"`            // starting, healthy or unhealthy
	Failures int    `json:"failures"`         // checks in a row that failed, but for those of the start period
	Reason   string `json:"reason,omitempty"` // why the last check failed
}

// A Port is where a link ends at a switch.
type Port struct {
	Name  string `json:"name"`  // of the interface
	To    string `json:"to"`    // the link's other endpoint
	State string `json:"state"` // forwarding, blocking (a spare of the spanning tree), listening, learning or disabled (no carrier)
	MACs  int    `json:"macs"`  // addresses learned there
}

// Recorded is how a log of the link engine's decisions on packets went, since the lab
// is up.
type Recorded struct {
	Records uint64 `json:"records"`         // in the file
	Missing uint64 `json:"missing"`         // that could not be written in time, or at all
	Error   string `json:"error,omitempty"` // why none could from some time on
}

// A Check is the verdict on one bound.
type Check struct {
	Name     string `json:"name"` // "bulk throughput"
	Passed   bool   `json:"passed"`
	Expected string `json:"expected"` // ">= 200 Mb/s"
	Got      string `json:"got"`      // "812 Mb/s"
}
