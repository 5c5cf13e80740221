package lab

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// Requests of the command that starts the lab to its supervisor.
var (
	methodStart   = control.NewMethod[startParams, Info]("start").WithFiles(0, 2)
	methodRelease = control.NewProcedure[control.None]("release") // the lab may outlive its owner
)

// Requests of any command to a supervisor. Where the parameter is a string, it is the name
// of a node or the endpoint of a link, and "" stands for all of them.
var (
	methodInfo        = control.NewMethod[control.None, Info]("info")
	methodInspect     = control.NewMethod[control.None, *Inspection]("inspect")
	methodObserve     = control.NewMethod[observeParams, observeAnswer]("observe")
	methodExternals   = control.NewMethod[control.None, []report.External]("externals")
	methodRun         = control.NewMethod[runParams, *report.Run]("run")
	methodInterrupt   = control.NewProcedure[string]("interrupt") // runParams.Token
	methodExec        = control.NewMethod[execParams, int]("exec").WithFiles(0, 3)
	methodSignal      = control.NewProcedure[signalParams]("signal")
	methodAdmit       = control.NewMethod[admitParams, admission]("admit").WithFiles(1, 1)
	methodLinks       = control.NewMethod[string, []report.Link]("links")
	methodSet         = control.NewProcedure[setParams]("set")
	methodReset       = control.NewProcedure[resetParams]("reset")
	methodLink        = control.NewProcedure[linkParams]("link")
	methodVerify      = control.NewMethod[verifyParams, *report.Verification]("verify")
	methodPartition   = control.NewMethod[[][]string, []string]("partition") // sets of nodes, for names of links
	methodHeal        = control.NewMethod[control.None, []string]("heal")    // returns names of links
	methodNodes       = control.NewMethod[string, []report.Node]("nodes")
	methodAdapter     = control.NewMethod[string, []report.NodeAdapter]("adapter")
	methodEnable      = control.NewMethod[enableParams, *node.StateChange]("enable")
	methodChange      = control.NewMethod[changeParams, *NodeChange]("change")
	methodConnections = control.NewMethod[string, *report.Connections]("connections")
	methodCapture     = control.NewProcedure[captureParams]("capture")               // lasts as long as the capture
	methodMiddles     = control.NewMethod[control.None, bool]("middles")             // lasts until sockets were sent; or returns that hosts keep the packets
	methodRecall      = control.NewProcedure[control.None]("recall").WithFiles(1, 1) // writes what hosts have kept, as pcapng
	methodLosses      = control.NewProcedure[control.None]("losses").WithFiles(1, 1)
	methodStanding    = control.NewMethod[control.None, *Standing]("standing")
	methodApply       = control.NewProcedure[applyParams]("apply")
	methodEvents      = control.NewMethod[eventsParams, eventsAnswer]("events")
	methodWatch       = control.NewProcedure[watchParams]("watch") // then noticeEvent
	methodNames       = control.NewMethod[control.None, Names]("names")
	methodAwait       = control.NewMethod[awaitParams, *Awaited]("await")
	methodDown        = control.NewProcedure[control.None]("down")
	methodWait        = control.NewProcedure[control.None]("wait") // lasts as long as the lab, and fails with the reason of its end
)

// Requests and notices of a supervisor to a command.
var (
	// methodAnnounce asks the command that starts a lab to tell workers how they reach it.
	methodAnnounce = control.NewProcedure[string]("announce")
	// methodSocket asks one that captures to take a packet socket, or the stream of one, and a tap.
	methodSocket = control.NewProcedure[socketParams]("socket").WithFiles(2, 2)
	// methodTakeMiddles asks one that remembers to take sockets, while it serves
	// methodMiddles.
	methodTakeMiddles = control.NewProcedure[middlesParams]("middles").WithFiles(1, control.MaxFiles)
	// noticeEvent is for those that watch.
	noticeEvent = control.NewNotice[event.Event]("event")
)

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
	Up    float64 `json:"up_seconds"` // since all nodes were ready, by the machine's clock
	// Dilation is the factor by which the lab is slower than its file says; 0: it is not.
	Dilation int `json:"dilation,omitempty"`
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
	// Dilation is the factor by which the lab is slower than its file says; 0: it is not.
	Dilation int           `json:"dilation,omitempty"`
	State    string        `json:"state"`
	Nodes    []report.Node `json:"nodes"`
	Links    []report.Link `json:"links"`
	// Externals are the ends of links outside the lab.
	Externals []report.External `json:"externals"`
	// Unfinished has the reason why the last Apply did not come to its end; "" if it did.
	Unfinished string `json:"unfinished,omitempty"`
}

// observeParams ask for what has changed since the observation of a number, or for all since 0.
type observeParams struct {
	Bounds []int64 // nanoseconds
	View   uint64  // whose number Since is; of another view all is new
	Since  uint64
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

type resetParams struct{ Endpoint, From string } // as in setParams

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
	Stream    bool   // what comes is the stream of a packet socket (capture.Send)
	// Host has the interface, if it is another one, and Clock is how its clock differs from that of the lab's time line.
	Host  string
	Clock trunk.Difference
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
