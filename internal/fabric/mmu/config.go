package mmu

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Config has the settings of a switch.
type Config struct {
	Name string // tells its draws from those of other switches
	Seed uint64
	Size int64 // bytes of the whole buffer
	// Quanta tells neighbours how long to pause unless they are told again, in times of 512 bits; 0:
	// 65535. They are told again after half of that.
	Quanta   uint16
	Watchdog Watchdog
	Ports    []Port
}

// A Port has the settings of a port.
type Port struct {
	Rate     uint64 // bits per second
	MaxFrame int    // bytes of the longest packet, as Arrive counts them
	Classes  [Classes]Class
}

// A Class has the settings of a class at a port. The fields of the ingress are about packets that
// come in by the port, those of the egress about packets that leave by it.
type Class struct {
	Lossless bool // the port asks for pauses of the class, and obeys them

	// Ingress.
	Reserve  int64   // bytes that are for this port and class alone
	Headroom int64   // bytes for what arrives beyond XOFF; see Headroom. Lossless classes alone have it
	XOFF     int64   // bytes of the shared buffer from which on the neighbour is to pause; 0: by Alpha
	Alpha    float64 // the same, as a multiple of what is free of the shared buffer
	Gap      int64   // bytes below XOFF at which it is to go on

	// Egress.
	Limit       int64   // bytes that a queue of a lossy class may hold; 0: by EgressAlpha
	EgressAlpha float64 // the same, as a multiple of what is free of the shared buffer; 0: no limit
	Mark        WRED
	Weight      int // share of what strict classes leave; 0: the class is strict
}

// A WRED decides which packets are marked. Those that are not ECN-capable are left alone.
type WRED struct {
	Min, Max    int64   // bytes in the queue: none are marked up to Min, all beyond Max; Max 0: never
	Probability float64 // at Max; it grows in proportion from 0 at Min
	// AtEnqueue says that what counts is the queue that a packet finds, rather than the one that it
	// leaves behind.
	AtEnqueue bool
}

// A Watchdog ends pauses that do not end by themselves.
type Watchdog struct {
	Detect  time.Duration // a queue that has been paused so long without a departure is in a storm; 0: none ever is
	Restore time.Duration // the storm is over once there was no pause for so long
	Forward bool          // in a storm packets leave despite the pause; else they are dropped
}

const (
	// MostQuanta is the longest pause that a PFC frame asks for.
	MostQuanta  = math.MaxUint16
	quantumBits = 512 // 802.1Qbb
	maxBytes    = math.MaxInt32
	maxSize     = 1 << 50 // bytes
	maxPorts    = 1024
	never       = time.Duration(math.MaxInt64)
)

// PauseFrame is the length of a PFC frame on a wire, with all that surrounds it: 64 bytes and
// those of a preamble with start delimiter, and of a gap.
const PauseFrame = 64 + 8 + 12

// Headroom returns how many bytes may still arrive once a port wants its neighbour to pause, on a
// line of a rate in bits per second and a delay, whose longest packet has maxFrame bytes on the wire
// (congestion.md c1). The frame that asks for the pause waits for a packet that has just begun, and
// takes its own time and the delay; the neighbour reacts, and ends a packet that has just begun; and
// what is on the line arrives.
func Headroom(rate uint64, delay, reaction time.Duration, maxFrame int) int64 {
	return bytesIn(rate, 2*delay) + bytesIn(rate, reaction) + 2*int64(maxFrame) + PauseFrame
}

// bytesIn returns what a rate carries in a time, rounded up.
func bytesIn(rate uint64, t time.Duration) int64 {
	if t <= 0 {
		return 0
	}
	high, low := bits.Mul64(rate, uint64(t))
	const unit = 8 * uint64(time.Second)
	if high >= unit {
		return maxSize
	}
	n, rest := bits.Div64(high, low, unit)
	if rest > 0 {
		n++
	}
	return int64(min(n, maxSize))
}

// Shared returns what is neither reserve nor headroom. It is negative if those are more than all.
func (c *Config) Shared() int64 {
	shared := c.Size
	for i := range c.Ports {
		for k := range c.Ports[i].Classes {
			class := &c.Ports[i].Classes[k]
			shared -= class.Reserve + class.Headroom
		}
	}
	return shared
}

