// Package linkem is our link emulator: a process that carries the packets of
// impaired links between the two veth ends that meet in its network namespace,
// and does to each wire packet what the link's settings say (package impair).
//
// It reads each end with a packet socket, keeps what it read in a line of
// departures, and sends at the other end when the time has come. A super-packet
// is decided on packet by packet and passed on in as few parts as that leaves.
// It measures what it did: every delay counts from the kernel's receive
// timestamp to the moment after the send, less the time in the queue before the
// direction's rate.
//
// The supervisor holds an Engine; the process at the other end of its channel
// runs Main. One thread there, pinned and if possible of real-time priority,
// owns every line and does all the work (loop.go).
//
// A link whose middles the kernel joins while it is plain is taken over, and
// given back, without losing packets:
//
//  1. Attach, with Joined set: the sockets are bound, and what the kernel does not
//     forward is, which is nothing yet.
//  2. The supervisor stops the kernel's forwarding, in each direction by one
//     atomic change (deleting the redirecting filter, or adding one that drops).
//  3. Start: everything is forwarded. Until then, frames that the kernel
//     forwarded are recognised and skipped.
//
// And back:
//
//  1. Release: the link is unimpaired from now on; it returns when all packets
//     on their way have left.
//  2. The supervisor starts the kernel's forwarding again.
//  3. Detach: what the kernel did not forward is, and the sockets are closed.
//
// Packets keep their order, but for those within some 100 us of the moment the
// kernel takes over again; and one may be doubled if a processor stalls just
// then. Transports recover from both.
//
// Without Joined, Start may follow Attach at once, and Detach needs no Release:
// packets on their way are then dropped and counted.
//
// The process also holds the relays of the links that end outside the lab
// (package relay, relays.go); they and the links know nothing of each other.
//
// Frames of any protocol cross, but for VLAN tags: the kernel keeps them beside
// the frame, so that the ends must have VLAN offload off to use them. Of SCTP no super-packets cross, which a virtio header
// cannot describe.
//
// It carries switches and routers with a packet buffer, too, with the links at them, which the kernel never has (fabric.go).
//
// A link whose other end is at another host is carried by the engines of both, joined by a trunk (trunk.go, package trunk).
//
// Start reading at Engine, then at loop: ingress receives and decides, egress sends.
package linkem

import (
	"context"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/relay"
	"github.com/ndklab/ndklab/topology"
)

// The requests of the channel. Parameters that are strings are the name of a link, or of
// the interface of a relay; those that are numbers are the lab's seed.
var (
	methodAttach   = control.NewProcedure[Link]("attach")
	methodStart    = control.NewProcedure[string]("start")
	methodSet      = control.NewProcedure[setParams]("set")
	methodIdle     = control.NewProcedure[string]("idle")
	methodRelease  = control.NewProcedure[string]("release")
	methodDetach   = control.NewMethod[string, [2]linkstats.Statistics]("detach")
	methodMeasure  = control.NewMethod[measureParams, map[string][2]linkstats.Statistics]("measure") // by link
	methodObserve  = control.NewMethod[observeParams, Observed]("observe")
	methodBegin    = control.NewProcedure[control.None]("begin")
	methodRecord   = control.NewProcedure[uint64]("record").WithFiles(1, 1)
	methodRecorded = control.NewMethod[control.None, Recorded]("recorded")
	methodReplay   = control.NewMethod[control.None, Log]("replay").WithFiles(1, 1)
	methodLosses   = control.NewProcedure[uint64]("losses").WithFiles(1, 1)
	methodTap      = control.NewProcedure[tapParams]("tap").WithFiles(2, 2) // lasts until the caller gives up
	methodRelay    = control.NewProcedure[string]("relay").WithFiles(2, 2)  // a packet socket and a directory
	methodFabric   = control.NewProcedure[Fabric]("fabric")
	methodCarry    = control.NewProcedure[carryParams]("carry")
	methodRoutes   = control.NewProcedure[routesParams]("routes")
	methodStorm    = control.NewProcedure[stormParams]("storm")
	methodDeadlock = control.NewMethod[control.None, bufferstats.Deadlock]("deadlock")
	methodBuffers  = control.NewMethod[control.None, BufferFigures]("buffers")
	methodTrunk    = control.NewProcedure[string]("trunk").WithFiles(2, 2) // by the name of the peer: a stream and datagrams
	methodTrunkEnd = control.NewProcedure[string]("trunk-end")             // lasts until the trunk to a peer is no more, and fails with the reason
	methodTrunks   = control.NewMethod[control.None, map[string]TrunkCounts]("trunks")
	methodRelays   = control.NewMethod[control.None, map[string]relay.Counts]("relays")
)

