package topology

import (
	"slices"
	"strconv"
	"time"
)

// This file is the scenario: what is done in a lab that is up, when, and what is
// expected of it.

// An Operation is the work of a workload.
type Operation string

// The operations. The first three move messages from one QP to another, as the programs
// of perftest do.
const (
	Send      Operation = "send"
	Write     Operation = "write"
	Read      Operation = "read"
	Connect   Operation = "connect"   // connections made and ended, many at once: a storm
	Storage   Operation = "storage"   // requests of a client whose memory the server reads and writes, as in SMB Direct
	AllReduce Operation = "allreduce" // a ring of nodes adds up vectors, and each checks the sum
	Rping     Operation = "rping"     // the rounds of rping
	Program   Operation = "exec"      // programs of the user's, in one node or several
)

// A Pattern says who exchanges messages with whom among a workload's nodes.
type Pattern string

// The patterns.
const (
	Pair        Pattern = "pair"        // From with To
	Ring        Pattern = "ring"        // each node with the next, the last with the first
	AllToAll    Pattern = "all-to-all"  // each node with each other
	Incast      Pattern = "incast"      // each node but the first with the first
	Broadcast   Pattern = "broadcast"   // the first node with each other
	Permutation Pattern = "permutation" // each node with one other, each of which has one; drawn by the lab's seed
)

// A Workload is traffic between nodes, or programs in them.
type Workload struct {
	Name      string
	Operation Operation
	Pattern   Pattern
	From, To  string // nodes of a Pair, of which From connects and posts; "" otherwise
	// Nodes are those of any other pattern, of AllReduce and of Program, in the order of
	// the file, each once. Of Incast and Broadcast the first is the one that all others
	// exchange messages with.
	Nodes []string
	// Flows say who connects to whom, in order. AllReduce has those of its ring, Program
	// has none. A Permutation's are drawn when the lab's seed is known, by Topology.Draw.
	Flows []Flow

	Size    uint64   // bytes per message, the largest of Sizes
	Sizes   []uint64 // of a sweep, one after the other, or of a mix; nil: Size alone
	Mixed   bool     // each message has a size drawn from Sizes, all equally likely
	Measure Measure  // what a pair of QPs does: stream messages, or send one to and fro
	Depth   int      // messages in flight on a QP; of Connect: connections being made at once
	QPs     int      // connections of each flow; of Connect: those open at once at most
	Inline  bool     // messages are sent inline
	SRQ     bool     // the server's QPs take receives from one SRQ
	Polling bool     // completions are polled for; else waited for by event
	Rate    uint64   // bits of payload per second that each flow posts at most; 0: no limit
	// Count is the number of messages that each flow completes (of Connect: connections; of
	// Storage: requests; of AllReduce and Rping: rounds), in a sweep of each size. 0: until
	// Duration has passed. Of Program both are 0.
	Count    uint64
	Duration time.Duration // 0: until Count is done; in a sweep for each size
	WarmUp   time.Duration // before Count and Duration begin, not measured; in a sweep for each size
	Verify   bool          // compare every payload byte for byte
	// Reconnect has a flow whose connection fails connect again, post what was in flight
	// once more and go on, until its count or duration is done.
	Reconnect bool

	Command []string // of Program: what is executed in each of Nodes, and its arguments
	// Commands are instead of Command where the first of Nodes has a server, and the others
	// have clients of it: what is executed in each of Nodes, in their order. The clients
	// begin when the server is ready.
	Commands [][]string
	Ready    Readiness     // of the server of Commands
	Timeout  time.Duration // of Program: when it is ended, and has failed
	Start    time.Duration // after all nodes are ready
	Manual   bool          // it starts when the timeline starts it, not at Start
	Place    Place         // in its file
}

// CommandOf returns the command that a Program executes in one of its Nodes, by its index.
func (w *Workload) CommandOf(node int) []string {
	if w.Commands != nil {
		return w.Commands[node]
	}
	return w.Command
}

// A Readiness says when a server is ready for its clients. The zero value is: as soon as it
// listens, at whatever port.
type Readiness struct {
	Started bool   // it is ready once it is started
	Port    uint16 // it is ready once it listens at this port, of TCP or of RDMA; 0: at any
}

// String is the readiness as files have it.
func (r Readiness) String() string {
	switch {
	case r.Started:
		return readyStarted
	case r.Port != 0:
		return strconv.Itoa(int(r.Port))
	}
	return readyListening
}

// A Flow is one node that connects to another and posts.
type Flow struct{ From, To string }

// A Measure is the purpose of a workload of Send, Write or Read.
type Measure string

// The measures.
const (
	Bandwidth Measure = "bandwidth" // as many messages as possible, Depth of them in flight
	Latency   Measure = "latency"   // one message at a time, answered in kind but for READs; a latency is half a round trip then
)

