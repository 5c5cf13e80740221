// Package node is one emulated host of a lab, or a router: the agent, a process in
// network, UTS, mount and PID namespaces of its own and in its own cgroup, and the
// handle by which the lab's supervisor drives it.
//
// The supervisor calls Start, makes the node's links into the node's network
// namespace, and calls Agent.Up, which configures its interfaces and
// routes (network.go, routing.go) and has the agent start the RDMA adapter, which a router has not. After that
// it runs commands and workloads, tells what the adapter has counted and is, and
// enables and disables it (ndis.go). The agent is the running binary started again;
// its main function hands over to Main when IsAgent says so. A node that is idle has
// no agent until something is to run in it (idle.go).
//
// The agent is process 1 of the node's PID namespace: its end is the end of whatever
// commands left running in the background, and none of these can end or even see
// another node's processes, or kill the agent.
//
// The package makes no links and knows nothing of other nodes.
//
// Start reading at Config and Agent for the supervisor's side, at Main for the
// agent's.
package node

import (
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// processName begins the agent's argv[0], and is its name in ps and top (where
// 15 characters fit).
const processName = "ndklab-node"

// A Config says what a node is. Interfaces must exist in the agent's network
// namespace, under their names, by the time of Agent.Up.
type Config struct {
	Lab, Name  string // Name becomes the host name
	Seed       uint64 // of the adapter's random decisions
	Adapter    topology.Adapter
	Interfaces []Interface
	// Dilation is the factor by which the clock of the adapter and of workloads is slower than the machine's (clock.Dilated).
	Dilation int
	// LineRates has the rates of the lines at addresses, in bits per second, for an adapter with congestion control or PFC.
	LineRates map[netip.Addr]uint64
	// Buffered says that what the adapter sends waits in packet buffers of switches: with a congestion control, nothing but that bounds
	// what is in flight.
	Buffered bool
	PFC      *pfc.Config // which pauses the adapter obeys; nil: none
	Forwards bool        // it is a router, without an adapter
	PIDLimit bool        // its processes and threads are limited
	Routes   []topology.Route
	// Reroutes says that SetRoutes is going to be called when links go down and come up. Until then,
	// the kernel takes no route to where its first link has no carrier.
	Reroutes bool `json:",omitempty"`
	// QPError is told of queue pairs in error in the node, at most 64 a second one by
	// one, and must not wait for the node; nil tells nobody.
	QPError func(provider.QPError) `json:"-"`

	// Machine has the resources that the node shares with the supervisor's others; nil: nothing.
	Machine *Machine `json:"-"`
	// Idle has the node have no process before it needs one: it gets it by the first request about more than its network
	// and its counters, by the first signal, or by the first packet for its adapter. Unless it forwards, its neighbours are entered
	// then, and not before.
	Idle bool `json:"-"`
	// Began is told the process id of the agent, in the caller's PID namespace, when there is one. It is not to wait for the node;
	// nil tells nobody.
	Began func(pid int) `json:"-"`

	// Variables and files that commands in the node find. They are sent to the agent
	// when the first command is run.
	Env   map[string]string `json:"-"` // variables, which win over those of Command.Env
	Files []topology.File   `json:"-"`
	Hosts string            `json:"-"` // a file of the supervisor's that stands for /etc/hosts; "": the host's does
	// Libraries is the folder of the libraries by which programs for RDMA have the adapter
	// (package verbs); "": they do not find it.
	Libraries string `json:"-"`
}

// An Interface is the configuration of one of the node's interfaces.
type Interface struct {
	Name       string
	MTU        int // bytes of IP packet
	Addresses  []netip.Prefix
	Neighbours []Neighbour // on its segment, of which it may be one itself; they may be shared, and stay as they are
	// Wire has the kernel send packets as a wire carries them, never many as one: the
	// topology wants that, or the other end of the link is outside the lab.
	Wire bool
}

// A Neighbour has the addresses of an interface. It is entered for good, so
// that labs of thousands of nodes neither flood their links with ARP and
// neighbour solicitations nor overflow the kernel's tables.
type Neighbour struct {
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// A Command describes a command for Agent.Exec to run in a node.
type Command struct {
	// ID names the command to Agent.Signal while it runs; Exec finds one when it
	// is empty. No two running commands of a node may share it.
	ID string
	// Args are the command and its arguments. A command without a slash is looked
	// up in the PATH of Env.
	Args []string
	// Env is the command's whole environment but for the node's own variables; nil is
	// the supervisor's.
	Env []string
	// Dir is the working directory; "" is the agent's, which is the supervisor's.
	Dir string
	// Terminal has the command lead a session, whose controlling terminal is its
	// standard input.
	Terminal bool
	// Started, if not nil, is called once the command runs, or when it never will.
	Started func() `json:"-"`
}

// Counters are a node's counts since its adapter was opened.
type Counters struct {
	NDK       map[string]uint64 // NDIS_NDK_PERFORMANCE_COUNTERS, under its member names
	Transport map[string]uint64 // of the RoCE transport: packets, retransmissions and the like
}

// IsAgent reports whether this process was started as an agent, and has to call
// Main.
func IsAgent() bool { return strings.HasPrefix(os.Args[0], processName+" ") }

// argv0 is the agent's, as ps shows it.
func argv0(lab, name string) string { return processName + " " + lab + "/" + name }