// A Link describes a link to the engine.
type Link struct {
	Name string // unique; seeds its randomness
	Seed uint64 // the lab's
	// Interfaces are the middles in the engine's network namespace: what comes
	// in at [0] was sent by the link's first endpoint. Both have the link's MTU.
	// One is "" where the end is a switch with a packet buffer, or at another host: no frames of the kernel's come in there.
	Interfaces [2]string
	// Directions are the settings of the directions: [0] from Interfaces[0] to [1], [1] back.
	Directions [2]topology.Impairment
	Joined     bool // the kernel forwards between the interfaces at present
	// Trunk is the name of the trunk over which the host with the other end is reached (Engine.Trunk); "": there is none. Number
	// is the link's in the topology, by which that host knows it.
	Trunk  string
	Number uint32
	// Started has the engine begin to forward at once, without a request to Start. It
	// is for links that are not Joined.
	Started bool
}

// An Engine is the supervisor's end of a link engine. Its methods may be called
// from any goroutine; requests for one link are made one after the other. A
// request that makes no sense fails with a *control.Error of code control.Usage. Every
// request fails with control.ErrClosed once the process has ended.
type Engine struct {
	conn control.Caller
}

// NewEngine makes an Engine of the channel to a process that runs Main. The
// channel stays the caller's to close, which ends the process.
func NewEngine(conn control.Caller) *Engine { return &Engine{conn} }

// Done is closed when the process has ended.
func (e *Engine) Done() <-chan struct{} { return e.conn.Done() }

// Attach opens a link's interfaces. A link that the engine had before under the
// same name goes on where it was: its random sequence and its measurements.
func (e *Engine) Attach(ctx context.Context, link Link) error {
	return methodAttach.Call(ctx, e.conn, link)
}

// Start begins to forward.
func (e *Engine) Start(ctx context.Context, link string) error {
	return methodStart.Call(ctx, e.conn, link)
}

// Set changes the settings of a direction, 0 or 1, for the packets to come;
// those on their way are not affected.
func (e *Engine) Set(ctx context.Context, link string, direction int, settings topology.Impairment) error {
	return methodSet.Call(ctx, e.conn, setParams{link, direction, settings})
}

// Idle waits until no packet is on its way on a link, which without impairments is
// soon the case.
func (e *Engine) Idle(ctx context.Context, link string) error {
	return methodIdle.Call(ctx, e.conn, link)
}

// Release removes all impairments from a link and waits until every packet on
// its way has left. If ctx ends first the link stays the engine's: Set changes it, or
// Release is called again.
func (e *Engine) Release(ctx context.Context, link string) error {
	return methodRelease.Call(ctx, e.conn, link)
}

// Detach stops forwarding, closes the link's interfaces and returns the statistics of its
// two directions.
func (e *Engine) Detach(ctx context.Context, link string) ([2]linkstats.Statistics, error) {
	return methodDetach.Call(ctx, e.conn, link)
}