// An Event is a timeline entry: what happens, and when. Of what can happen it has
// exactly one.
type Event struct {
	Name string // by which others refer to it; "" if none does
	// At is the time from when all nodes are ready to when it happens or, with When or After, how long
	// after that.
	At   time.Duration
	When *Trigger // it waits for this; nil: it does not. It has one of When and After at most
	// After is the name of another event that it waits for, until that has happened as
	// often as it does; "": none. Events never wait for each other.
	After  string
	Repeat int           // how often it happens; 0 and 1: once
	Every  time.Duration // from one time to the next

	Link  int    // index in Topology.Links; meaningless where no link changes
	From  string // of Set and Reset: node whose outgoing direction alone changes; "" is both
	Set   Change // what Set changes; zero if nothing
	Down  bool   // take the link down
	Up    bool   // bring it back up
	Reset bool   // give it the impairments of the file again; that it is down or up stays
	// Partition takes down the links between sets of nodes, as Topology.Between
	// has them, and brings up those that an earlier partition took down.
	Partition [][]string
	Heal      bool // bring up what the last partition took down

	Node       string     // of NodeAction, and of Command
	NodeAction NodeAction // "" if nothing happens to a node
	Storm      *Storm     // of Node's adapter; nil: none

	Workload string // that starts or stops; "" if none does
	Stop     bool   // it stops

	Command  []string      // is run in Node; an exit status but 0 is a problem of the run
	Timeout  time.Duration // of Command: when it is ended, and has failed
	Snapshot string        // under which all counters are kept for checks; "" if they are not
	Mark     string        // a comment that captures and reports have at this instant; "" if none

	Place Place // in its file; of what a Chaos has drawn, that of the Chaos
}

// OfLink reports whether the event changes a link, so that Link has a meaning.
func (e *Event) OfLink() bool { return e.Down || e.Up || e.Reset || e.Set != (Change{}) }

// A Storm is that of a host's adapter, which asks its neighbours to pause a priority whatever it receives.
type Storm struct {
	Priority uint32
	For      time.Duration
}

// A NodeAction is one thing that a timeline does to a node.
type NodeAction string

// The actions.
const (
	StopNode    NodeAction = "stop"
	StartNode   NodeAction = "start"
	RestartNode NodeAction = "restart"
	KillNode    NodeAction = "kill"
	PauseNode   NodeAction = "pause"
	ResumeNode  NodeAction = "resume"
)

// A Trigger is the condition that an event waits for: that a workload is in a state, that it has
// completed messages, or the value of a counter.
type Trigger struct {
	Workload string
	State    WorkloadState // of Workload; "" if Bound is of its MessageCount
	Node     string        // whose counter it is; "": the sum over all hosts
	Counter  string        // under its NDIS or transport name; "" if it is about Workload
	Bound    Bound
}

// A WorkloadState says how far a workload is.
type WorkloadState string

// The states.
const (
	WorkloadStarted WorkloadState = "started"
	WorkloadDone    WorkloadState = "done"   // with errors or without
	WorkloadFailed  WorkloadState = "failed" // it has had an error
)

// A Chaos is random events of one kind. They come at exponentially distributed
// intervals, drawn from the lab's seed like what each happens to, and the effect of each
// ends by itself. Nothing happens to what an earlier one has not let go of.
// Topology.Draw makes events of it.
type Chaos struct {
	Start, Until time.Duration // after all nodes are ready; none begins before or after
	Kind         ChaosKind
	Every        time.Duration // mean interval
	For          time.Duration // how long each effect lasts; 0 for RestartAny
	Links        []int         // of DownLink and ImpairLink: indices in Topology.Links, of which one is taken each time
	Nodes        []string      // of the other kinds: of which one is taken each time
	Set          Change        // of ImpairLink
	Place        Place         // in its file
}

// A ChaosKind is a kind of random event.
type ChaosKind string

// The kinds.
const (
	DownLink   ChaosKind = "down"    // a link loses its carrier, and gets it back
	ImpairLink ChaosKind = "impair"  // a link is set, and reset to what the file says
	KillAny    ChaosKind = "kill"    // a node is killed, and started again
	PauseAny   ChaosKind = "pause"   // a node is paused, and resumed
	RestartAny ChaosKind = "restart" // a node is restarted
)

// A Metric is the quantity that a Bound is about.
type Metric string

