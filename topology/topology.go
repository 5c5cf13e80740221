// Package topology reads a lab's YAML file into a checked, expanded Topology.
//
// It resolves defaults, kinds and groups, gives every interface its addresses,
// checks every value and reports all errors at once, each with file, line and
// column. It does no I/O but reading the bytes it is given, and knows nothing of
// Linux, namespaces or adapters: those who build a lab take the Topology from
// here and need not look at YAML again.
//
// Start reading at Parse and at the types in this file. A table of keys (keyTable) reads
// each map of the file into the type that the package exports for it, and returns the
// places of the keys beside that (mapping). A key is a row of its table, and a field.
//
// The types whose names end in Map are for maps that say more than the exported type has:
// names and patterns of nodes and links, which only the whole lab turns into indices; what
// several maps say of one node or link, each impairment by itself; and values whose places
// are told of later. They embed the exported type where there is one.
package topology

import (
	"fmt"
	"net/netip"
	"time"
)

// A Topology is one lab, complete: nothing in it is left to a default. The
// order of its slices is the order of the file.
type Topology struct {
	Name    string
	Seed    uint64 // of every random decision; meaningful only if HasSeed
	HasSeed bool   // the file gave a seed
	// Dilation is the factor by which all of a lab is slower than the file says; 0: it is not (DilationFactor).
	Dilation  int               `json:",omitempty"`
	OnLoss    OnLoss            `json:",omitempty"` // "": EndOnLoss
	Labels    map[string]string `json:",omitempty"` // by which commands select labs
	Nodes     []Node
	Links     []Link
	Externals []Interface // the ends of links that are outside the lab
	// Convergence is the time from when the last link went down or came up to when routers and
	// hosts get routes over the links that are up then. 0: they keep Node.Routes.
	Convergence time.Duration `json:",omitempty"`
	Workloads   []Workload
	Timeline    []Event
	Chaos       []Chaos
	Checks      []Check
	Baseline    *Baseline // nil: none
	Captures    []Capture
	Series      *Series `json:",omitempty"` // nil: the report has no queues, pauses and rates over time
	// Needs are the things in the file that take a machine, beside workloads, events and checks that
	// run programs. A simulation has none.
	Needs []Need
	// NeedsSimulation are the things in the file that a lab does not have so far.
	NeedsSimulation []Need `json:",omitempty"`
}

// A Kind says what a node is.
type Kind string

// The kinds.
const (
	Host   Kind = "host"   // an emulated host: it has an adapter, runs workloads and never forwards
	Switch Kind = "switch" // joins its links into one segment; it has no addresses
	Router Kind = "router" // forwards between its links; it has no adapter
)

// A Node is one emulated machine. Limits and an adapter are a host's alone, and a
// switch has no setup.
type Node struct {
	Name         string
	Kind         Kind
	SpanningTree bool        `json:",omitempty"` // of a switch: links may form loops, and the tree decides which of them carry packets
	CPU          float64     `json:",omitempty"` // cores; 0 is no limit
	Memory       uint64      `json:",omitempty"` // bytes; 0 is no limit
	PIDs         uint64      `json:",omitempty"` // processes and threads at once; 0 is no limit
	Restart      bool        `json:",omitempty"` // not of a switch: when its agent has died it is started again
	NoVerbs      bool        `json:",omitempty"` // programs for RDMA are not to find a host's adapter
	Adapter      Adapter     `json:",omitzero"`
	Buffer       *Buffer     `json:",omitempty"` // of a switch or router; nil: each port has a queue of its own
	Priorities   *Priorities `json:",omitempty"` // of one with a Buffer; nil: as the preset has them
	Watchdog     *Watchdog   `json:",omitempty"` // likewise; nil: none
	Setup        Setup       `json:",omitzero"`  // of a host or router
	// Of a lab over several hosts: which of them has the node, by its name or its number from 1 ("": any), and the group
	// whose nodes all have the same ("": none), with where the file says so. A lab on one machine ignores them.
	Host       string      `json:",omitempty"`
	HostAt     Place       `json:",omitzero"`
	Together   string      `json:",omitempty"`
	TogetherAt Place       `json:",omitzero"`
	Interfaces []Interface // one per link that ends here
	// Routes lead to all subnets that the node reaches through routers, beside
	// those that its interfaces are in. A switch has none.
	Routes []Route `json:",omitempty"`
}

// A Route is the way to one subnet, or to several that lie together.
type Route struct {
	To netip.Prefix
	// Via are the next hops, all equally near, each in a subnet of one of the
	// node's interfaces. Packets are shared out by flow.
	Via []netip.Addr
}

