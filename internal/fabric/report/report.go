// Package report holds what a run leaves behind, and what a lab shows of itself: each
// noun (run, workload, link, node, check ...) once, as a struct with JSON tags. Events are
// of package event.
//
// The JSON field names are an API that test suites read: they are never renamed. The
// lab fills the structs in; this package computes nothing but sums. Package words has
// their wording, package text the tables for people, html the page, junit the file for
// CI systems, and graph the picture.
//
// Start reading at Run.
package report

import (
	"encoding/json"
	"io"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/provider"
)

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
	// Buffers are those of nodes that have one, and Deadlocks what came of their pauses.
	Buffers   []Buffer   `json:"buffers,omitempty"`
	Deadlocks []Deadlock `json:"deadlocks,omitempty"`
	// Series has queues, pauses and rates over time; null unless the file asks for them.
	Series *Series `json:"series,omitempty"`
	// Problems are failures that are no workload's or check's: a node that
	// died, an engine that could not keep up. A run with any has not passed.
	Problems []string `json:"problems,omitempty"`
	// Events lists what the timeline did, what chaos did, and what befell the lab, in the
	// order of time.
	Events []event.Event `json:"events,omitempty"`
	// Snapshots are counters of nodes that the timeline kept, by name.
	Snapshots map[string][]Node `json:"snapshots,omitempty"`
	// Interrupted: it was ended early, with what was measured until then. No check was made.
	Interrupted bool `json:"interrupted,omitempty"`
	// Hosts are those of a lab over several hosts, in their order.
	Hosts []RunHost `json:"hosts,omitempty"`
	// SetByHand lists what commands had set of links and nodes before the run, other than the
	// file has it: "client:eth0 loss=5%".
	SetByHand []string `json:"set_by_hand,omitempty"`
	// Simulated: it was played in virtual time, on no network.
	Simulated bool `json:"simulated,omitempty"`
	// Dilation is the factor by which the lab was slower than its file says; 0: it was not. All times and rates of the report are the
	// fabric's, but for Started, MachineSeconds, WallSeconds and what programs have printed.
	Dilation       int     `json:"dilation,omitempty"`
	MachineSeconds float64 `json:"machine_seconds,omitempty"` // Seconds as the machine's clock has them; 0 without dilation
	// Replay is the command that runs it again with the same seed.
	Replay string `json:"replay,omitempty"`
	// Artifacts is the folder in which the evidence of a run that failed is; "" if there is none.
	Artifacts string `json:"artifacts,omitempty"`
	// File is the topology file, where a suite has run it.
	File string `json:"file,omitempty"`
	// Attempts counts the runs of it in a suite, this one included; Flaky: it has failed before.
	Attempts int  `json:"attempts,omitempty"`
	Flaky    bool `json:"flaky,omitempty"`
	// Recorded is the log of the link engine's decisions; null if there is none.
	Recorded *Recorded `json:"recorded,omitempty"`

	Started     string  `json:"started"`      // RFC 3339
	Host        string  `json:"host"`         // kernel and machine
	WallSeconds float64 `json:"wall_seconds"` // of the whole run, with set-up and taking down
}

// A RunHost is a host of a lab over several.
type RunHost struct {
	Name  string  `json:"name"`
	Nodes int     `json:"nodes"` // that are on it
	Cut   int     `json:"cut"`   // links that cross from it to other hosts
	CPUs  float64 `json:"cpus"`  // that the lab might use there
	// TripUS is the round trip between the head and the host, in microseconds, when the lab came up. OffsetUS is by how much the host's
	// clock was ahead of the head's, at the end of the run, and OffsetErrorUS how far that may be wrong; null if it was not measured.
	TripUS        float64  `json:"trip_us"`
	OffsetUS      *float64 `json:"clock_offset_us"`
	OffsetErrorUS *float64 `json:"clock_offset_error_us"`
	// LostSeconds is the time since all nodes were ready at which a lab that goes on has lost the host, and Lost says why; absent if it
	// is there.
	LostSeconds *float64 `json:"lost_at_seconds,omitempty"`
	Lost        string   `json:"lost,omitempty"`
}

// A NodeState is a node's name and state.
type NodeState struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // core.NodeIsReady ...
	Reason string `json:"reason,omitempty"` // why it is not ready
}

// InWords returns the state with the reason for it.
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
	InUse     *provider.Usage   `json:"in_use,omitempty"`   // of a host's adapter, when a run is over of which a check is about that
}

// A Health is the state of a node's healthcheck.
type Health struct {
	State    string `json:"state"`            // starting, healthy or unhealthy
	Failures int    `json:"failures"`         // checks in a row that failed, but for those of the start period
	Reason   string `json:"reason,omitempty"` // why the last check failed
}

// A Port is the end of a link at a switch.
type Port struct {
	Name  string `json:"name"`  // of the interface
	To    string `json:"to"`    // the link's other endpoint
	State string `json:"state"` // forwarding, blocking (a spare of the spanning tree), listening, learning or disabled (no carrier)
	MACs  int    `json:"macs"`  // addresses learned there
}

// Recorded counts the link engine's decisions on packets in a log, since the lab
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
	// Where says, of a check that failed, what to look at: a counter, a log, a capture.
	Where string `json:"where,omitempty"`
	// At is the check's place in the topology file, file:line:column.
	At string `json:"at,omitempty"`
}

// A Suite is the result of running several topology files.
type Suite struct {
	Passed bool   `json:"passed"` // all of them were run and passed
	Labs   []*Run `json:"labs"`   // of the last run of each file, also of one that was interrupted
	// NotRun are files whose run did not begin, or was interrupted before there was anything to report.
	NotRun      []string `json:"not_run,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
	WallSeconds float64  `json:"wall_seconds"`
}

// A Measurement is the result of a workload that was run in a lab for itself.
type Measurement struct {
	Lab      string   `json:"lab"`
	Seed     uint64   `json:"seed"`
	Passed   bool     `json:"passed"`
	Workload Workload `json:"workload"`
	Problems []string `json:"problems,omitempty"` // as in Run
	// Interrupted and SetByHand mean the same as in Run.
	Interrupted bool `json:"interrupted,omitempty"`

	SetByHand []string `json:"set_by_hand,omitempty"`
	// Simulated: it was played in virtual time, on no network.
	Simulated bool `json:"simulated,omitempty"`
	Dilation  int  `json:"dilation,omitempty"` // as in Run
}

// WriteJSON writes v, a Run or another value of this package, as one indented
// JSON value.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // expectations have < and >
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteJSONLine writes v, a value of this package, as one JSON value on a line.
func WriteJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
