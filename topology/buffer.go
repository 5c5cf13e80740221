package topology

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the packet buffer that the ports of a switch or router share: its types and its keys
// (docs/spec/congestion.md c1, c4).

// A BufferPreset names settings of a known switch.
type BufferPreset string

// The presets.
const (
	BufferHPCC     BufferPreset = "hpcc"     // the simulator of the HPCC paper (SIGCOMM'19)
	BufferTrident2 BufferPreset = "trident2" // the switch of the DCQCN paper (SIGCOMM'15)
	BufferSONiC    BufferPreset = "sonic"    // SONiC's default template
)

var bufferPresets = []BufferPreset{BufferHPCC, BufferTrident2, BufferSONiC}

// A Buffer is the packet buffer that all ports of a node share. Sizes are in bytes; nil leaves what the preset
// has. Nodes share the values: they are never changed in place.
type Buffer struct {
	Preset      BufferPreset `json:"preset"`
	Size        *uint64      `json:"size,omitempty"`         // of all
	Reserve     *uint64      `json:"reserve,omitempty"`      // of each lossless class at each port
	Headroom    *uint64      `json:"headroom,omitempty"`     // likewise, for what arrives once the neighbour is to pause; nil: by rate and delay
	Alpha       *float64     `json:"alpha,omitempty"`        // of what is free, what a lossless class of a port may use before its neighbour is to pause
	XOFF        *uint64      `json:"xoff,omitempty"`         // the same, as a fixed size
	Gap         *uint64      `json:"gap,omitempty"`          // below that, where the neighbour is to go on
	EgressAlpha *float64     `json:"egress_alpha,omitempty"` // of what is free, what the queue of another class may hold
}

// A Schedule says how a class shares a port with others.
type Schedule struct {
	Strict bool    `json:"strict,omitempty"` // it is served before those that are not
	Weight float64 `json:"weight,omitempty"` // 0 to 1: of what strict classes leave
}

// Priorities are the eight classes of a node with a buffer.
type Priorities struct {
	Lossless []uint32            `json:"lossless,omitzero"`  // the port asks for pauses of these, and obeys them; ascending; nil: those of the preset
	DSCP     map[uint32]uint32   `json:"dscp,omitzero"`      // the class of a DSCP, 0 of one that is not in it; nil: DefaultDSCPClasses
	Schedule map[uint32]Schedule `json:"schedule,omitempty"` // of a class; one that is not in it: as the preset has it
}

// DefaultDSCPClasses returns the class of each DSCP that has another than 0, where a file sets none:
// that of data with DCQCN, and that of CNPs (congestion.md c4).
func DefaultDSCPClasses() map[uint32]uint32 { return map[uint32]uint32{26: 3, 48: 6} }

// A WatchdogAction says what becomes of packets of a queue that has been paused for too long.
type WatchdogAction string

// The actions.
const (
	WatchdogDrop    WatchdogAction = "drop"
	WatchdogForward WatchdogAction = "forward" // they leave in spite of the pause
)

var watchdogActions = []WatchdogAction{WatchdogDrop, WatchdogForward}

// A Watchdog ends pauses that do not end by themselves.
type Watchdog struct {
	Detect  time.Duration  `json:"detect"`  // a queue that has been paused so long, and sent nothing, is in a storm
	Restore time.Duration  `json:"restore"` // the storm is over once there was no pause for so long
	Action  WatchdogAction `json:"action"`
}

// Bounds of a buffer, which are those of package mmu.
const (
	maxReserve = 1 << 36 // bytes of a class at a port
	maxAlpha   = 1024
)

// The values of a buffer's keys. Zero is no threshold at which a neighbour is to pause.
var (
	bufferSize = sized[uint64](memories, minQueue, maxBytes)
	classSize  = sized[uint64](sizes, 0, maxReserve)
	threshold  = sized[uint64](sizes, 1, maxReserve)
	alpha      = ranged(parseRatio, formatNumber, 0.0001, maxAlpha, func() schema {
		return anyOf(schema{"type": "number", "minimum": 0.0001, "maximum": maxAlpha}, matching(decimals+"(?:/"+decimals+")?"))
	})
)

