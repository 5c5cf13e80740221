package congestion

import (
	"cmp"
	"math"
	"time"
)

// A Pacer spaces the packets of a queue pair by the rate of its Control: between the beginnings of
// two, the first takes as long as it would on a wire of that rate.
//
// A change of the rate also shortens or lengthens the wait that is under way. At the rate of the line nothing
// is spaced unless SpacesAll says so: the line does that.
type Pacer struct {
	Control
	// Unbounded says that nothing but the Control bounds what is in flight, neither the path nor the peer's receive buffer.
	Unbounded bool
	// Packet is the bytes of a full packet on the wire, and Count what it counts where Limit is heeded and Delivered
	// called; of no concern where the Control has no window.
	Packet, Count int64
	// SpacesAll has packets spaced at the rate of the line, too, since no line takes them one by one.
	SpacesAll bool
	// Line takes the packets one by one; nil: nobody waits for their turn.
	Line Line

	line     float64 // rate from which nothing is spaced, in bits per second; 0: none
	burst    int     // bytes; see Config.Burst
	overhead int     // bytes that a packet has on the wire beside what Sent is told

	at    time.Duration // when the last packet was due, or sent if it was later than may be caught up with
	rest  float64       // of a nanosecond, which at lacks
	bytes int           // of that packet, on the wire

	delivered int64 // as Delivered was last told
}

// A Line says whether it is busy, so that packets that have data or ask for it wait for their turn.
type Line interface{ Busy() bool }

// NewPacer returns a Pacer that has sent nothing, of a queue pair on a line of so many bits per second, 0 if it is unknown. A
// packet has overhead bytes on the wire beside those that Sent is told.
func NewPacer(c Control, line float64, burst, overhead int) *Pacer {
	return &Pacer{Control: c, line: cmp.Or(line, unknownLineRate), burst: burst, overhead: overhead}
}

// due returns when the next packet may be sent, as an instant and what it lacks of a nanosecond.
func (p *Pacer) due(now time.Duration) (at time.Duration, rest float64) {
	if p.bytes == 0 {
		return now, 0
	}
	whole, rest := math.Modf(p.rest + nanoseconds(p.bytes, p.rate(now)))
	return p.at + time.Duration(whole), rest
}

// Next returns when the next packet may be sent, as far as is known now. It may be past.
func (p *Pacer) Next(now time.Duration) time.Duration {
	at, rest := p.due(now)
	if rest > 0 {
		at++
	}
	return at
}

// Deadline returns when to look again whether a packet may be sent, which may not now: when it
// may, or when the rate changes.
func (p *Pacer) Deadline(now time.Duration) time.Duration {
	next := p.Next(now)
	if change, ok := p.Control.Deadline(); ok && now < change && change < next {
		return change
	}
	return next
}

// Observe returns the rate of the Control and its target, as Observable does; target 0: it has none.
func (p *Pacer) Observe(now time.Duration) (rate, target float64) {
	if c, ok := p.Control.(Observable); ok {
		return c.Observe(now)
	}
	return p.Control.Rate(now), 0
}

// Sent takes note of a packet that is sent now.
func (p *Pacer) Sent(now time.Duration, bytes int) {
	bytes += p.overhead
	p.at, p.rest = p.due(now)
	// A packet that was due within the nanosecond before is not late.
	earliest := now - time.Duration(nanoseconds(p.burst, p.rate(now)))
	switch {
	case p.at > now: // nobody held it back
		p.at, p.rest = now, 0
	case p.at < earliest-1 || p.at == earliest-1 && p.rest == 0:
		p.at, p.rest = earliest, 0
	}
	p.bytes = bytes
	p.Control.Sent(now, bytes)
}

// Bounds reports whether the Control has a window.
func (p *Pacer) Bounds() bool { return p.Window() > 0 }

// Limit returns how much may be in flight by the Control, in the unit of Count; boundless if any number.
func (p *Pacer) Limit(boundless int64) int64 {
	if w := p.Window(); w > 0 {
		return w * p.Count / p.Packet
	}
	return boundless
}

// Delivered tells the Control what has been acknowledged: how much ever, and how much is in flight, in the unit of Count;
// and the round trip of a full packet, 0 if none was measured.
func (p *Pacer) Delivered(now time.Duration, delivered, inFlight int64, rtt time.Duration) {
	if !p.Bounds() {
		return
	}
	more := max(0, delivered-p.delivered)
	p.delivered = delivered
	p.Acknowledged(now, Ack{RTT: rtt, Bytes: more * p.Packet / p.Count, InFlight: inFlight * p.Packet / p.Count})
}

// rate returns the rate at which packets are spaced, in bits per second; 0: they are not.
func (p *Pacer) rate(now time.Duration) float64 {
	rate := p.Control.Rate(now)
	switch {
	case p.SpacesAll && (rate == 0 || rate >= p.line):
		return p.line
	case rate >= p.line:
		return 0
	}
	return rate
}

// nanoseconds returns the time that bytes take at a rate in bits per second; 0 at any rate.
func nanoseconds(bytes int, rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return float64(bytes) * 8 * float64(time.Second) / rate
}