// The metrics of workloads. Latencies are nanoseconds, post to completion.
const (
	Errors       Metric = "errors"       // count
	Throughput   Metric = "throughput"   // payload bits per second
	MessageCount Metric = "messages"     // completed
	MessageRate  Metric = "message_rate" // per second
	Connections  Metric = "connections"  // made
	ConnectRate  Metric = "connect_rate" // connections made per second
	Reconnects   Metric = "reconnects"   // connections made in place of failed ones
	LatencyMin   Metric = "latency_min"
	LatencyP50   Metric = "latency_p50"
	LatencyP90   Metric = "latency_p90"
	LatencyP99   Metric = "latency_p99"
	LatencyP999  Metric = "latency_p999"
	LatencyP9999 Metric = "latency_p9999"
	LatencyMax   Metric = "latency_max"
	// LatencyJitter is the 99th percentile less the median.
	LatencyJitter Metric = "latency_jitter"
	// Recovered is the longest time, in nanoseconds, in which the workload completed
	// nothing while it had something to do.
	Recovered Metric = "recovered"
	Fairness  Metric = "fairness" // Jain's index of the flows' throughputs, 0 to 1
)

// The metrics of a link's direction.
const (
	LinkDropped  Metric = "dropped" // packets, for whatever reason
	LinkLoss     Metric = "loss"    // fraction of packets that were dropped
	LinkRate     Metric = "rate"    // bits per second that it carried while it had packets
	LinkDelay    Metric = "delay"   // nanoseconds at the median
	LinkDelayP99 Metric = "delay_p99"
	LinkOverruns Metric = "overruns" // count
)

// The metrics of what is left when every workload has ended, summed over nodes.
const (
	OpenConnections Metric = "open_connections" // QPs that are connected
	Leftovers       Metric = "leftovers"        // NDK objects that are still there
)

// The metrics of a buffer, over all ports of its node and all classes.
const (
	BufferDrops Metric = "drops"      // packets, for whatever reason; the sum
	QueueP99    Metric = "queue_p99"  // bytes, while anything was queued; of the longest queue
	QueuePeak   Metric = "queue_peak" // bytes, likewise
	// PauseTime is the longest time in all, in nanoseconds, for which neighbours paused one class
	// of one port.
	PauseTime Metric = "pause_time"
)

// Deadlocks is the metric of queues that wait for each other: how many deadlocks there were.
const Deadlocks Metric = "deadlocks"

// A Check holds what was measured against bounds. It is about one of: a workload; a
// counter; a link; a buffer, or deadlocks; what is left over; a command's exit.
type Check struct {
	Workload string
	Verified bool // every payload of Workload was asked to be compared, and right

	Counter string // under its NDIS or transport name
	Node    string // whose counter or leftovers it is, or where Command runs; "": the sum over all hosts
	// Snapshot is the name of the counters' snapshot that is looked at, At when they are
	// taken; neither: at the end.
	Snapshot string
	At       time.Duration

	Link   int // index in Topology.Links; meaningless unless OfLink
	OfLink bool
	From   string // node whose outgoing direction of Link it is; "": each of both

	// OfBuffer: it is about the buffer of Switch, a switch or router, and the deadlocks that queues
	// there were part of; Switch is "": about all deadlocks.
	OfBuffer bool
	Switch   string

	Left bool // it is about what is left over

	Command []string      // run in Node when everything is over
	Status  int           // with which Command is to exit
	Output  string        // a regular expression (package regexp) that its standard output is to match; "": any
	Timeout time.Duration // of Command

	Bounds []Bound
	Place  Place // of the check in its file
}

// A Baseline is an earlier run's report that this one is compared with.
type Baseline struct {
	File      string   // a path
	Content   []byte   // of that file: JSON as run -o json prints it
	Tolerance float64  // fraction by which a metric may be worse
	Metrics   []Metric // of workloads; nil: throughput and latency_p99
	Workloads []string // nil: all that both have
	Place     Place    // in its file
}

// A Bound is one condition: Metric Relation Value. Of a counter there is no Metric.
type Bound struct {
	Metric   Metric
	Relation string  // ==, <=, >=, < or >
	Value    float64 // in the metric's unit
	Text     string  // as the file has it, for messages
}

// Holds reports whether a measured value, in the metric's unit, is within the
// bound.
func (b Bound) Holds(got float64) bool {
	switch b.Relation {
	case "==":
		return got == b.Value
	case "<=":
		return got <= b.Value
	case ">=":
		return got >= b.Value
	case "<":
		return got < b.Value
	case ">":
		return got > b.Value
	}
	return false
}

// FindWorkload is the workload of that name, or nil.
func (t *Topology) FindWorkload(name string) *Workload {
	for i := range t.Workloads {
		if t.Workloads[i].Name == name {
			return &t.Workloads[i]
		}
	}
	return nil
}

// ChecksErrors reports whether a check is about the errors of a workload: then it decides
// how many there may be. Else there may be none.
func (t *Topology) ChecksErrors(workload string) bool {
	for i := range t.Checks {
		c := &t.Checks[i]
		if c.Workload == workload && slices.ContainsFunc(c.Bounds, func(b Bound) bool { return b.Metric == Errors }) {
			return true
		}
	}
	return false
}
