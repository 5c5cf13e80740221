package lab

import (
	"syscall"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/fabric/scenario"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// What a command asks of a supervisor. The first two are for the command that
// starts the lab.
const (
	methodStart       = "start"       // startParams and its files -> Info
	methodRelease     = "release"     // the lab may outlive its owner
	methodInfo        = "info"        // -> Info
	methodInspect     = "inspect"     // -> Inspection
	methodExternals   = "externals"   // -> list of report.External
	methodRun         = "run"         // runParams -> report.Run
	methodInterrupt   = "interrupt"   // runParams.Token -> nothing
	methodExec        = "exec"        // execParams and three files -> exit status
	methodSignal      = "signal"      // signalParams
	methodAdmit       = "admit"       // admitParams and a file
	methodLinks       = "links"       // endpoint of a link, "" for all -> list of report.Link
	methodSet         = "set"         // setParams
	methodReset       = "reset"       // setParams without a change
	methodLink        = "link"        // linkParams
	methodVerify      = "verify"      // verifyParams -> report.Verification
	methodPartition   = "partition"   // sets of nodes -> names of links
	methodHeal        = "heal"        // -> names of links
	methodNodes       = "nodes"       // name of a node, "" for all -> list of report.Node
	methodAdapter     = "adapter"     // name of a node, "" for all -> list of report.NodeAdapter
	methodEnable      = "enable"      // enableParams -> StateChange
	methodChange      = "change"      // changeParams -> NodeChange
	methodConnections = "connections" // name of a node, "" for all -> report.Connections
	methodCapture     = "capture"     // captureParams; answers when the capture is over
	methodMiddles     = "middles"     // answers when sockets were sent
	methodLosses      = "losses"      // and a file
	methodStanding    = "standing"    // -> Standing
	methodApply       = "apply"       // applyParams
	methodEvents      = "events"      // eventsParams -> eventsAnswer
	methodWatch       = "watch"       // watchParams; then send events
	methodNames       = "names"       // -> Names
	methodAwait       = "await"       // awaitParams -> Awaited
	methodDown        = "down"        // end the lab
	methodWait        = "wait"        // answers when the lab is over, with an error that says why
)

// methodSocket is what the supervisor asks of a command that captures: to take a
// packet socket and a tap. Of one that remembers it asks methodMiddles in turn, with
// middlesParams and as many files.
const methodSocket = "socket" // socketParams and two files

// noticeEvent is an Event, to clients that watch.
const noticeEvent = "event"

type startParams struct {
	Topology   *topology.Topology
	StateDir   string
	Dir        string // the working folder of the scenario's programs
	Privileged bool   // the lab's user is root, outside as well
	// Record and Replay are the names of files of which each comes along, in this
	// order, unless it is "".
	Record, Replay string
}

// Info says what a lab is.
type Info struct {
	Lab   string  `json:"lab"`
	Seed  uint64  `json:"seed"`
	State string  `json:"state"`
	Nodes int     `json:"nodes"`
	Links int     `json:"links"`
	Up    float64 `json:"up_seconds"` // since all nodes were ready
	// Of the nodes, those that are down and those that are paused.
	Down   int `json:"nodes_down,omitempty"`
	Paused int `json:"nodes_paused,omitempty"`
	// Labels holds the labels of its topology.
	Labels map[string]string `json:"labels,omitempty"`
}

// States of a lab.
const (
	Starting = "starting"
	Ready    = "ready"
	Unknown  = "unknown" // it does not answer, at least not in this network namespace
)

// An Inspection is the state of every node and link, in the order of the
// topology.
type Inspection struct {
	Lab    string            `json:"lab"`
	Labels map[string]string `json:"labels,omitempty"`
	Seed   uint64            `json:"seed"`
	State  string            `json:"state"`
	Nodes  []report.Node     `json:"nodes"`
	Links  []report.Link     `json:"links"`
	// Externals are the ends of links outside the lab.
	Externals []report.External `json:"externals"`
	// Unfinished is why the last Apply did not come to its end; "" if it did.
	Unfinished string `json:"unfinished,omitempty"`
}

type execParams struct {
	Node    string
	Command node.Command // its ID is unique within the channel
}

type signalParams struct {
	Node   string
	ID     string
	Signal syscall.Signal
}

type setParams struct {
	Endpoint string // node:interface of either end
	From     string // node whose outgoing direction alone changes; "" is both
	Change   topology.Change
}

type linkParams struct {
	Endpoint string
	Up       bool
}

type verifyParams struct {
	Endpoint string
	Probes   Probes
}

type captureParams struct {
	ID       uint64 // tells captures of the channel apart
	Endpoint string // node:interface
}

type socketParams struct {
	ID        uint64 // of captureParams
	Direction int    // of the link: the one that the interface sends into
	Carried   bool   // the tap is on
}

type enableParams struct {
	Node   string
	Enable bool
}

type applyParams struct {
	Topology   *topology.Topology
	Generation int // of the Standing that it was read for
}

type changeParams struct {
	Node   string
	Action Action
	Signal syscall.Signal // of KillNode
}

// A StateChange is what enabling or disabling a node's adapter has done.
type StateChange struct {
	Lab     string `json:"lab"`
	Node    string `json:"node"`
	Was     bool   `json:"was_enabled"`
	Enabled bool   `json:"enabled"`        // now
	Open    int    `json:"instances"`      // of the adapter that consumers had open before
	Left    int    `json:"instances_left"` // that they have open still
}

// An Event is something that happened in a lab.
type Event struct {
	At       time.Duration     `json:"at"` // since all nodes were ready; 0 before
	Time     time.Time         `json:"time"`
	Kind     string            `json:"kind"`
	Node     string            `json:"node,omitempty"`
	Link     string            `json:"link,omitempty"` // one of its endpoints
	Workload string            `json:"workload,omitempty"`
	Text     string            `json:"text"`           // for people
	Lost     uint64            `json:"lost,omitempty"` // of EventsLost: how many
	QP       *provider.QPError `json:"qp,omitempty"`   // of QPError
}

// Kinds of events.
const (
	NodeDown    = scenario.NodeDown
	NodeUp      = scenario.NodeUp
	NodePaused  = scenario.NodePaused
	NodeResumed = scenario.NodeResumed
	LinkChanged = scenario.LinkChanged
	Captured    = "captured" // a capture of the topology is complete
	Warning     = "warning"

	HealthChanged = "health-changed"
	LabWaiting    = "lab-waiting" // for nodes, before all are ready
)

// Kinds of events of a run.
const (
	WorkloadStarted  = scenario.WorkloadStarted
	WorkloadProgress = scenario.WorkloadProgress
	WorkloadDone     = scenario.WorkloadDone
	TimelineLeft     = scenario.TimelineLeft
	TimelineDone     = scenario.TimelineDone
	Marked           = scenario.Marked
	LinkOverrun      = scenario.LinkOverrun
)
