package core

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// An Action is something that a driver has to do: one of the structs below. Every action is idempotent: done twice,
// it has the same effect as done once. The driver reports the result of each with Done and its number, except for
// ForgetNode, ForgetLink, Notify, Answer and End.
//
// An action names a link by its specification, and a node by its name and the number of its life. The lab ignores the
// results of earlier lives.
type Action any

// MakeSwitch makes a switch without ports. These are the ends of links that are made later.
type MakeSwitch struct{ Spec *topology.Node }

// RemoveSwitch removes a switch, whose links have gone.
type RemoveSwitch struct{ Spec *topology.Node }

// StartAgent starts the agent of a host or router. From then on AgentEnded may come, once.
type StartAgent struct {
	Of
	Topology *topology.Topology // what the agent is told of itself and its neighbours, but for its routes
	Routes   []topology.Route
	Restarts int // counts the starts after the first, and so picks the random numbers of a life
}

// PlaceFiles puts the files of a node in place.
type PlaceFiles struct{ Of }

// Execute runs a command in a node by a shell. It is done when the command has ended: Done.Status is its exit status, and
// Done.Output its last lines.
type Execute struct {
	Of
	Command string
}

// Configure sets up the interfaces of StartAgent's topology, and opens the adapter.
type Configure struct{ Of }

// Reconfigure changes the interfaces, addresses, routes, neighbours and limits of a node that is up to those of another
// topology. Most often none of them differs.
type Reconfigure struct {
	Of
	Topology *topology.Topology
	Routes   []topology.Route // in the place of the topology's
	Restarts int
}

// SetRoutes has the routes of a node that is up be these. No packet is lost that has a route before and afterwards.
type SetRoutes struct {
	Of
	Routes []topology.Route
}

// CheckHealth runs the healthcheck of a node once. Done.Failure says why it has failed.
type CheckHealth struct{ Of }

// PauseAgent stops the processes of a node.
type PauseAgent struct{ Of }

// ResumeAgent continues the processes of a node that is paused.
type ResumeAgent struct{ Of }

// SignalAgent sends a signal to a node's agent.
type SignalAgent struct {
	Of
	Signal Signal
}

// KillAgent ends a node's agent at once. AgentEnded follows.
type KillAgent struct{ Of }

// MakeEnds makes the interfaces of a link at Ends. Up says that the link is to carry packets soon.
type MakeEnds struct {
	Link *topology.Link
	Ends [2]bool
	Up   bool
}

// RemoveEnd removes the interface of a link at one of its ends: the far end loses the carrier.
type RemoveEnd struct {
	Link *topology.Link
	End  int
}

// ResizeLink sets the MTU of the interfaces of a link.
type ResizeLink struct{ Link *topology.Link }

// Impair has the link's engine take the link over and impair its packets as Asked says.
type Impair struct {
	Link  *topology.Link
	Asked [2]topology.Impairment
}

// SetImpairment changes what the link's engine does to the packets of one direction.
type SetImpairment struct {
	Link      *topology.Link
	Direction int
	To        topology.Impairment
}

// AwaitIdle waits until no packet is on its way on a link that has its engine but is not impaired any more. Other
// actions of the link go on meanwhile.
type AwaitIdle struct{ Link *topology.Link }

// ReleaseLink has the link's engine give the link back. Afterwards the kernel carries its packets, if it is connected.
// Done.Late says that packets were on their way for too long, and that the engine has kept the link.
type ReleaseLink struct{ Link *topology.Link }

// Connect has a link carry packets: it sets the carrier on, and opens the ports at switches.
type Connect struct{ Link *topology.Link }

// Disconnect takes the carrier of a link away, as when a cable is pulled. Packets on their way are lost.
type Disconnect struct{ Link *topology.Link }

// TakeApart disconnects a link and removes its engine, when an end of it has vanished or is about to.
type TakeApart struct{ Link *topology.Link }

// BeginLinks says that all nodes of a lab that is being built are configured: the driver does what it has to do
// before links carry packets.
type BeginLinks struct{}

// RenewNames gives all nodes the names and addresses of the lab's topology.
type RenewNames struct{}

// AwaitSpanningTree waits until the spanning trees of switches have decided whether links forward.
type AwaitSpanningTree struct {
	Links []*topology.Link
	All   bool // of all links of a lab that is being built
}

// ForgetNode says that a node has left the lab.
type ForgetNode struct{ Node string }

// ForgetLink says that a link has left the lab. None of its interfaces is left.
type ForgetLink struct{ Link *topology.Link }

// Notify tells everyone who follows the lab what has happened. The driver adds which lab it is and the times.
type Notify event.Event

// Answer answers an Ask.
type Answer struct {
	ID       uint64
	Err      error  // why it was not done
	Was      string // of ChangeNode: the state before
	Is       NodeStatus
	Links    []*topology.Link
	Restored bool // of BeginRun: it is not the first run
}

// End ends the lab.
type End struct{ Reason error }

// Of names a life of a node.
type Of struct {
	Node string
	Life int
}

// NodeName returns the node's name.
func (o Of) NodeName() string { return o.Node }

// A build names the nodes that it waits for after firstNotice, and then in every waitingPeriod.
const (
	firstNotice   = 3 * time.Second
	waitingPeriod = 10 * time.Second
)