// Validate returns an error that names the first setting that makes no sense, and what would.
func (c *Config) Validate() error {
	switch {
	case c.Size <= 0 || c.Size > maxSize:
		return fmt.Errorf("mmu: buffer of %d bytes, want 1 to %d", c.Size, int64(maxSize))
	case len(c.Ports) == 0 || len(c.Ports) > maxPorts:
		return fmt.Errorf("mmu: %d ports, want 1 to %d", len(c.Ports), maxPorts)
	case c.Watchdog.Detect < 0 || c.Watchdog.Restore < 0:
		return fmt.Errorf("mmu: watchdog detects after %v and restores after %v, want 0 or more",
			c.Watchdog.Detect, c.Watchdog.Restore)
	case c.Watchdog.Detect > 0 && c.Watchdog.Restore == 0:
		return fmt.Errorf("mmu: watchdog restores at once, want a time without pauses, such as %v", c.Watchdog.Detect)
	}
	for i := range c.Ports {
		if err := c.Ports[i].validate(c.Quanta); err != nil {
			return fmt.Errorf("mmu: port %d: %w", i, err)
		}
	}
	if shared := c.Shared(); shared < 0 {
		return fmt.Errorf("mmu: reserves and headroom need %d bytes of a buffer of %d: make it larger, or them smaller",
			c.Size-shared, c.Size)
	}
	return nil
}

func (p *Port) validate(quanta uint16) error {
	switch {
	case p.Rate == 0:
		return fmt.Errorf("no rate, want bits per second")
	case p.MaxFrame <= 0 || p.MaxFrame > maxBytes:
		return fmt.Errorf("longest packet of %d bytes, want 1 to %d", p.MaxFrame, maxBytes)
	}
	for k := range p.Classes {
		c := &p.Classes[k]
		if err := c.validate(); err != nil {
			return fmt.Errorf("class %d: %w", k, err)
		}
		if least := 2 * 8 * (p.MaxFrame + PauseFrame) / quantumBits; c.Lossless && quanta != 0 && int(quanta) <= least {
			return fmt.Errorf("class %d: pauses of %d quanta run out before they are renewed, want more than %d",
				k, quanta, least)
		}
	}
	return nil
}

func (c *Class) validate() error {
	for _, n := range [...]struct {
		name  string
		value int64
	}{
		{"reserve", c.Reserve}, {"headroom", c.Headroom}, {"xoff", c.XOFF}, {"gap", c.Gap}, {"limit", c.Limit},
		{"min of marks", c.Mark.Min}, {"max of marks", c.Mark.Max},
	} {
		if n.value < 0 || n.value > maxSize/(maxPorts*Classes*2) {
			return fmt.Errorf("%s of %d bytes, want 0 to %d", n.name, n.value, int64(maxSize/(maxPorts*Classes*2)))
		}
	}
	for _, n := range [...]struct {
		name        string
		value, most float64
	}{
		{"alpha", c.Alpha, maxAlpha}, {"egress alpha", c.EgressAlpha, maxAlpha},
		{"probability of marks", c.Mark.Probability, 1},
	} {
		if !(n.value >= 0 && n.value <= n.most) {
			return fmt.Errorf("%s of %v, want 0 to %v", n.name, n.value, n.most)
		}
	}
	switch {
	case c.Lossless && c.Alpha == 0 && c.XOFF == 0:
		return fmt.Errorf("neither alpha nor xoff, want one of them, such as alpha 1/8")
	case !c.Lossless && c.Headroom > 0:
		return fmt.Errorf("headroom of %d bytes in a class that is not lossless, want 0", c.Headroom)
	case c.Mark.Max > 0 && c.Mark.Min > c.Mark.Max:
		return fmt.Errorf("marks from %d to %d bytes, want min no more than max", c.Mark.Min, c.Mark.Max)
	case c.Weight < 0 || c.Weight > maxWeight:
		return fmt.Errorf("weight %d, want 1 to %d, or 0 for a strict class", c.Weight, maxWeight)
	}
	return nil
}

const (
	maxAlpha  = 1024
	maxWeight = 1 << 16
)

// limit returns XOFF, in bytes of the shared buffer, given what is free of that.
func (c *Class) limit(free int64) int64 {
	if c.XOFF > 0 {
		return c.XOFF
	}
	return int64(c.Alpha * float64(free))
}

// above reports whether a neighbour that sent what is held is to pause.
func (c *Class) above(held, free int64) bool { return max(0, held-c.Reserve) >= c.limit(free) }

// beyond reports whether a neighbour that pauses is not to go on yet.
func (c *Class) beyond(held, free int64) bool {
	used := held - c.Reserve
	return used > 0 && used+c.Gap > c.limit(free)
}

// full reports whether a queue of so many bytes is longer than a lossy class may have it.
func (c *Class) full(bytes, free int64) bool {
	switch {
	case c.Lossless:
		return false
	case c.Limit > 0:
		return bytes > c.Limit
	}
	return c.EgressAlpha > 0 && bytes > int64(c.EgressAlpha*float64(free))
}

// A DSCPTable has the class of each DSCP. The switch is told the class of a packet; whoever drives it
// finds it here.
type DSCPTable [64]uint8

// Class returns the class of a packet with that TOS or traffic class byte.
func (t *DSCPTable) Class(tos uint8) int { return int(t[tos>>2]) % Classes }
