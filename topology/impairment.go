package topology

import (
	"slices"
	"time"
)

// An Impairment says what happens to packets in one direction of a link. The zero
// Impairment changes nothing. Slices in it are never changed in place.
//
// A packet is a wire packet; sizes of queues and bursts are wire bytes, which count
// Ethernet framing (impair.WireBytes).
type Impairment struct {
	Delay     time.Duration `json:"delay"` // added one way
	Jitter    Jitter        `json:"jitter,omitzero"`
	Loss      Loss          `json:"loss,omitzero"`
	Duplicate float64       `json:"duplicate,omitempty"` // probability that a packet arrives twice, 0 to 1
	Reorder   Reorder       `json:"reorder,omitzero"`
	Corrupt   Corrupt       `json:"corrupt,omitzero"`
	Rate      uint64        `json:"rate"`             // bits per second; 0 is unlimited
	Burst     uint64        `json:"burst,omitempty"`  // bytes that pass at once after a pause, ahead of Rate
	Queue     Queue         `json:"queue,omitzero"`   // before Rate; what finds it full is dropped
	ECN       ECN           `json:"ecn,omitzero"`     // marks in that queue
	Cut       bool          `json:"cut,omitempty"`    // nothing arrives; unlike a link that is down, the ends keep their carrier
	Flap      Flap          `json:"flap,omitzero"`    // the same, now and then
	Faults    []Fault       `json:"faults,omitempty"` // of the first that matches a packet, the action is done
}

// None reports whether the impairment changes nothing.
func (i Impairment) None() bool { return i.Equal(Impairment{}) }

// Equal reports whether two impairments do the same.
func (i Impairment) Equal(j Impairment) bool {
	return !slices.ContainsFunc(impairmentKeys(), func(k impairmentKey) bool { return !k.equal(&i, &j) })
}

// A Distribution says how jitter is spread around the delay.
type Distribution string

// The distributions.
const (
	Uniform Distribution = "uniform" // evenly, up to the spread either way
	Normal  Distribution = "normal"  // the spread is the standard deviation
	Pareto  Distribution = "pareto"  // a long tail of late packets; mean 0, the spread is the standard deviation
	Sampled Distribution = "samples" // one of the samples at random is added
)

// Jitter is a variation of the delay. A packet's delay is never below 0. Packets
// keep their order unless the impairment has Reorder.
type Jitter struct {
	Spread       time.Duration   `json:"spread,omitempty"`
	Distribution Distribution    `json:"distribution,omitempty"` // "" is Uniform
	Samples      []time.Duration `json:"samples,omitempty"`      // of Sampled alone: what is added to the delay, may be negative
}

// Loss says which packets do not arrive: all those that its fields name.
type Loss struct {
	Rate    float64  `json:"rate,omitempty"`    // probability, 0 to 1
	Burst   float64  `json:"burst,omitempty"`   // mean number of packets lost in a row, by Gilbert and Elliott's model, so that Rate is lost altogether; 0: each packet for itself
	Every   uint64   `json:"every,omitempty"`   // each n-th packet; 0: none
	Packets []uint64 `json:"packets,omitempty"` // those at these places, ascending, 1 is the first that met this Loss
}

// Reorder has packets overtake others that are on their way. It needs a delay or
// a jitter: on a wire without either there is nothing to overtake.
type Reorder struct {
	Probability float64 `json:"probability,omitempty"` // 0 to 1
	Depth       int     `json:"depth,omitempty"`       // how many packets it overtakes at most; 0 is 1
}

// Corrupt flips bits of packets, behind any checksum that the sender has computed.
type Corrupt struct {
	Probability float64 `json:"probability,omitempty"` // 0 to 1
	Anywhere    bool    `json:"anywhere,omitempty"`    // in any byte behind the Ethernet header; else in the payload of UDP, TCP or, if there is neither, IP
	Bits        int     `json:"bits,omitempty"`        // how many different bits are flipped; 0 is 1
}