// An Interface is the end of a link, in a node or outside the lab.
type Interface struct {
	Name string
	Link int // index in Topology.Links
	End  int // 0 or 1: which of the link's Endpoints this is
	// Addresses are an IPv4 and an IPv6 one unless the file says otherwise, and
	// none in a switch. Machines outside the lab configure themselves: there they
	// are what the lab expects.
	Addresses []netip.Prefix
	Given     bool `json:",omitempty"` // the file gives the addresses
}

// Adapter holds what the file sets of a node's adapter, under the names that NDK
// has for it; nil leaves the provider's default. Sizes and lengths are in bytes,
// depths in requests or entries.
//
// The file has set each field by itself: who fills in the defaults makes those
// give way to what is set, MaxReadRequestSge to MaxInitiatorRequestSge and the
// other way round. MaxSrqDepth and MaxSrqCount are both 0, or neither is.
type Adapter struct {
	// Limits of each consumer and object (NDK_ADAPTER_INFO).
	MaxRegistrationSize    *uint64 `json:",omitempty"`
	MaxWindowSize          *uint64 `json:",omitempty"` // 0: no memory windows
	FRMRPageCount          *uint32 `json:",omitempty"` // pages
	MaxInitiatorRequestSge *uint32 `json:",omitempty"`
	MaxReceiveRequestSge   *uint32 `json:",omitempty"`
	MaxReadRequestSge      *uint32 `json:",omitempty"`
	MaxTransferLength      *uint32 `json:",omitempty"`
	MaxInlineDataSize      *uint32 `json:",omitempty"`
	MaxInboundReadLimit    *uint32 `json:",omitempty"` // READs in progress on one QP
	MaxOutboundReadLimit   *uint32 `json:",omitempty"`
	MaxReceiveQueueDepth   *uint32 `json:",omitempty"`
	MaxInitiatorQueueDepth *uint32 `json:",omitempty"`
	MaxSrqDepth            *uint32 `json:",omitempty"` // 0: no SRQs
	MaxCqDepth             *uint32 `json:",omitempty"`
	LargeRequestThreshold  *uint32 `json:",omitempty"` // bytes
	MaxCallerData          *uint32 `json:",omitempty"` // bytes
	MaxCalleeData          *uint32 `json:",omitempty"` // bytes
	VendorID               *uint32 `json:",omitempty"` // an OUI, 24 bits
	DeviceID               *uint32 `json:",omitempty"`

	// Abilities of the adapter (ndkpi.md 2.7).
	InOrderDMASupported              *bool `json:",omitempty"`
	RDMAReadSinkNotRequired          *bool `json:",omitempty"`
	CQInterruptModerationSupported   *bool `json:",omitempty"`
	MultiEngineSupported             *bool `json:",omitempty"`
	RDMAReadLocalInvalidateSupported *bool `json:",omitempty"`
	CQResizeSupported                *bool `json:",omitempty"`
	LoopbackConnectionsSupported     *bool `json:",omitempty"`

	// Limits of all consumers in the node together (NDIS_NDK_CAPABILITIES). The
	// last two are MaxInboundReadLimit and MaxOutboundReadLimit there; 0: no such
	// limit.
	MaxQpCount                 *uint32 `json:",omitempty"`
	MaxCqCount                 *uint32 `json:",omitempty"`
	MaxMrCount                 *uint32 `json:",omitempty"`
	MaxPdCount                 *uint32 `json:",omitempty"`
	MaxMwCount                 *uint32 `json:",omitempty"`
	MaxSrqCount                *uint32 `json:",omitempty"` // 0: no SRQs
	SystemMaxInboundReadLimit  *uint32 `json:",omitempty"`
	SystemMaxOutboundReadLimit *uint32 `json:",omitempty"`

	// Configuration (ndkpi.md 2.11).
	NetworkDirect *bool   `json:",omitempty"` // false: the adapter starts disabled
	RoCEFrameSize *uint32 `json:",omitempty"` // bytes of payload in a packet; nil: the most that the link's MTU allows
	ReceiveBuffer *uint32 `json:",omitempty"` // bytes of packets that may wait at each address
	GoBackN       *bool   `json:",omitempty"` // a loss has everything behind it sent again, also by a peer of our own
	ReorderBuffer *uint32 `json:",omitempty"` // bytes of packets kept that arrive before one that is missing, of all queue pairs together
	Pend          *bool   `json:",omitempty"` // creates and requests complete by callback, even where they could at once

	// Congestion control. DCQCN, DCTCP and BDP are nil but with the congestion control of that name, and CNP but with the first two.
	Congestion *Congestion `json:",omitempty"` // nil: CongestionWindow
	DCQCN      *DCQCN      `json:",omitempty"` // nil: PresetConnectX
	DCTCP      *DCTCP      `json:",omitempty"` // nil: the defaults
	BDP        *BDP        `json:",omitempty"` // nil: the default
	DSCP       *uint32     `json:",omitempty"` // of packets of reliable connections; nil: 26 with CongestionDCQCN and CongestionDCTCP, else 0
	CNP        *CNP        `json:",omitempty"` // nil: that of the preset, or of DCTCP
	PFC        *[]uint32   `json:",omitempty"` // priorities that it pauses, and for which it asks its switch to pause; nil: none

	ReceiveRate *uint64        `json:",omitempty"` // bits per second that it takes of what arrives; nil: at once
	Turnaround  *time.Duration `json:",omitempty"` // in a simulation, from a packet's arrival until it has it, and half of that more at random; nil: 8 to 12 us
}

