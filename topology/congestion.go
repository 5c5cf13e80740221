package topology

import (
	"slices"
	"sync"
	"time"
)

// This file is the congestion control of an adapter: its types, its keys and what does not go
// together.

// A Congestion names what decides how fast an adapter sends.
type Congestion string

// The names.
const (
	CongestionWindow Congestion = "window" // the transport's own window, which a path's loss and delay size
	CongestionNone   Congestion = "none"   // nothing: a queue pair sends as fast as the line does
	CongestionDCQCN  Congestion = "dcqcn"  // notifications of marked packets (docs/spec/roce.md 14.3)
	CongestionDCTCP  Congestion = "dctcp"  // a window, by the share of packets that are marked (RFC 8257)
	CongestionBDP    Congestion = "bdp"    // what the path holds, as IRN has it (SIGCOMM'18)
)

var congestions = []Congestion{CongestionWindow, CongestionNone, CongestionDCQCN, CongestionDCTCP, CongestionBDP}

// A Preset names parameters of DCQCN that are known elsewhere.
type Preset string

// The presets.
const (
	PresetConnectX Preset = "connectx" // the defaults that NVIDIA documents of ConnectX adapters
	PresetPaper    Preset = "paper"    // those of the paper on DCQCN (SIGCOMM'15)
)

var presets = []Preset{PresetConnectX, PresetPaper}

// A DCQCN has the parameters of an adapter as a sender, under the names that mlx5 has for them;
// nil leaves that of the preset. Rates are in bits per second. Nodes share the values: they are
// never changed in place.
type DCQCN struct {
	Preset                   Preset         `json:"preset"`
	ClampTgtRate             *bool          `json:"clamp_tgt_rate,omitempty"`
	ClampTgtRateAfterTimeInc *bool          `json:"clamp_tgt_rate_after_time_inc,omitempty"`
	RPGTimeReset             *time.Duration `json:"rpg_time_reset,omitempty"`
	RPGByteReset             *uint64        `json:"rpg_byte_reset,omitempty"` // bytes; 0: none
	RPGThreshold             *uint32        `json:"rpg_threshold,omitempty"`
	RPGMaxRate               *uint64        `json:"rpg_max_rate,omitempty"` // 0: the line's
	RPGAIRate                *uint64        `json:"rpg_ai_rate,omitempty"`
	RPGHAIRate               *uint64        `json:"rpg_hai_rate,omitempty"`
	RPGGD                    *uint32        `json:"rpg_gd,omitempty"`
	RPGMinDecFac             *float64       `json:"rpg_min_dec_fac,omitempty"` // 0 to 1
	RPGMinRate               *uint64        `json:"rpg_min_rate,omitempty"`
	RateToSetOnFirstCNP      *uint64        `json:"rate_to_set_on_first_cnp,omitempty"` // 0: it stays
	DCETCPG                  *uint32        `json:"dce_tcp_g,omitempty"`                // of 1024, what alpha keeps of itself
	DCETCPRTT                *time.Duration `json:"dce_tcp_rtt,omitempty"`
	RateReduceMonitorPeriod  *time.Duration `json:"rate_reduce_monitor_period,omitempty"`
	InitialAlphaValue        *uint32        `json:"initial_alpha_value,omitempty"` // of 1024
	SlowRestart              *bool          `json:"slow_restart,omitempty"`
}

// A DCTCP has the parameters of an adapter as a sender with DCTCP; nil leaves the default. Nodes share
// the values, as those of a DCQCN.
type DCTCP struct {
	G   *float64       `json:"g,omitempty"`   // 0 to 1
	RTT *time.Duration `json:"rtt,omitempty"` // nil: as measured
}

// A BDP has the parameter of an adapter that has a bandwidth-delay product in flight. Nodes share
// the value, as those of a DCQCN.
type BDP struct {
	RTT *time.Duration `json:"rtt,omitempty"` // nil: as measured
}

// A CNPScope says for what an adapter counts the time between two CNPs.
type CNPScope string

// The scopes.
const (
	CNPPerQP      CNPScope = "qp"
	CNPPerAddress CNPScope = "address" // of the peer
	CNPPerPort    CNPScope = "port"
)

var cnpScopes = []CNPScope{CNPPerQP, CNPPerAddress, CNPPerPort}

