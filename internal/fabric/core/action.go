package core

import (
	"time"

	"github.com/ndklab/ndklab/topology"
)

// An Action is something that a driver has to do: one of the structs below. Every action is idempotent: done twice,
// it leaves what it leaves when done once. The driver answers each with Done and its number, but for
// ForgetNode, ForgetLink, Tell, Answer and End.
//
// Links are called by their specification, nodes by their names and the number of their life: whatever comes of an
// action of an earlier life is of no interest any more.
type Action any

// MakeSwitch makes a switch, whose ports are the ends of links that are made later.
type MakeSwitch struct{ Spec *topology.Node }

// RemoveSwitch removes a switch, whose links have gone.
type RemoveSwitch struct{ Spec *topology.Node }

// StartAgent starts the agent of a host or router. From then on AgentEnded may come, once.
type StartAgent struct {
	Of
	Topology *topology.Topology // what the agent is told of itself and its neighbours
	Restarts int                // counts the starts after the first, and so picks the random numbers of a life
}

// PlaceFiles puts the files of a node in place.
type PlaceFiles struct{ Of }

// Execute runs a command in a node by a shell. Done.Status and Done.Output are of its end.
type Execute struct {
	Of
	Command string
}

// Configure sets the interfaces up that StartAgent told of, and opens the adapter.
type Configure struct{ Of }

// Reconfigure has the interfaces, addresses, routes, neighbours and limits of a node that is up be what another topology
// says. Most often nothing of them differs.
type Reconfigure struct {
	Of
	Topology *topology.Topology
	Restarts int
}

// CheckHealth runs the healthcheck of a node once. Done.Failure says why it has failed.
type CheckHealth struct{ Of }

// PauseAgent stops the processes of a node.
type PauseAgent struct{ Of }

// ResumeAgent has the processes of a node that is paused go on.
type ResumeAgent struct{ Of }

// SignalAgent sends a signal to a node's agent.
type SignalAgent struct {
	Of
	Signal Signal
}

// KillAgent ends a node's agent at once. AgentEnded follows.
type KillAgent struct{ Of }

// MakeEnds makes interfaces of a link: Ends of them. With Up, the link is to carry packets soon.
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

// ResizeLink has the interfaces of a link take packets of its MTU.
type ResizeLink struct{ Link *topology.Link }

// Impair has the link's engine take it over, to do to its packets what Asked says.
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

// AwaitIdle waits until no packet is on its way on a link that its engine has and that is not impaired any more.
// Other actions of the link go on meanwhile.
type AwaitIdle struct{ Link *topology.Link }

// Relieve has the link's engine give it back, after which the kernel carries its packets if it is connected. Done.Late
// says that there were packets on their way for too long, and that the engine has the link as before.
type Relieve struct{ Link *topology.Link }

// Connect has a link carry packets: it sets its carrier on, and its ports at switches open.
type Connect struct{ Link *topology.Link }

// Disconnect takes the carrier of a link away, as when a cable is pulled. Packets on their way are lost.
type Disconnect struct{ Link *topology.Link }

// TakeApart ends whatever is done with the packets of a link, of which an end is about to vanish or has.
type TakeApart struct{ Link *topology.Link }

// BeginLinks says that all nodes of a lab that is being built are configured: the driver does what it has to do
// before links carry packets.
type BeginLinks struct{}

// RenewNames has all nodes know the names and addresses of the lab's topology.
type RenewNames struct{}

// AwaitTree waits until the spanning trees of switches know what to do with links.
type AwaitTree struct {
	Links []*topology.Link
	All   bool // of all links of a lab that is being built
}

// ForgetNode says that a node is in the lab no more.
type ForgetNode struct{ Node string }

// ForgetLink says that a link is in the lab no more, of which no interface is left.
type ForgetLink struct{ Link *topology.Link }

// Tell tells everyone who follows the lab of something that has happened.
type Tell struct {
	Kind string
	Node string
	Link string // an endpoint of it
	Text string
}

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

// The kinds of Tell.
const (
	LabReady      = "lab-ready"
	LabWaiting    = "lab-waiting" // not ready yet: who is waited for
	LabChanged    = "lab-changed"
	NodeDown      = "node-down"
	NodeUp        = "node-up"
	NodePaused    = "node-paused"
	NodeResumed   = "node-resumed"
	NodeRemoved   = "node-removed"
	LinkAdded     = "link-added"
	LinkRemoved   = "link-removed"
	LinkChanged   = "link-changed"
	HealthChanged = "health-changed"
	Warning       = "warning"
)

// How long a start may take before it says whom it waits for, and how often it does.
const (
	firstNotice   = 3 * time.Second
	waitingPeriod = 10 * time.Second
)