// An Endpoint is one end of a link.
type Endpoint struct {
	Node      string // or external
	Interface string
}

// external stands in an endpoint where others name their node: this end of the
// link is an interface that a program outside the lab, a machine of its own,
// attaches to.
const external = "external"

// External reports whether the endpoint is outside the lab.
func (e Endpoint) External() bool { return e.Node == external }

// String is the endpoint as files and the prompt write it: node:interface.
func (e Endpoint) String() string { return e.Node + ":" + e.Interface }

// A Link joins two interfaces, of which at least one is a node's.
type Link struct {
	Endpoints [2]Endpoint
	// Number tells the link from the lab's others: MAC addresses, the names of
	// interfaces between its ends and, where the file gives none, IP addresses come from
	// it. It is the link's place in the file that the lab was made of, and that stays
	// while the lab is changed (Options.Running): it is no index in Topology.Links.
	Number int
	MTU    int // of the interfaces, bytes of IP packet
	// Directions says how packets fare: [0] those sent by Endpoints[0], [1]
	// those sent by Endpoints[1].
	Directions   [2]Impairment
	Down         bool   `json:",omitempty"` // it starts without carrier, in both directions
	Engine       Engine // what does the impairments
	EngineAt     Place  `json:",omitzero"` // where the file asks for it; zero if it does not
	Offload      bool   // the ends may hand over super-packets; else each wire packet leaves by itself
	Tolerance    Tolerance
	AllowOverrun bool `json:",omitempty"` // an overrun is reported, but does not fail the run
}

// A Place says where a topology file has something. Line and Column count from 1;
// columns are characters.
type Place struct {
	File         string
	Line, Column int
}

// String is the place as compilers write it, file:line:column.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// An Engine applies the impairments of a link.
type Engine string

// The engines.
const (
	Linkem Engine = "linkem" // ours, in userspace; does everything, and measures it
	Netem  Engine = "netem"  // the kernel's, where there is one; does some of it
)

// Tolerance says how far a direction of a link may be from what was asked of it because
// the machine did not keep up. A deviation beyond it is an overrun.
type Tolerance struct {
	DelayP10 time.Duration // later than which nine of ten packets may leave
	Delay    time.Duration // later than which half of the packets may leave
	DelayP99 time.Duration // later than which one in a hundred packets may leave
	Rate     float64       // fraction by which the rate of a direction that has one may fall short while packets wait
	Loss     float64       // fraction of packets that may be lost unasked
}

// DefaultTolerance is the tolerance of links whose file has none. A machine that
// is not saturated stays within 30 us at the median and 150 us at the 99th
// percentile, and loses nothing. But labs also run where others do, and a
// machine may pause everything for some ten milliseconds. So the percentile has
// room for a few turns of other processes at the processors, and the loss for a
// socket buffer that has overflowed once. The median hiccups do not move: only an
// engine that lacks processor time most of the time is a millisecond late with
// half of its packets. Nor does the tenth percentile move for a machine that is
// busy: only an engine that is late by itself delays nine of ten packets.
var DefaultTolerance = Tolerance{DelayP10: 200 * time.Microsecond, Delay: time.Millisecond, DelayP99: 20 * time.Millisecond, Rate: 0.1, Loss: 0.001}

// A Capture is packets recorded to a file for as long as the lab is up.
type Capture struct {
	Interfaces []Endpoint
	File       string // a path; of a ring, of which a number becomes part
	Filter     string // in the language of package filter; "": all packets
	Snaplen    int    // bytes of each packet; 0: all
	RingSize   uint64 // bytes from which a file is full and another begun; 0: one file
	RingFiles  int    // of a ring: how many files stay
}
