package mmu

import (
	"fmt"
	"strings"
	"time"
)

// A Line describes a port and the line there to a preset.
type Line struct {
	Rate     uint64        // bits per second
	Delay    time.Duration // of the line
	Reaction time.Duration // of the neighbour, from a PFC frame until it sends nothing more
	MaxFrame int           // bytes of the longest packet on the wire
}

func (l *Line) headroom() int64 { return Headroom(l.Rate, l.Delay, l.Reaction, l.MaxFrame) }

// presetNames names what Preset knows.
var presetNames = [...]string{"hpcc", "trident2", "sonic"}

// Preset returns the settings of a known switch with such lines (congestion.md a, c1). lossless has
// a bit for each class that is; nil: as the preset has it. Of the others 6 and 7 are strict, except in
// sonic, and have a small reserve.
//
//   - hpcc: the simulator of the HPCC paper (SIGCOMM'19). 12 MiB, 4 KiB of reserve, alpha 1/8 for the
//     slowest ports and twice that each time that a port is twice as fast, a gap of 3 KiB, marks from
//     100 to 400 KB at 20 % for each 25 Gb/s. The headroom is Headroom's instead of its own, which is
//     too small.
//   - trident2: the DCQCN paper (SIGCOMM'15). 12 MB, headroom of 22.4 KB, beta 8 divided among 8
//     classes, marks from 5 to 200 KB at 1 %.
//   - sonic: SONiC's qos_config template. Classes 3 and 4 lossless, dynamic_th -3, marks from 1 to
//     2 MiB at 5 %, weights 15 for lossless classes and 14 for others. The size is hpcc's.
func Preset(name string, lossless *uint8, lines []Line) (Config, error) {
	c, err := preset(name, lossless, lines)
	if err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

// preset returns the settings unchecked: others may follow that make them fit.
func preset(name string, lossless *uint8, lines []Line) (Config, error) {
	c := Config{Name: name, Size: UsualSize, Ports: make([]Port, len(lines))}
	slowest := ^uint64(0)
	for i := range lines {
		slowest = min(slowest, lines[i].Rate)
	}
	var class func(l *Line, lossless bool) Class
	own := uint8(1 << 3)
	switch name {
	case "hpcc":
		class = func(l *Line, lossless bool) Class {
			c := Class{Alpha: 1.0 / 8, Gap: 3 << 10, EgressAlpha: 1, Weight: 1}
			for rate := l.Rate; rate > slowest && c.Alpha < 1; rate /= 2 {
				c.Alpha *= 2
			}
			if lossless {
				c.Reserve, c.Headroom = 4<<10, l.headroom()
				kb := func(n uint64) int64 { return int64(min(n*l.Rate/25e6, maxMark)) } // at 25 Gb/s
				c.Mark = WRED{Min: kb(100), Max: kb(400), Probability: 0.2}
			}
			return c
		}
	case "trident2":
		c.Size = 12e6
		class = func(_ *Line, lossless bool) Class {
			c := Class{Alpha: 8.0 / Classes, EgressAlpha: 1, Weight: 1}
			if lossless {
				c.Headroom = 22_400
				c.Mark = WRED{Min: 5e3, Max: 200e3, Probability: 0.01}
			}
			return c
		}
	case "sonic":
		own |= 1 << 4
		class = func(l *Line, lossless bool) Class {
			c := Class{Alpha: 8, EgressAlpha: 8, Weight: 14} // dynamic_th 3
			if lossless {
				c.Alpha, c.Headroom, c.Weight = 1.0/8, l.headroom(), 15
				c.Gap = 2 * int64(l.MaxFrame)
				c.Mark = WRED{Min: 1 << 20, Max: 2 << 20, Probability: 0.05}
			}
			return c
		}
	default:
		return Config{}, fmt.Errorf("mmu: no preset %q, want %s", name, strings.Join(presetNames[:], ", "))
	}
	if lossless == nil {
		lossless = &own
	}
	for i := range lines {
		p := &c.Ports[i]
		p.Rate, p.MaxFrame = lines[i].Rate, lines[i].MaxFrame
		for k := range Classes {
			isLossless := *lossless>>k&1 != 0
			p.Classes[k] = class(&lines[i], isLossless)
			if p.Classes[k].Lossless = isLossless; !isLossless && k >= controlClass {
				p.Classes[k].Reserve = controlReserve
				if name != "sonic" {
					p.Classes[k].Weight = 0
				}
			}
		}
	}
	return c, nil
}

// UsualSize is the size of a buffer, in bytes, where a preset has no other.
const UsualSize = 12 << 20

const (
	maxMark = 1 << 34 // bytes: more than a mark is ever set at
	// controlClass is the first of the classes for CNPs and for what runs the network. They have a
	// reserve, for the simulator of the HPCC paper never drops such packets, and else data that come
	// in by many ports, one after another, leave no room for them.
	controlClass   = 6
	controlReserve = 1 << 10 // bytes: a dozen CNPs
)
