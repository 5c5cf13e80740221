package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Carrier moves an adapter's packets: UDP sockets (package udp) or a
// simulated network (package sim).
type Carrier interface {
	// Listen starts delivery to r. Called once, before the first Send.
	Listen(r Receiver)
	// Send sends packets of one flow, in order, and computes their ICRCs. It
	// neither keeps the packets nor calls the Receiver. The caller serialises
	// calls for one flow; different flows may be sent at once. Packets that cannot
	// be sent are lost, as on a wire, and counted; the error says that the carrier
	// is closed.
	Send(flow roce.Flow, packets []roce.Packet) error
	// SourcePort is the UDP port that a flow with this hash is to use.
	SourcePort(local netip.Addr, hash uint32) uint16
	// Addresses are the local addresses.
	Addresses() []netip.Addr
	// MTU is the largest IP packet at a local address, in bytes.
	MTU(local netip.Addr) int
	// Reach reports whether packets from a local address have a route to a
	// remote one, of the same family: StatusNetworkUnreachable if there is none,
	// StatusHostUnreachable if the one there is refuses. StatusSuccess promises
	// nothing about whoever is on the way. It does not block.
	Reach(local, remote netip.Addr) Status
	// ReceiveBuffer returns the bytes of packets that may wait to be received at each address.
	ReceiveBuffer() int
	// Counters counts what the carrier did, by name.
	Counters() map[string]uint64
	// Close stops delivery; no call to the Receiver is under way when it
	// returns.
	Close() error
}

// A Poller is a Carrier that can also be driven by whoever has nothing else to do:
// a consumer that looks for completions again and again receives on its own thread,
// and nobody has to be woken.
type Poller interface {
	Carrier
	// Poll gives r what has arrived, on the calling goroutine, and does not wait; it
	// reports whether that was anything. From then on the carrier's own goroutines leave what arrives to calls of Poll, until Resume, or
	// until there has been none for some milliseconds. It may be called from any goroutine;
	// if another one is receiving just now, it does nothing.
	Poll(r Receiver) bool
	// PollBeside is Poll, but the carrier's own goroutines go on receiving, until the caller has shown that it polls all
	// the time, and is alone: for consumers that may turn to something else without Resume.
	PollBeside(r Receiver) (arrived, alone bool)
	// Resume has the carrier's goroutines receive again.
	Resume()
	// CatchUp gives r what has arrived by now, on the calling goroutine; whoever receives just now has handed over all of
	// theirs when it returns.
	CatchUp(r Receiver)
}

// A Receiver takes what a carrier delivers.
type Receiver interface {
	// Receive is called with packets that arrived together, from the carrier's
	// own goroutines: those for one local address in order, those for several
	// possibly at once. The packets and their payloads are lent until it
	// returns. It must not call Close.
	Receive(packets []roce.Received)
}

// A Deferrer is a Receiver that puts off in Receive what need not be done before the
// next packets are looked at, or by another goroutine. A Poller that was given one to Listen
// to calls Delivered after each Receive of its own goroutines, without anything held.
type Deferrer interface {
	Receiver
	// Delivered does what was put off. It runs consumers' callbacks, which may take long:
	// another goroutine should go on receiving then. It reports whether something is still
	// put off, for some microseconds: then it is to be called again, also if nothing arrives.
	Delivered() bool
}
