package impair

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Packet holds what the model needs to know of a packet on the wire.
type Packet struct {
	Frame   int       // length in bytes, as WireBytes wants it
	Payload int       // bytes of Frame before the payload of UDP or TCP, before that of IP if it is neither, or 14 if it is not IP
	ECT     bool      // whether it says that it may be marked (ECN-capable transport)
	RoCE    *Identity // nil if it is not RoCEv2; needed only of a Direction that Identifies
}

// A Verdict is the model's decision on one packet. Of one that does not pass,
// only Fate, Cause and Fault mean something.
type Verdict struct {
	Fate      Fate
	Cause     Cause         // of a fate other than Passes and QueueFull
	Mark      bool          // it is to bear Congestion Experienced
	Twice     bool          // a copy of it, flipped bits and all, leaves right behind it
	Fault     uint16        // place in the settings, from 1, of the fault that was done to it; 0: none
	Overtakes uint16        // how many packets on their way it leaves before
	Queued    time.Duration // how long it took to get past the sender's queue, its own transmission included
	Postponed time.Duration // what a fault added to Departs
	Departs   time.Duration // when it leaves the link at the far end: maybe earlier than packets before it
	Flip      Flip          // bits that change on the way
}

// A Fate says what becomes of a packet.
type Fate uint8

// The fates.
const (
	Passes    Fate = iota // it arrives
	Lost                  // by a loss or a fault that was asked for
	QueueFull             // no room before the direction's rate
	Down                  // the direction is cut
)

var fates = []string{"passes", "lost", "queue full", "down"}

// String returns the fate in words.
func (f Fate) String() string { return fates[f] }

func fateOf(s string) (Fate, bool) {
	i := slices.Index(fates, s)
	return Fate(max(i, 0)), i >= 0
}

// A Cause is the setting by which a packet is Lost or Down.
type Cause uint8

// The causes.
const (
	None   Cause = iota
	Chance       // Loss.Rate, for itself
	Burst        // Loss.Rate, in a burst
	Every        // Loss.Every
	Place        // Loss.Packets
	Fault        // a fault that drops; Verdict.Fault says which
	Cut          // Cut
	Flap         // Flap
)

var causes = []string{"", "loss", "burst", "every", "place", "fault", "cut", "flap"}

// String returns the cause in words; "" for None.
func (c Cause) String() string { return causes[c] }

func causeOf(s string) (Cause, bool) {
	i := slices.Index(causes, s)
	return Cause(max(i, 0)), i >= 0
}

// MaxFlips bounds the number of bits of a packet that can change.
const MaxFlips = topology.MaxCorruptBits

// A Flip is a set of bits of a packet; the zero Flip is none. Bit 0 is the most
// significant of the Ethernet header's first byte.
type Flip struct {
	bits [MaxFlips]uint32 // 1 + the bit; 0 after the last
}

// Any reports whether there is a bit to flip.
func (f *Flip) Any() bool { return f.bits[0] != 0 }

// Apply flips the bits in a packet that begins with its Ethernet header.
func (f *Flip) Apply(packet []byte) {
	for _, b := range f.bits {
		if b == 0 {
			return
		}
		if i := int(b-1) / 8; i < len(packet) {
			packet[i] ^= 0x80 >> ((b - 1) % 8)
		}
	}
}