// A CNP has the parameters of an adapter as a receiver, which sends CNPs; nil leaves that of the
// preset, or of DCTCP. Nodes share the values, as those of a DCQCN.
type CNP struct {
	DSCP    *uint32        `json:"dscp,omitempty"`
	MinTime *time.Duration `json:"min_time,omitempty"` // between two
	Delay   *time.Duration `json:"delay,omitempty"`    // from a marked packet to its CNP
	Per     *CNPScope      `json:"per,omitempty"`
}

// The values of the parameters. mlx5 has ten bits for shares, and at most 131 ms for timers;
// longer ones are for labs whose rates are a fraction of a real network's.
var (
	dscp          = count[uint32](0, 63)
	tenBits       = count[uint32](0, 1023)
	period        = parameterTimes(time.Microsecond)
	periodOrNone  = parameterTimes(0)
	parameterRate = parameterRates(1e3)
	rateOrNone    = parameterRates(0)
)

func parameterTimes(least time.Duration) form[time.Duration] {
	return ranged(adapterTimes.duration, FormatDuration, least, 10*time.Second, durationSchema)
}

func parameterRates(least uint64) form[uint64] {
	return ranged(parseRate, FormatRate, least, maxRate, rates.schema)
}

// needsMap has the schema of a table refuse nothing at all.
func needsMap[M any](_ *keyTable[M], s schema) { s["type"] = "object" }

var dcqcnTable = sync.OnceValue(func() *keyTable[DCQCN] {
	return &keyTable[DCQCN]{
		what: "dcqcn", noun: "dcqcn", def: "dcqcn", initial: DCQCN{Preset: PresetConnectX}, also: needsMap[DCQCN],
		keys: []key[DCQCN]{
			one("preset", fewWords(presets...), func(m *DCQCN) *Preset { return &m.Preset }, "what the keys that are absent are: `connectx` or `paper`").orElse("`connectx`"),
			limit("clamp_tgt_rate", yes, func(m *DCQCN) **bool { return &m.ClampTgtRate }, "`true`: each cut also sets the target, which the rate recovers to, to the rate before it").orElse("`false`; of `paper` `true`"),
			limit("clamp_tgt_rate_after_time_inc", yes, func(m *DCQCN) **bool { return &m.ClampTgtRateAfterTimeInc }, "`true`: a cut does so if the timer has increased the rate since the cut before").orElse("`true`; of `paper` `false`"),
			limit("rpg_time_reset", period, func(m *DCQCN) **time.Duration { return &m.RPGTimeReset }, "from one increase by the timer to the next, $range").orElse("300us; of `paper` 55us"),
			limit("rpg_byte_reset", sized[uint64](adapterSizes, 0, maxBytes), func(m *DCQCN) **uint64 { return &m.RPGByteReset }, "sent from one increase by the byte counter to the next, $range; 0B: no such increases").orElse("0B; of `paper` 10MB"),
			limit("rpg_threshold", count[uint32](1, 31), func(m *DCQCN) **uint32 { return &m.RPGThreshold }, "increases of either kind until fast recovery ends and the target rises, $range").orElse("1; of `paper` 5"),
			limit("rpg_max_rate", rateOrNone, func(m *DCQCN) **uint64 { return &m.RPGMaxRate }, "that a queue pair has at most, $range; 0bit: that of the line").orElse("0bit"),
			limit("rpg_ai_rate", parameterRate, func(m *DCQCN) **uint64 { return &m.RPGAIRate }, "by which an additive increase raises the target, $range").orElse("5mbit; of `paper` 40mbit"),
			limit("rpg_hai_rate", parameterRate, func(m *DCQCN) **uint64 { return &m.RPGHAIRate }, "by which a hyper increase does, $range").orElse("50mbit; of `paper` 200mbit"),
			limit("rpg_gd", count[uint32](10, 11), func(m *DCQCN) **uint32 { return &m.RPGGD }, "a cut takes the share alpha/2 of the rate with 11, alpha with 10").orElse("11"),
			limit("rpg_min_dec_fac", probability, func(m *DCQCN) **float64 { return &m.RPGMinDecFac }, "share of the rate that a cut leaves at least, $range").orElse("50%; of `paper` 0%"),
			limit("rpg_min_rate", parameterRate, func(m *DCQCN) **uint64 { return &m.RPGMinRate }, "that a queue pair has at least, $range; at most `rpg_max_rate`, which the default gives way to").orElse("1mbit"),
			limit("rate_to_set_on_first_cnp", rateOrNone, func(m *DCQCN) **uint64 { return &m.RateToSetOnFirstCNP }, "to which the first CNP of a queue pair sets rate and target, $range; 0bit: it is a cut as others are").orElse("0bit"),
			limit("dce_tcp_g", tenBits, func(m *DCQCN) **uint32 { return &m.DCETCPG }, "how slowly alpha, the extent of congestion, changes, $range: each update gives what was heard since the last one a weight of (1024 - this) in 1024").orElse("1019; of `paper` 1020"),
			limit("dce_tcp_rtt", period, func(m *DCQCN) **time.Duration { return &m.DCETCPRTT }, "from one update of alpha to the next, $range").orElse("1us; of `paper` 55us"),
			limit("rate_reduce_monitor_period", periodOrNone, func(m *DCQCN) **time.Duration { return &m.RateReduceMonitorPeriod }, "from one cut to the next at least, $range; 0us: each CNP cuts").orElse("4us; of `paper` 0us"),
			limit("initial_alpha_value", tenBits, func(m *DCQCN) **uint32 { return &m.InitialAlphaValue }, "alpha at the first CNP, $range of 1024").orElse("1023; of `paper` 1024"),
			limit("slow_restart", yes, func(m *DCQCN) **bool { return &m.SlowRestart }, "`true`: a sender whose peer says that a packet is missing, or does not acknowledge one in time, slows down as with a CNP").orElse("`false`"),
		},
	}
})