// Queue bounds what waits for the rate, to which packets in transmission belong;
// both 0 is the default of package impair, and one of them 0 does not bound.
type Queue struct {
	Bytes   uint64 `json:"bytes,omitempty"`
	Packets uint64 `json:"packets,omitempty"`
}

// ECN is marking of ECN-capable packets (Congestion Experienced): none while Min
// or less waits in the queue, all from Max on, in between a share that grows
// evenly, to Probability. Bytes; Max 0 is no marking.
type ECN struct {
	Min         uint64  `json:"min,omitempty"`
	Max         uint64  `json:"max,omitempty"`
	Probability float64 `json:"probability,omitempty"` // 0: 1
}

// Flap cuts the direction for the last Down of each Period. Periods count from
// the moment that the setting takes effect.
type Flap struct {
	Period time.Duration `json:"period,omitempty"`
	Down   time.Duration `json:"down,omitempty"` // less than Period
}

// An Action is the effect of a Fault.
type Action string

// The actions.
const (
	Drop     Action = "drop"
	Postpone Action = "delay"     // for the fault's Delay longer; others may overtake it meanwhile
	Double   Action = "duplicate" // arrives twice
	Corrode  Action = "corrupt"   // a bit of the payload is flipped
)

// A Fault happens to chosen RoCEv2 packets.
type Fault struct {
	Match  Match         `json:"match"`
	Action Action        `json:"action"`
	Delay  time.Duration `json:"delay,omitempty"` // of Postpone
}

// A Match chooses RoCEv2 packets: those to which all that is given applies.
type Match struct {
	Opcodes   []uint8  `json:"opcodes,omitempty"`   // of the BTH; none: any
	Syndromes []string `json:"syndromes,omitempty"` // "ack", "nak", "rnr": of acknowledgements, which also have to be among Opcodes if there are any
	CM        []uint16 `json:"cm,omitempty"`        // attribute IDs of CM messages on QP 1
	QP        *uint32  `json:"qp,omitempty"`        // destination QPN
	PSN       *PSNs    `json:"psn,omitempty"`
	// Of those that all of the above applies to, counted from 1 since the fault
	// was set:
	Packets     []uint64 `json:"packets,omitempty"`     // only these, ascending
	Every       uint64   `json:"every,omitempty"`       // only each n-th
	Count       uint64   `json:"count,omitempty"`       // only the first so many for which all else applies; 0: no limit
	Probability float64  `json:"probability,omitempty"` // only so many at random; 0: all
}

// PSNs is a range of packet sequence numbers, both ends in it; it may pass from
// 0xffffff to 0.
type PSNs struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// A Change names what it changes of an Impairment; nil leaves a value alone.
type Change struct {
	Delay     *time.Duration `json:"delay,omitempty"`
	Jitter    *Jitter        `json:"jitter,omitempty"`
	Loss      *Loss          `json:"loss,omitempty"`
	Duplicate *float64       `json:"duplicate,omitempty"`
	Reorder   *Reorder       `json:"reorder,omitempty"`
	Corrupt   *Corrupt       `json:"corrupt,omitempty"`
	Rate      *uint64        `json:"rate,omitempty"`
	Burst     *uint64        `json:"burst,omitempty"`
	Queue     *Queue         `json:"queue,omitempty"`
	ECN       *ECN           `json:"ecn,omitempty"`
	Cut       *bool          `json:"cut,omitempty"`
	Flap      *Flap          `json:"flap,omitempty"`
	Faults    *[]Fault       `json:"faults,omitempty"`
}

// Apply is the impairment with the change made.
func (c Change) Apply(i Impairment) Impairment {
	for _, k := range impairmentKeys() {
		k.apply(&i, &c)
	}
	return i
}

func replace[T any](value, by *T) {
	if by != nil {
		*value = *by
	}
}
