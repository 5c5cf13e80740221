package core

import (
	"time"

	"github.com/ndklab/ndklab/topology"
)

// An Event is something that a lab is told: one of the structs below.
type Event any

// Ask is a command. An Answer with its ID follows, once.
type Ask struct {
	ID      uint64
	By      Source
	Command Command
}

// Cancel says that nobody waits for the answer to a command any more. What waits for its turn is not done, what has
// begun comes to an end, but for an Apply, which begins no further step.
type Cancel struct {
	ID    uint64
	Cause error
}

// Done is the result of an action.
type Done struct {
	Number  int
	Err     error    // why it was not done
	Agent   bool     // the agent of the node, or of one at the ends of the link, has ended, and AgentEnded is about to come
	Late    bool     // of Relieve
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

// A Source names the layer that a command belongs to. The lab's file is the lowest; what is asked by hand lasts; what
// a run asks lasts until the next run begins.
type Source int

// The sources.
const (
	ByHand Source = iota // somebody's command
	ByRun                // the timeline or the chaos of a run
)

// A Command is what is asked of a lab: one of the structs below.
type Command any

// Build has everything be made and started that the topology names. It is the first command.
type Build struct{}

// A Signal is a signal's number on Linux.
type Signal int

// Kill is SIGKILL.
const Kill Signal = 9

// ChangeNode does something to a host or router. A node that is started is ready when it is answered, and its links
// carry packets as they were last asked to. To stop a node that is down and to start one that is up changes nothing;
// to pause one that is paused, to resume one that is not, and to start one that is paused are errors.
type ChangeNode struct {
	Node   string
	Action topology.NodeAction
	Signal Signal // of topology.KillNode; only of SIGKILL is the end waited for
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

// SetLink changes what a link does to packets, in the direction that the node From sends; "" is both.
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

// SwitchLink takes a link down, as if its cable were pulled, or up, whatever took it down.
type SwitchLink struct {
	Link int
	Up   bool
}

// Partition takes down every link between nodes of different sets, where those in no set form one more, and brings up
// what an earlier partition took down. Answer.Links are down because of it.
type Partition struct{ Sets [][]string }

// Heal brings up what the last partition took down, but for what SwitchLink took down as well. Answer.Links came up.
type Heal struct{}

// Apply makes the lab that of another topology, which was read with that of Generation in mind.
type Apply struct {
	Topology   *topology.Topology
	Generation int
}

// BeginRun has links and nodes be as the file and the commands by hand ask, and keeps Apply and other runs away until EndRun.
type BeginRun struct{}

// EndRun ends what BeginRun began.
type EndRun struct{}

// plainTime bounds how long a command that makes a link plain waits for the link to be so.
const plainTime = 2 * time.Second