var dcqcnForm = briefly("connectx, paper", made(fewWords(presets...), func(p Preset) DCQCN { return DCQCN{Preset: p} }), dcqcnTable, func(m *mapping[DCQCN]) DCQCN {
	least, most := m.is.RPGMinRate, m.is.RPGMaxRate
	if least != nil && most != nil && *most != 0 && *least > *most {
		m.errorf(m.place("rpg_min_rate"), "rpg_min_rate %s exceeds rpg_max_rate %s (line %d), expected at most that",
			FormatRate(*least), FormatRate(*most), m.place("rpg_max_rate").Line)
	}
	return m.is
})

var dctcpTable = sync.OnceValue(func() *keyTable[DCTCP] {
	return &keyTable[DCTCP]{
		what: "dctcp", noun: "dctcp", def: "dctcp", also: needsMap[DCTCP],
		keys: []key[DCTCP]{
			limit("g", probability, func(m *DCTCP) **float64 { return &m.G }, "weight that the share of marked packets of the last window has in alpha, $range").orElse("6.25%, which is 1/16"),
			limit("rtt", period, func(m *DCTCP) **time.Duration { return &m.RTT }, "round trip of a full packet without queues, $range: the window begins with as much as the line carries in it").orElse("four packets, until the first full one is acknowledged: its round trip"),
		},
	}
})

var dctcpForm = onlyMap("{rtt: 12us}", dctcpTable, itself)

var bdpTable = sync.OnceValue(func() *keyTable[BDP] {
	return &keyTable[BDP]{
		what: "bdp", noun: "bdp", def: "bdp", also: needsMap[BDP],
		keys: []key[BDP]{
			limit("rtt", period, func(m *BDP) **time.Duration { return &m.RTT }, "round trip of a full packet on the longest path without queues, $range: a queue pair has in flight what the line carries in it, in whole packets").orElse("the least that a full packet of the queue pair took; four packets until there is one"),
		},
	}
})

var bdpForm = onlyMap("{rtt: 12us}", bdpTable, itself)