// Measure returns the statistics of every link that the engine has or has had, by name. Late
// packets are counted by the tolerances of links by name, which may be fewer.
func (e *Engine) Measure(ctx context.Context, tolerances map[string]topology.Tolerance) (map[string][2]linkstats.Statistics, error) {
	return methodMeasure.Call(ctx, e.conn, measureParams{Tolerances: tolerances})
}

// MeasureSince returns the statistics since Begin.
func (e *Engine) MeasureSince(ctx context.Context, tolerances map[string]topology.Tolerance) (map[string][2]linkstats.Statistics, error) {
	return methodMeasure.Call(ctx, e.conn, measureParams{Since: true, Tolerances: tolerances})
}

// Observe returns the counters of links that the engine has or has had, and the delay by bounds in nanoseconds
// (linkstats.Collector.Observe): of those links where anything has changed since the answer of a number, or of all since 0.
func (e *Engine) Observe(ctx context.Context, bounds []int64, since uint64) (Observed, error) {
	return methodObserve.Call(ctx, e.conn, observeParams{bounds, since})
}

// An Observed is the answer to Observe.
type Observed struct {
	Number uint64                             // greater than those of answers before, whatever bounds they were by
	Links  map[string][2]linkstats.Statistics `json:",omitempty"` // by name
}

// Begin has every link begin anew: the next packet in a direction is the first, and
// MeasureSince counts from there (impair.Direction.Begin, linkstats.Collector.Begin).
func (e *Engine) Begin(ctx context.Context) error { return methodBegin.Call(ctx, e.conn, nil) }

// Record has every decision from now on logged to file, in the format of package
// impair. seed is the lab's. A goroutine writes what the links' thread leaves in a
// buffer of some 12 MiB; decisions for which that has no room, or which cannot be
// written, are missing, and counted there and by Recorded. It may be called once.
func (e *Engine) Record(ctx context.Context, seed uint64, file *os.File) error {
	return methodRecord.Call(ctx, e.conn, seed, file)
}

// Recorded counts what a recording has.
type Recorded struct {
	Records uint64 `json:"records"`         // written
	Missing uint64 `json:"missing"`         // not written in time, or at all
	Error   string `json:"error,omitempty"` // why nothing more is written, such as a full disk; the file may end amid a line
}

// Recorded writes what was decided until now to the file, and returns how recording
// went. An engine that ends writes the rest by itself, if it can within 2 s.
func (e *Engine) Recorded(ctx context.Context) (Recorded, error) {
	return methodRecorded.Call(ctx, e.conn, nil)
}

// Replay has the links meet the decisions of a log again, which is read from
// where file is at to its end, and may have 1 GiB; see impair.Direction.Replay.
// It may be called once, before links are attached. linkstats.Statistics has what became of
// a replay.
func (e *Engine) Replay(ctx context.Context, file *os.File) (Log, error) {
	return methodReplay.Call(ctx, e.conn, nil, file)
}

// A Log summarises a log of decisions.
type Log struct {
	Links    []string `json:"links"`     // names of those it has decisions on
	Missing  uint64   `json:"missing"`   // decisions that could not be written
	CutShort bool     `json:"cut_short"` // it ends amid a line, which was left out
}

// Losses writes to a file the last decisions on packets that were lost, doubled or changed,
// on all links. It is a log of decisions
// (package impair) in which those on others are missing. seed is the lab's.
func (e *Engine) Losses(ctx context.Context, seed uint64, file *os.File) error {
	return methodLosses.Call(ctx, e.conn, seed, file)
}

// Tap writes to file, a pipe or a stream socket, what becomes of each packet of a
// link, as package tap has it: of every packet no more than snaplen bytes, or all
// if that is 0. It returns when ctx ends, with that error, when whoever reads the
// file is gone, which shows at the next packet, or when writing fails. Packets
// for which the reader is too slow are left out of the stream and counted there;
// they wait in 8 MiB of memory. file stays the caller's, and becomes
// non-blocking. A byte is written to on, a pipe, once the beginning of the stream has
// been: it tells of each packet from then on.
func (e *Engine) Tap(ctx context.Context, link string, snaplen int, file, on *os.File) error {
	return methodTap.Call(ctx, e.conn, tapParams{link, snaplen}, file, on)
}

