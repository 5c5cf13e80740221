// Package congestion is the congestion control of an adapter: how fast a queue pair may send
// (the reaction point), and when a receiver says that the network marked its packets (the
// notification point), as docs/spec/congestion.md and roce.md 14 define them.
//
// It is pure: what was sent, what was heard and the present time go in; a rate, a window and the
// next deadline come out. It makes no packets and knows no queue pair: package rc asks it before
// each packet, package transport sends what a Notifier calls for.
//
// Start reading at Control; dcqcn.go has the parameters of the algorithm of RoCE adapters and
// reaction.go its states, bdp.go and dctcp.go those that bound what is in flight, pacer.go spaces
// packets by a rate, and notifier.go decides about CNPs.
package congestion

import (
	"fmt"
	"net/netip"
	"time"
)

// A Control decides how fast one queue pair sends. Times are those of one clock and never go
// back. Calls must not overlap.
type Control interface {
	// Sent takes note of a packet that was sent, with so many bytes on the wire.
	Sent(now time.Duration, bytes int)
	// Notified takes note of a CNP, or of a response that arrived marked.
	Notified(now time.Duration)
	// Lost takes note that the peer has said that a packet is missing, or has said nothing for so long that
	// all that is in flight has to be taken for lost, and reports whether that slows the sender down.
	Lost(now time.Duration) bool
	// Acknowledged takes note of what the peer has acknowledged since the last call.
	Acknowledged(now time.Duration, a Ack)
	// Rate returns the rate at which packets may be sent, in bits per second on the wire; 0: any.
	Rate(now time.Duration) float64
	// Window returns how many bytes on the wire may be sent and not acknowledged; 0: any number.
	// One packet may, whatever it returns.
	Window() int64
	// Deadline returns when Rate changes next unless something else happens; false if never.
	Deadline() (time.Duration, bool)
}

// An Ack says what the peer has acknowledged. Bytes are those of full packets on the wire; a
// packet that is not full counts as less than one, but may count as more than it has.
type Ack struct {
	RTT      time.Duration // round trip of a full packet; 0: none was measured
	Bytes    int64         // acknowledged
	InFlight int64         // sent, and neither acknowledged nor given up for lost
}

// An Observable is a Control that has a target. Observe returns its rate and the rate that it recovers to, in bits per
// second on the wire, and changes nothing: what is sent does not depend on who looks.
type Observable interface {
	Observe(now time.Duration) (rate, target float64)
}

// An Algorithm names a Control.
type Algorithm uint8

// The algorithms.
const (
	// Window has no Control: package rc's own window bounds what is in flight.
	Window Algorithm = iota
	// None sends at the rate of the line, as an adapter without congestion control does.
	None
	// WithDCQCN is DCQCN (SIGCOMM'15), with the parameters of ConnectX adapters.
	WithDCQCN
	// WithDCTCP is the window of DCTCP (SIGCOMM'10, RFC 8257).
	WithDCTCP
	// WithBDP has no more in flight than the path holds, which is BDP-FC of IRN (SIGCOMM'18).
	WithBDP
)

var algorithmNames = [...]string{Window: "window", None: "none", WithDCQCN: "dcqcn", WithDCTCP: "dctcp", WithBDP: "bdp"}

// Algorithms returns the names of all algorithms, in their order.
func Algorithms() []string { return algorithmNames[:] }

// String returns the name as topologies write it.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("congestion: no algorithm %q", text)
}

// MarshalText implements encoding.TextMarshaler.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// A Config has the congestion control of an adapter. The zero value has none but the window.
type Config struct {
	Algorithm Algorithm
	DCQCN     DCQCN // of WithDCQCN
	DCTCP     DCTCP // of WithDCTCP
	BDP       BDP   // of WithBDP
	DSCP      uint8 // of packets with data, 0 to 63
	CNP       CNP
	// LineRates has the rates of the lines at local addresses, in bits per second; 0: unknown. An adapter begins with them.
	LineRates map[netip.Addr]uint64
	// Burst is the number of bytes on the wire that a queue pair which is late may catch up with
	// at once. 0: a packet leaves when it is due, and what is late stays late.
	Burst int
	// Unbounded says that nothing but the Control bounds what is in flight, since the network holds it: neither the path nor
	// the peer's receive buffer.
	Unbounded bool
	// WakeTime bounds the lateness of a queue pair that waits until a packet is due.
	WakeTime time.Duration
}

// Validate returns an error that names the first parameter that makes no sense, and its range.
func (c *Config) Validate() error {
	switch {
	case int(c.Algorithm) >= len(algorithmNames):
		return fmt.Errorf("congestion: %v is unknown, want one of %v", c.Algorithm, Algorithms())
	case c.DSCP > 63:
		return fmt.Errorf("congestion: dscp is %d, want 0 to 63", c.DSCP)
	case c.WakeTime < 0:
		return fmt.Errorf("congestion: wake time is %v, want 0 or more", c.WakeTime)
	case c.Burst < 0:
		return fmt.Errorf("congestion: burst is %d bytes, want 0 or more", c.Burst)
	}
	var err error
	switch c.Algorithm {
	case WithDCQCN:
		err = c.DCQCN.Validate()
	case WithDCTCP:
		err = c.DCTCP.Validate()
	case WithBDP:
		err = c.BDP.Validate()
	}
	if err != nil {
		return err
	}
	return c.CNP.Validate()
}

// HearsMarks reports whether packets with data are to be ECN-capable.
func (c *Config) HearsMarks() bool { return c.Algorithm == WithDCQCN || c.Algorithm == WithDCTCP }

// BoundsReads reports whether a queue pair bounds the responses to its READs itself, by how much
// it asks for: then marks on them are for it, and not for the responder.
func (c *Config) BoundsReads() bool { return c.Algorithm == WithDCTCP || c.Algorithm == WithBDP }

// New returns the Control of a queue pair on a line of so many bits per second, of which a full
// packet has so many bytes on the wire; nil where the window alone decides.
func (c *Config) New(lineRate float64, packet int) Control {
	switch c.Algorithm {
	case WithDCQCN:
		return NewDCQCN(&c.DCQCN, lineRate)
	case WithDCTCP:
		return NewDCTCP(&c.DCTCP, lineRate, packet)
	case WithBDP:
		return NewBDP(&c.BDP, lineRate, packet)
	case None:
		return unlimited{}
	}
	return nil
}

// unlimited is the Control of None.
type unlimited struct{}

func (unlimited) Sent(time.Duration, int)         {}
func (unlimited) Notified(time.Duration)          {}
func (unlimited) Lost(time.Duration) bool         { return false }
func (unlimited) Acknowledged(time.Duration, Ack) {}
func (unlimited) Rate(time.Duration) float64      { return 0 }
func (unlimited) Window() int64                   { return 0 }
func (unlimited) Deadline() (time.Duration, bool) { return 0, false }