// auto is the headroom that follows from a port's rate and delay.
const auto = "auto"

// headroomForm is a size, or nil for auto.
var headroomForm = made(classSize, func(n uint64) *uint64 { return &n }).orWord(auto, nil, "a size such as 64KiB")

var bufferTable = sync.OnceValue(func() *keyTable[Buffer] {
	return &keyTable[Buffer]{
		what: "a buffer", noun: "buffer", def: "buffer", initial: Buffer{Preset: BufferHPCC}, also: needsMap[Buffer],
		keys: []key[Buffer]{
			one("preset", fewWords(bufferPresets...), func(m *Buffer) *BufferPreset { return &m.Preset }, "what the keys that are absent are: `hpcc` (the simulator of the HPCC paper), `trident2` (the switch of the DCQCN paper) or `sonic` (SONiC's default template)").orElse("`hpcc`"),
			limit("size", bufferSize, func(m *Buffer) **uint64 { return &m.Size }, "of all, $range").orElse("12MiB; of `trident2` 12MB"),
			limit("reserve", classSize, func(m *Buffer) **uint64 { return &m.Reserve }, "that each lossless class of a port has for itself, $range").orElse("4KiB; of `trident2` and `sonic` 0B"),
			one("headroom", headroomForm, func(m *Buffer) **uint64 { return &m.Headroom }, "that each lossless class of a port has for what still arrives once the neighbour is to pause, $range; `auto`: what follows from the port's rate and the link's delay and MTU").orElse("`auto`; of `trident2`, which has no other than a size, 22400B"),
			limit("alpha", alpha, func(m *Buffer) **float64 { return &m.Alpha }, "the neighbour is to pause once a lossless class of a port uses this multiple of what is free of the buffer: a fraction such as `1/8` or a number, $range").orElse("1/8, with `hpcc` twice that each time that a port is twice as fast as the slowest; of `trident2` 1"),
			limit("xoff", threshold, func(m *Buffer) **uint64 { return &m.XOFF }, "in the place of `alpha`: once it uses so much, $range"),
			limit("gap", classSize, func(m *Buffer) **uint64 { return &m.Gap }, "so far below that the neighbour is to go on, $range").orElse("3KiB; of `trident2` 0B, of `sonic` two packets"),
			limit("egress_alpha", alpha, func(m *Buffer) **float64 { return &m.EgressAlpha }, "the queue of a class that is not lossless drops what comes once it holds this multiple of what is free, as `alpha`").orElse("1; of `sonic` 8"),
		},
	}
})

var bufferForm = briefly("hpcc, trident2, sonic", made(fewWords(bufferPresets...), func(p BufferPreset) Buffer { return Buffer{Preset: p} }), bufferTable, func(m *mapping[Buffer]) Buffer {
	if a, x := m.place("alpha"), m.place("xoff"); a != nil && x != nil {
		m.errorf(x, "xoff stands with alpha (line %d), expected one of them: both say when a neighbour is to pause", a.Line)
	}
	if h := m.word("headroom"); h.is == auto && m.is.Preset == BufferTrident2 {
		m.errorf(h.at, "headroom auto stands with preset trident2, expected a size, or another preset: that switch has 22400B for each port")
	}
	return m.is
})

// priority is one of the classes of 802.1Q.
var priority = count[uint32](0, 7)

// priorityList is classes, in ascending order.
var priorityList = form[[]uint32]{
	schema: func() schema {
		return schema{"type": "array", "items": priority.schema(), "maxItems": 8, "uniqueItems": true}
	},
	read: func(r *reader, n *yaml.Node) []uint32 {
		if n.Kind != yaml.SequenceNode {
			r.valueError(n, "found %s, expected a list such as [3]", describe(n))
			return nil
		}
		list := []uint32{} // not nil: none at all is other than absent
		r.items(n, func(n *yaml.Node) {
			p := priority.of(r, n)
			if slices.Contains(list, p.is) {
				r.valueError(n, "priority %d a second time, expected it once", p.is)
			} else if p.ok {
				list = append(list, p.is)
			}
		})
		slices.Sort(list)
		return list
	},
}