var cnpTable = sync.OnceValue(func() *keyTable[CNP] {
	return &keyTable[CNP]{
		what: "cnp", noun: "cnp", def: "cnp", also: needsMap[CNP],
		keys: []key[CNP]{
			limit("dscp", dscp, func(m *CNP) **uint32 { return &m.DSCP }, "of CNPs, $range").orElse("48"),
			limit("min_time", periodOrNone, func(m *CNP) **time.Duration { return &m.MinTime }, "from one CNP to the next at least, $range; 0us: each marked packet makes one, as `dctcp` counts them").orElse("4us; of `paper` 50us; with `dctcp` 0us"),
			limit("delay", periodOrNone, func(m *CNP) **time.Duration { return &m.Delay }, "from a marked packet to its CNP, $range").orElse("0us"),
			limit("per", fewWords(cnpScopes...), func(m *CNP) **CNPScope { return &m.Per }, "what `min_time` is counted for: each `qp`, each `address` of a peer, or the whole `port`").orElse("`qp`"),
		},
	}
})

var cnpForm = onlyMap("{min_time: 4us}", cnpTable, itself)

// congestionKeys are the keys of an adapter block about congestion.
func congestionKeys() []key[Adapter] {
	return []key[Adapter]{
		limit("congestion", manyWords(func() []Congestion { return congestions }), func(a *Adapter) **Congestion { return &a.Congestion }, "what decides how fast a queue pair sends: `window` (if absent), `none`, `dcqcn`, `dctcp` or `bdp`, see [congestion control](#congestion-control)"),
		limit("dcqcn", dcqcnForm, func(a *Adapter) **DCQCN { return &a.DCQCN }, "with `congestion: dcqcn`: the parameters of a sender, `connectx` (if absent), `paper`, or a map of [these](#congestion-control)"),
		limit("dctcp", dctcpForm, func(a *Adapter) **DCTCP { return &a.DCTCP }, "with `congestion: dctcp`: the parameters of a sender, a map of [these](#congestion-control)"),
		limit("bdp", bdpForm, func(a *Adapter) **BDP { return &a.BDP }, "with `congestion: bdp`: the parameter of a sender, a map of [this](#congestion-control)"),
		limit("dscp", dscp, func(a *Adapter) **uint32 { return &a.DSCP }, "of the IP packets of reliable connections, unless a program asks for another, $range; absent: 26 with `congestion: dcqcn` and `dctcp`, else 0"),
		limit("cnp", cnpForm, func(a *Adapter) **CNP { return &a.CNP }, "with `congestion: dcqcn` and `dctcp`: the parameters of a receiver, a map of [these](#congestion-control)"),
		limit("pfc", priorityList, func(a *Adapter) **[]uint32 { return &a.PFC }, "a list of priorities, 0 to 7, that it stops sending when its switch asks for it, and for which it asks its switch to stop: `[3]`, see [shared buffers and PFC](#shared-buffers-and-pfc); absent: none"),
	}
}

// congestionOf has the congestion control that parameters are for.
var congestionOf = []struct {
	key   string
	of    []Congestion
	unset func(*Adapter)
}{
	{"dcqcn", []Congestion{CongestionDCQCN}, func(a *Adapter) { a.DCQCN = nil }},
	{"dctcp", []Congestion{CongestionDCTCP}, func(a *Adapter) { a.DCTCP = nil }},
	{"bdp", []Congestion{CongestionBDP}, func(a *Adapter) { a.BDP = nil }},
	{"cnp", []Congestion{CongestionDCQCN, CongestionDCTCP}, func(a *Adapter) { a.CNP = nil }},
}

// resolveCongestion leaves out parameters that a nearer block makes void by another congestion
// control, and reports others that have no effect.
func resolveCongestion(r *reader, a *Adapter, blocks layers[Adapter]) {
	chosen := blocks.find("congestion")
	if chosen.at != nil && !chosen.ok {
		return
	}
	nearest := func(key string) int {
		return slices.IndexFunc(blocks, func(p *mapping[Adapter]) bool { return p.has(key) })
	}
	for _, p := range congestionOf {
		if a.Congestion != nil && slices.Contains(p.of, *a.Congestion) {
			continue
		}
		switch given := blocks.find(p.key); {
		case !given.ok:
		case chosen.at == nil:
			r.errorf(given.at, "%s is given without congestion: %s, expected that key beside it: nothing else has these parameters", p.key, alternatives(texts(p.of)))
		case nearest(p.key) <= nearest("congestion"):
			r.errorf(given.at, "%s is given with congestion: %s (line %d), expected congestion: %s, or no %s", p.key, *a.Congestion, chosen.at.Line, alternatives(texts(p.of)), p.key)
		}
		p.unset(a)
	}
}