// Parameters of the requests.
type (
	measureParams struct {
		Since      bool                          `json:"since"`
		Tolerances map[string]topology.Tolerance `json:"tolerances"` // by link
	}
	observeParams struct {
		Bounds []int64
		Since  uint64
	}
	carryParams struct {
		Link   string
		Frames bool
	}
	routesParams struct {
		Node   string
		Routes []topology.Route
	}
	stormParams struct {
		Node     string
		Priority int
		For      time.Duration
	}
	setParams struct {
		Link      string
		Direction int
		Settings  topology.Impairment
	}
	tapParams struct {
		Link    string
		Snaplen int
	}
)

// SetFabric describes the switches with a packet buffer, once, before links at them are attached.
func (e *Engine) SetFabric(ctx context.Context, f Fabric) error {
	return methodFabric.Call(ctx, e.conn, f)
}

// Carry has a link at a switch with a packet buffer carry frames, or lose them, as at first.
func (e *Engine) Carry(ctx context.Context, link string, frames bool) error {
	return methodCarry.Call(ctx, e.conn, carryParams{link, frames})
}

// SetRoutes has a router with a packet buffer forward by other routes than its topology's.
func (e *Engine) SetRoutes(ctx context.Context, node string, routes []topology.Route) error {
	return methodRoutes.Call(ctx, e.conn, routesParams{node, routes})
}

// Storm has the adapter of a host beside a switch with a packet buffer ask for pauses of a priority for some time, whatever it
// receives.
func (e *Engine) Storm(ctx context.Context, node string, priority int, length time.Duration) error {
	return methodStorm.Call(ctx, e.conn, stormParams{node, priority, length})
}

// Deadlock waits for the next deadlock of packet buffers.
func (e *Engine) Deadlock(ctx context.Context) (bufferstats.Deadlock, error) {
	return methodDeadlock.Call(ctx, e.conn, nil)
}

// NoStorm is the text of Storm's error, of a node that can have none.
const NoStorm = dataplane.NoStorm

// Buffers returns the figures of packet buffers since Begin.
func (e *Engine) Buffers(ctx context.Context) (BufferFigures, error) {
	return methodBuffers.Call(ctx, e.conn, nil)
}

// Relay opens a relay of an interface, of which there is a packet socket (relay.OpenInterface), with its sockets
// in a directory; see package relay. It lasts as long as the process. The files stay the caller's.
func (e *Engine) Relay(ctx context.Context, iface string, packets, directory *os.File) error {
	return methodRelay.Call(ctx, e.conn, iface, packets, directory)
}

// Relays returns what every relay has counted, by its interface.
func (e *Engine) Relays(ctx context.Context) (map[string]relay.Counts, error) {
	return methodRelays.Call(ctx, e.conn, nil)
}

// Trunk joins the engine with that of another host, by a connected stream socket and a connected datagram socket, which
// stay the caller's to close. It returns when the difference of the two clocks is known. Links between
// the hosts may be attached then.
func (e *Engine) Trunk(ctx context.Context, name string, stream, datagrams *os.File) error {
	return methodTrunk.Call(ctx, e.conn, name, stream, datagrams)
}

// AwaitTrunkEnd waits until the trunk to a host is no more, and returns why.
func (e *Engine) AwaitTrunkEnd(ctx context.Context, name string) error {
	return methodTrunkEnd.Call(ctx, e.conn, name)
}

// Trunks returns how trunks fare, by the names of the hosts.
func (e *Engine) Trunks(ctx context.Context) (map[string]TrunkCounts, error) {
	return methodTrunks.Call(ctx, e.conn, nil)
}