// byNumber is maps with numbers as keys, which match a pattern.
func byNumber[T any](number form[uint32], pattern, example string, what form[T]) form[map[uint32]T] {
	return neverNothing(example, form[map[uint32]T]{
		schema: func() schema {
			return schema{"type": "object", "propertyNames": schema{"pattern": "^0*(?:" + pattern + ")$"}, "additionalProperties": what.schema()}
		},
		read: func(r *reader, n *yaml.Node) map[uint32]T {
			all := make(map[uint32]T)
			for _, e := range r.entries(n) {
				k, v := scalar(r, e.key, number.parse), what.of(r, e.value)
				if _, again := all[k.is]; k.ok && again { // in another spelling
					r.valueError(e.key, "%d a second time, expected it once", k.is)
				}
				if k.ok {
					all[k.is] = v.is
				}
			}
			return all
		},
	})
}

// scheduleForm is strict, or a share of what strict classes leave.
var scheduleForm = made(share(0.0001), func(w float64) Schedule { return Schedule{Weight: w} }).orWord("strict", Schedule{Strict: true}, "a percentage such as 60%")

var prioritiesTable = sync.OnceValue(func() *keyTable[Priorities] {
	return &keyTable[Priorities]{
		what: "priorities", noun: "priorities", def: "priorities", also: needsMap[Priorities],
		keys: []key[Priorities]{
			one("lossless", priorityList, func(m *Priorities) *[]uint32 { return &m.Lossless }, "a list of classes, 0 to 7, for which each port asks its neighbour to pause, and pauses when it is asked: `[3]`; `[]`: none, so that all may be dropped").orElse("`[3]`; of `sonic` `[3, 4]`"),
			one("dscp", byNumber(dscp, "[1-5]?[0-9]|6[0-3]", "{26: 3, 48: 6}", priority), func(m *Priorities) *map[uint32]uint32 { return &m.DSCP }, "a map of the DSCP of IP packets, 0 to 63, to their classes; those that are not in it have class 0").orElse("`{26: 3, 48: 6}`, the data of `congestion: dcqcn` and its CNPs"),
			one("schedule", byNumber(priority, "[0-7]", "{6: strict, 3: 60%}", scheduleForm), func(m *Priorities) *map[uint32]Schedule { return &m.Schedule }, "a map of classes to `strict`, which is served before all that are not, the highest first, or to a share of what these leave, up to 100%").orElse("6 and 7 are strict, and others share evenly; of `sonic` 15 parts of a lossless class, 14 of another"),
		},
	}
})

var prioritiesForm = onlyMap("{lossless: [3]}", prioritiesTable, itself)

var watchdogTable = sync.OnceValue(func() *keyTable[Watchdog] {
	times := span(time.Microsecond, maxDelay)
	return &keyTable[Watchdog]{
		what: "a watchdog", noun: "watchdog", def: "watchdog", required: []string{"detect"}, initial: Watchdog{Action: WatchdogDrop},
		keys: []key[Watchdog]{
			one("detect", times, func(m *Watchdog) *time.Duration { return &m.Detect }, "a queue that has been paused so long, and sent nothing, is in a storm, $range"),
			one("restore", times, func(m *Watchdog) *time.Duration { return &m.Restore }, "the storm is over once there was no pause for so long, $range").orElse("as `detect`"),
			one("action", fewWords(watchdogActions...), func(m *Watchdog) *WatchdogAction { return &m.Action }, "what becomes of the queue's packets in a storm: `drop`, or `forward` in spite of the pause").orElse("`drop`"),
		},
	}
})

var watchdogForm = onlyMap("{detect: 200ms}", watchdogTable, func(m *mapping[Watchdog]) Watchdog {
	if !m.has("restore") {
		m.is.Restore = m.is.Detect
	}
	return m.is
})

