package core

import (
	"time"

	"github.com/ndklab/ndklab/topology"
)

// An Event is something that a driver reports to a lab: one of the structs below.
type Event any

// Ask is a command. An Answer with its ID follows, once.
type Ask struct {
	ID      uint64
	By      Source
	Command Command
}

// Cancel says that nobody waits for the answer to a command any more. A command that has not begun is dropped, and one that
// has begun is finished. An Apply only finishes the step under way.
type Cancel struct {
	ID    uint64
	Cause error
}

// Done is the result of an action.
type Done struct {
	Number  int
	Err     error    // why it was not done
	Agent   bool     // the agent of the node, or of one at the ends of the link, has ended, and AgentEnded is about to come
	Late    bool     // of ReleaseLink: the engine has kept the link
	Status  int      // of Execute: the exit status
	Output  []string // of Execute: the last lines that were written
	Failure string   // of CheckHealth: why it has failed; "" if it has not
}

// AgentEnded says that the agent of a node has ended, by itself or since it was killed.
type AgentEnded struct {
	Of
	Reason string // in words
}

// Tick says that a Deadline has come.
type Tick struct{}

// A Source names the layer that a command belongs to. The lab's file is the lowest layer. Changes by hand last, and changes
// by a run last until the next run begins.
type Source int

// The sources.
const (
	ByHand Source = iota // somebody's command
	ByRun                // the timeline or the chaos of a run
)

// A Command asks a lab for something: one of the structs below.
type Command any

// Build makes and starts everything that the topology names. It is the first command.
type Build struct{}

// A Signal is a signal's number on Linux.
type Signal int

// Kill is SIGKILL.
const Kill Signal = 9

// ChangeNode does something to a host or router. The answer to a start comes when the node is ready, and its links carry
// packets as they were last asked to. Stopping a node that is down and starting one that is up change nothing. Pausing or
// starting a node that is paused, and resuming one that is not, are errors.
type ChangeNode struct {
	Node   string
	Action topology.NodeAction
	Signal Signal // of topology.KillNode; the answer waits for the node's end only after SIGKILL
}

// CommandOf returns what an entry of a timeline asks of links or of a node.
func CommandOf(e *topology.Event) Command {
	switch {
	case e.NodeAction != "":
		return ChangeNode{e.Node, e.NodeAction, Kill}
	case e.Down, e.Up:
		return SwitchLink{e.Link, e.Up}
	case e.Reset:
		return ResetLink{e.Link, e.From}
	case len(e.Partition) > 0:
		return Partition{e.Partition}
	case e.Heal:
		return Heal{}
	}
	return SetLink{e.Link, e.From, e.Set}
}

// SetLink changes what a link does to packets that the node From sends; "" is both nodes.
type SetLink struct {
	Link   int // index in Topology.Links
	From   string
	Change topology.Change
}

// ResetLink gives a link the settings of the topology again. It stays up or down.
type ResetLink struct {
	Link int
	From string
}

// SwitchLink takes a link down, as if its cable were pulled, or brings it up, whatever took it down.
type SwitchLink struct {
	Link int
	Up   bool
}

// Partition takes down every link between nodes of different sets. The nodes in no set form one more. It brings up what an
// earlier partition took down. Answer.Links are the links that it takes down.
type Partition struct{ Sets [][]string }

// Heal brings up what the last partition took down, except for what SwitchLink took down as well. Answer.Links are the
// links that came up.
type Heal struct{}

// Apply turns the lab into that of another topology. Generation is the Standing.Generation at which that was read.
type Apply struct {
	Topology   *topology.Topology
	Generation int
}

// BeginRun restores links and nodes to what the file and the commands by hand ask. Apply and other runs are refused until
// EndRun.
type BeginRun struct{}

// EndRun ends the run that BeginRun has begun.
type EndRun struct{}

// plainTime bounds how long a command that ends the impairment of a link waits for the link to be plain.
const plainTime = 2 * time.Second