// bufferKeys are the keys of a node about its buffer.
func bufferKeys() []key[nodeMap] {
	return []key[nodeMap]{
		limit("buffer", bufferForm, func(m *nodeMap) **Buffer { return &m.Buffer }, "of a switch or router: the packet buffer that its ports share, `hpcc`, `trident2`, `sonic`, or a map of [these](#shared-buffers-and-pfc); absent: each port has a queue of its own"),
		limit("priorities", prioritiesForm, func(m *nodeMap) **Priorities { return &m.Priorities }, "with `buffer`: its classes, a map of [these](#shared-buffers-and-pfc)"),
		limit("watchdog", watchdogForm, func(m *nodeMap) **Watchdog { return &m.Watchdog }, "with `buffer`: what ends pauses that do not end by themselves, a map of [these](#shared-buffers-and-pfc); absent: nothing does"),
	}
}

// fitsBuffer reports what of a node's buffer does not go together. Maps are those of the node.
func (r *nodeReader) fitsBuffer(n nodeMap, all layers[nodeMap]) {
	for _, key := range []string{"buffer", "priorities", "watchdog"} {
		switch at := all.find(key).at; {
		case at == nil:
		case n.Kind == Host:
			r.errorf(at, "%s is given to %s, which is a host, expected a switch or router: a host's adapter has pfc", key, n.Name)
		case all.find("buffer").at == nil:
			r.errorf(at, "%s is given to %s without buffer, expected that key beside it, such as buffer: hpcc", key, n.Name)
		case key == "buffer" && n.SpanningTree:
			r.needSimulation(n.Name, at, "a switch has stp and a shared buffer", "one of them in a lab: a simulation (--simulate) has both")
		}
	}
}

// needsOfBuffers notes what of a complete lab takes a simulation: netem where packets wait in
// a buffer of the link engine.
func (r *reader) needsOfBuffers(t *Topology) {
	buffered := t.BufferedLinks()
	for i := range t.Links {
		if l := &t.Links[i]; buffered[i] && l.Engine == Netem {
			at := l.Endpoints[0]
			if at.External() {
				at = l.Endpoints[1]
			}
			r.simulated = append(r.simulated, Need{at.Node, "engine: netem is of a link at a buffer", l.EngineAt, "engine: linkem in a lab, which carries the buffer"})
		}
	}
}

// checkPort says what of an impairment a port of a node with a buffer cannot have.
func (i Impairment) checkPort(node string) *ImpairmentError {
	switch {
	case i.Rate == 0:
		return wrong("rate", fmt.Sprintf("one such as rate: 10gbit, of the link or of the port of %s: a port of a shared buffer sends at its rate", node), "there is no rate")
	case i.Queue != Queue{}:
		_, is := i.Queue.format()
		return wrong("queue", fmt.Sprintf("none: the buffer of %s is the queue", node), "queue %s stands with a shared buffer", is)
	case i.Burst != 0:
		return wrong("burst", fmt.Sprintf("none: the ports of %s never send faster than their rate", node), "burst %s stands with a shared buffer", FormatSize(i.Burst))
	}
	return nil
}

// fitsPort reports what is wrong with an impairment of packets from a node, if that has a buffer, where
// the impairments that it is made of give it, or at.
func fitsPort(r *reader, i Impairment, node string, at *yaml.Node, of ...impairment) {
	if !r.buffered[node] || slices.ContainsFunc(of, impairment.isBroken) {
		return
	}
	if bad := i.checkPort(node); bad != nil {
		bad.report(r, node, at, of)
	}
}

// parseRatio reads a number without a unit, which may be written as a fraction.
func parseRatio(text string) (float64, error) {
	const expected = "a number or a fraction such as 1/8"
	over, under, isFraction := strings.Cut(text, "/")
	n, err := decimalNumber(over, expected)
	if err != nil || !isFraction {
		return n, err
	}
	d, err := decimalNumber(under, expected)
	if err == nil && d == 0 {
		err = fmt.Errorf("found %s, expected %s", quote(text), expected)
	}
	return n / d, err
}
