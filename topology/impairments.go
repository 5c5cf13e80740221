package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of an impairment, which links, link defaults, reverse and
// timeline entries share with the command line (settings.go); faults, which have many keys of
// their own, are in faults.go.

// none stands for the value of an impairment's key that takes away what another
// place has set, as nothing can be written that does: a rate of 0 would pass
// nothing.
const none = "none"

// An impairment has those of an Impairment's keys that a map gives.
type impairment struct {
	change  Change
	at      map[string]*yaml.Node // the values given, by key, right or not
	broken  bool                  // one of them is wrong
	senders []val[string]         // for each of the faults, the node whose packets alone it is for
}

// An impairmentKey is a key of an impairment, with what there is to do with its value.
type impairmentKey struct {
	key[impairment]
	apply func(*Impairment, *Change)                       // gives an impairment what a change has of the key
	equal func(a, b *Impairment) bool                      // reports whether both do the same by it
	take  func(*Change, *Impairment)                       // has a change set what an impairment has
	write func(*Change) (value, text string, changed bool) // as a file has it, and in words
	port  bool                                             // ports of switches and routers have it, too
}

// setting is a key for a field of Impairment and the same of Change.
func setting[T any](name string, f form[T], of func(*Impairment) *T, to func(*Change) **T,
	equal func(a, b T) bool, write func(T) (value, text string), doc string) impairmentKey {
	return settingOf(name, f, func(v T, _ *impairment) T { return v }, of, to, equal, write, doc)
}

// settingOf is setting with what makes the field of the value, and keeps the rest.
func settingOf[S, T any](name string, f form[S], make func(S, *impairment) T, of func(*Impairment) *T, to func(*Change) **T,
	equal func(a, b T) bool, write func(T) (value, text string), doc string) impairmentKey {
	return impairmentKey{
		key: key[impairment]{
			keyText: keyText{name: name, doc: doc, ranges: f.ranges, schema: func() schema { return orNone(f.schema()) }},
			read: func(r *reader, n *yaml.Node) func(*impairment) {
				var v S
				before := len(r.errors)
				if !isNone(n) {
					v = f.of(r, n).is
				}
				bad := len(r.errors) > before
				return func(m *impairment) {
					if m.at == nil {
						m.at = map[string]*yaml.Node{}
					}
					m.at[name] = n
					made := make(v, m)
					if m.broken = m.broken || bad; !bad {
						*to(&m.change) = &made
					}
				}
			},
		},
		apply: func(i *Impairment, c *Change) {
			if by := *to(c); by != nil {
				*of(i) = *by
			}
		},
		equal: func(a, b *Impairment) bool { return equal(*of(a), *of(b)) },
		take: func(c *Change, i *Impairment) {
			v := *of(i)
			*to(c) = &v
		},
		write: func(c *Change) (value, text string, changed bool) {
			v := *to(c)
			if v == nil {
				return "", "", false
			}
			value, text = write(*v)
			return value, text, true
		},
	}
}

// atPorts is the key as one that ports have, too.
func (k impairmentKey) atPorts() impairmentKey {
	k.port = true
	return k
}

// impairmentKeys are the keys in the order of Impairment.
var impairmentKeys = sync.OnceValue(func() []impairmentKey {
	return []impairmentKey{
		setting("delay", linkDelay, func(i *Impairment) *time.Duration { return &i.Delay }, func(c *Change) **time.Duration { return &c.Delay },
			equal, inWords(FormatDuration), "added one way, $range"),
		setting("jitter", jitterForm, func(i *Impairment) *Jitter { return &i.Jitter }, func(c *Change) **Jitter { return &c.Jitter },
			Jitter.equal, Jitter.format, "varies the delay: `50us`, or a map, see below. Packets stay in order unless `reorder` is there, too"),
		setting("loss", lossForm, func(i *Impairment) *Loss { return &i.Loss }, func(c *Change) **Loss { return &c.Loss },
			Loss.equal, Loss.format, "packets that do not arrive: `1%`, or a map, see below"),
		setting("duplicate", probability, func(i *Impairment) *float64 { return &i.Duplicate }, func(c *Change) **float64 { return &c.Duplicate },
			equal, inWords(FormatPercent), "share of packets that arrive twice, `0.1%`"),
		setting("reorder", reorderForm, func(i *Impairment) *Reorder { return &i.Reorder }, func(c *Change) **Reorder { return &c.Reorder },
			equal, Reorder.format, "share of packets that overtake others on their way: `1%`, or a map, see below. Needs `delay`: else nothing is on its way"),
		setting("corrupt", corruptForm, func(i *Impairment) *Corrupt { return &i.Corrupt }, func(c *Change) **Corrupt { return &c.Corrupt },
			equal, Corrupt.format, "share of packets in which a bit is flipped: `0.01%`, or a map, see below. Checksums are those from before, so that the receiver's ICRC has to catch it; of what `where: anywhere` hits, some bits of headers are covered by no checksum"),
		setting("rate", linkRate, func(i *Impairment) *uint64 { return &i.Rate }, func(c *Change) **uint64 { return &c.Rate },
			equal, unlessZero(FormatRate), "$range per second, of bytes as a wire has them: preamble, padding, check sequence and gap included, which is 24 bytes a packet").atPorts(),
		setting("burst", burstSize, func(i *Impairment) *uint64 { return &i.Burst }, func(c *Change) **uint64 { return &c.Burst },
			equal, unlessZero(FormatSize), "bytes that pass at once after a pause, ahead of `rate`, `64KiB`; absent: none").atPorts(),
		setting("queue", queueForm, func(i *Impairment) *Queue { return &i.Queue }, func(c *Change) **Queue { return &c.Queue },
			equal, Queue.format, "what may wait for `rate`; what comes when it is full is dropped: `4MiB`, `1000packets`, or both in a map of `bytes` and `packets`, `{bytes: 4MiB, packets: 1000}`; no less than a packet of the MTU takes on a wire. Absent: 50 ms of the rate, and 4 MiB at least").atPorts(),
		setting("ecn", ecnForm, func(i *Impairment) *ECN { return &i.ECN }, func(c *Change) **ECN { return &c.ECN },
			equal, ECN.format, "`{min: 100KiB, max: 400KiB}`: ECN-capable packets are marked if more than `min` waits in the queue, all from `max` on, in between a share that grows evenly, up to all or to `probability`; with both alike, all are that find more, as DCTCP has it. RDMA packets are ECN-capable only from adapters with [`congestion: dcqcn` or `dctcp`](#congestion-control)").atPorts(),
		setting("cut", yes, func(i *Impairment) *bool { return &i.Cut }, func(c *Change) **bool { return &c.Cut },
			equal, inWords(strconv.FormatBool), "`true`: nothing arrives, though the ends keep their carrier"),
		setting("flap", flapForm, func(i *Impairment) *Flap { return &i.Flap }, func(c *Change) **Flap { return &c.Flap },
			equal, Flap.format, "`{period: 1s, down: 100ms}`: the direction is cut for the last `down` of each `period`"),
		faultsKey(),
	}
})

// equal is == of values that have it.
func equal[T comparable](a, b T) bool { return a == b }

// inWords is values that are the same in a file and in words.
func inWords[T any](format func(T) string) func(T) (value, text string) {
	return func(v T) (value, text string) { return format(v), format(v) }
}

// unlessZero is inWords, where 0 is nothing.
func unlessZero(format func(uint64) string) func(uint64) (value, text string) {
	return inWords(func(n uint64) string { return unless(n == 0, format(n)) })
}

// impairmentTable is the keys of an impairment of a link itself.
var impairmentTable = sync.OnceValue(func() *keyTable[impairment] {
	return &keyTable[impairment]{what: "settings", noun: "impairment", keys: impaired(true)}
})

// impaired is the keys as those of a map that is read into an impairment. Only the faults
// of a link itself may say whose packets they are for.
func impaired(ofLink bool) []key[impairment] {
	var all []key[impairment]
	for _, k := range impairmentKeys() {
		if k.name == "faults" && !ofLink {
			k.schema = func() schema { return orNone(faultList("faultOfAny")) }
		}
		all = append(all, k.key)
	}
	return all
}

func isNone(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == none }

// The values of an impairment's keys.
var (
	linkDelay   = span(0, maxDelay)
	probability = share(0)
	linkRate    = rateAbove0(ranged(parseRate, FormatRate, 1, maxRate, rates.schema))
	burstSize   = sized[uint64](sizes, 0, maxBytes)
	place       = count[uint64](1, 1<<40)
)

// share is probabilities from the least on.
func share(least float64) form[float64] {
	return ranged(ParsePercent, FormatPercent, least, 1, percentages.schema)
}

// rateAbove0 is the form with a message of its own for a rate of nothing.
func rateAbove0(f form[uint64]) form[uint64] {
	parse := f.parse
	f.parse = func(text string) (uint64, error) {
		if n, err := parseRate(text); err == nil && n == 0 {
			return 0, fmt.Errorf("%s passes nothing, expected 1bit to 1tbit, none for no limit, or cut: true", text)
		}
		return parse(text)
	}
	return f
}

var jitterTable = sync.OnceValue(func() *keyTable[Jitter] {
	samples := func(m *Jitter) *[]time.Duration { return &m.Samples }
	return &keyTable[Jitter]{
		what: "jitter", noun: "jitter", def: "jitter", exactlyOne: []string{"spread", "samples", "file"},
		also: func(_ *keyTable[Jitter], s schema) {
			s["dependentRequired"] = schema{"distribution": []string{"spread"}}
		},
		keys: []key[Jitter]{
			one("spread", linkDelay, func(m *Jitter) *time.Duration { return &m.Spread }, "up to the delay"),
			one("samples", form[[]time.Duration]{read: sampleList, schema: func() schema {
				return schema{"type": "array", "items": signedSchema(), "minItems": 1, "maxItems": maxSamples}
			}}, samples, "a list of durations, of which a random one is added to the delay; may be negative, but not below minus the delay"),
			one("file", form[[]time.Duration]{schema: textSchema, read: sampleFile}, samples,
				"a file of such durations, one a line, with comments from `#` on, up to 1 MiB and 16384 samples; a relative path is from the topology's folder, or from where `ndklab link set` runs"),
			one("distribution", fewWords(Uniform, Normal, Pareto), func(m *Jitter) *Distribution { return &m.Distribution },
				"with `spread`: `uniform` (the default: evenly, up to the spread either way), `normal` (the spread is the standard deviation), `pareto` (the same, with a long tail of late packets). A packet's delay is never below 0"),
		},
	}
})

var jitterForm = briefly("a duration such as 50us", made(linkDelay, func(d time.Duration) Jitter { return Jitter{Spread: d} }), jitterTable,
	func(m *mapping[Jitter]) Jitter {
		j := m.is
		switch {
		case j.Samples != nil:
			if at := m.place("distribution"); at != nil {
				m.errorf(at, "distribution stands with samples, expected it with spread: samples are their own distribution")
			}
			j.Distribution = Sampled
		case j.Distribution == Uniform: // the default
			j.Distribution = ""
		}
		return j
	})

// sampleList reads durations, which may be negative.
func sampleList(r *reader, n *yaml.Node) (samples []time.Duration) {
	before := len(r.errors)
	r.items(n, func(n *yaml.Node) { samples = append(samples, scalar(r, n, sample).is) })
	if len(r.errors) == before {
		hasSamples(r, n, samples)
	}
	return samples
}

// hasSamples reports if there are too few or too many.
func hasSamples(r *reader, n *yaml.Node, samples []time.Duration) {
	if len(samples) == 0 || len(samples) > maxSamples {
		r.valueError(n, "%d samples, expected 1 to %d", len(samples), maxSamples)
	}
}

// sample is a parser for a duration that may be negative.
var sample = within(parseDuration, formatSigned, -maxDelay, maxDelay)

var lossTable = sync.OnceValue(func() *keyTable[Loss] {
	return &keyTable[Loss]{
		what: "loss", noun: "loss", def: "loss",
		also: func(_ *keyTable[Loss], s schema) {
			s["type"] = "object"
			s.requiring("anyOf", "rate", "every", "packets")["dependentRequired"] = schema{"burst": []string{"rate"}}
		},
		keys: []key[Loss]{
			one("rate", probability, func(m *Loss) *float64 { return &m.Rate }, "share of packets"),
			one("burst", ranged(parseLength, formatNumber, 1, maxBurst, func() schema { return fraction(1, maxBurst) }), func(m *Loss) *float64 { return &m.Burst },
				"with `rate`: mean number of packets that are lost in a row, by Gilbert and Elliott's model, from 1 on; the share stays `rate`, which is at most burst/(burst+1). Absent: each packet for itself"),
			one("every", place, func(m *Loss) *uint64 { return &m.Every }, "each so many-th packet"),
			one("packets", places, func(m *Loss) *[]uint64 { return &m.Packets }, "those at these places, `[3, 17]`; 1 is the first that meets this `loss`"),
		},
	}
})

var lossForm = briefly("a percentage such as 0.1%", made(probability, func(p float64) Loss { return Loss{Rate: p} }), lossTable,
	func(m *mapping[Loss]) Loss {
		if m.has("burst") && !m.has("rate") {
			m.errorf(m.place("burst"), "burst stands without rate, expected rate too: what share of packets is lost")
		} else {
			m.anyOf("rate", "every", "packets")
		}
		return m.is
	})

// places reads the places of packets in a sequence, as a number or a list, in ascending order.
var places = form[[]uint64]{
	schema: func() schema { return oneOrList(place.schema(), maxPlaces) },
	read: func(r *reader, n *yaml.Node) (list []uint64) {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			return []uint64{place.of(r, n).is}
		}
		before := len(r.errors)
		r.items(n, func(n *yaml.Node) { list = append(list, place.of(r, n).is) })
		slices.Sort(list)
		list = slices.Compact(list)
		if len(r.errors) == before && (len(list) == 0 || len(list) > maxPlaces) {
			r.valueError(n, "%d places, expected 1 to %d, of which 1 is the first packet's", len(list), maxPlaces)
		}
		return list
	},
}

var reorderTable = sync.OnceValue(func() *keyTable[Reorder] {
	return &keyTable[Reorder]{
		what: "reorder", noun: "reorder", def: "reorder", required: []string{"probability"},
		keys: []key[Reorder]{
			one("probability", probability, func(m *Reorder) *float64 { return &m.Probability }, "share of packets"),
			one("depth", count[int](1, MaxReorderDepth), func(m *Reorder) *int { return &m.Depth }, "how many packets each overtakes at most, $range").orElse("1"),
		},
	}
})

var reorderForm = briefly("a percentage such as 1%", made(probability, func(p float64) Reorder { return Reorder{Probability: p} }), reorderTable, itself)

var corruptTable = sync.OnceValue(func() *keyTable[Corrupt] {
	return &keyTable[Corrupt]{
		what: "corrupt", noun: "corrupt", def: "corrupt", required: []string{"probability"},
		keys: []key[Corrupt]{
			one("probability", probability, func(m *Corrupt) *float64 { return &m.Probability }, "share of packets"),
			one("where", choice("payload", "anywhere"), func(m *Corrupt) *bool { return &m.Anywhere },
				"`payload` of UDP or TCP, or `anywhere` behind the Ethernet header").orElse("`payload`"),
			one("bits", count[int](1, MaxCorruptBits), func(m *Corrupt) *int { return &m.Bits }, "how many bits are flipped, $range").orElse("1"),
		},
	}
})

var corruptForm = briefly("a percentage such as 0.1%", made(probability, func(p float64) Corrupt { return Corrupt{Probability: p} }), corruptTable, itself)

var queueTable = sync.OnceValue(func() *keyTable[Queue] {
	return &keyTable[Queue]{
		what: "queue", noun: "queue", def: "queue", atLeastOne: []string{"bytes", "packets"},
		keys: []key[Queue]{
			one("bytes", sized[uint64](sizes, minQueue, maxBytes), func(m *Queue) *uint64 { return &m.Bytes }, "at most so many bytes"),
			one("packets", count[uint64](1, maxPackets), func(m *Queue) *uint64 { return &m.Packets }, "at most so many packets"),
		},
	}
})

var queueForm = briefly("a size such as 4MiB, a number of packets such as 1000packets", queueBound, queueTable, itself)

var (
	queueSize   = sized[uint64](queueSizes, minQueue, maxBytes)
	queueLength = ranged(func(text string) (uint64, error) { return packetCounts.whole(text, "packets") }, formatPackets, 1, maxPackets, packetCounts.schema)
)

// queueBound is one bound of a queue.
var queueBound = single(func(text string) (q Queue, err error) {
	if strings.HasSuffix(text, packetCounts.usual) {
		q.Packets, err = queueLength.parse(text)
	} else {
		q.Bytes, err = queueSize.parse(text)
	}
	return q, err
}, func() schema { return anyOf(queueSize.schema(), queueLength.schema()) })

var ecnTable = sync.OnceValue(func() *keyTable[ECN] {
	mark := sized[uint64](sizes, 0, maxBytes)
	return &keyTable[ECN]{
		what: "ecn", noun: "ecn", def: "ecn", required: []string{"min", "max"},
		keys: []key[ECN]{
			one("min", mark, func(m *ECN) *uint64 { return &m.Min }, "above which packets are marked"),
			one("max", mark, func(m *ECN) *uint64 { return &m.Max }, "from which all are"),
			one("probability", share(1e-9), func(m *ECN) *float64 { return &m.Probability }, "share of packets that is marked just below `max`, $range").orElse("100%"),
		},
	}
})

var ecnForm = onlyMap("{min: 100KiB, max: 400KiB}", ecnTable, func(m *mapping[ECN]) ECN {
	if m.is.Probability == 1 { // the default
		m.is.Probability = 0
	}
	return m.is
})

var flapTable = sync.OnceValue(func() *keyTable[Flap] {
	return &keyTable[Flap]{
		what: "flap", noun: "flap", def: "flap", required: []string{"period", "down"},
		keys: []key[Flap]{
			one("period", span(minPeriod, maxPeriod), func(m *Flap) *time.Duration { return &m.Period }, "from one time to the next, $range"),
			one("down", span(1, maxPeriod), func(m *Flap) *time.Duration { return &m.Down }, "for how long, at its end"),
		},
	}
})

var flapForm = onlyMap("{period: 1s, down: 100ms}", flapTable, itself)

// place returns where the first of the impairments gives one of the keys that an error
// has to do with, or at if none does.
func (e *ImpairmentError) place(at *yaml.Node, impairments ...impairment) *yaml.Node {
	for _, i := range impairments {
		for _, key := range e.Keys {
			if n := i.at[key]; n != nil {
				return n
			}
		}
	}
	return at
}

// fits reports what is wrong with an impairment of a link, of packets from who,
// where the impairments that it is made of give it, or at.
func fits(r *reader, l *Link, i Impairment, who string, at *yaml.Node, of ...impairment) {
	if slices.ContainsFunc(of, impairment.isBroken) {
		return
	}
	var bad *ImpairmentError
	if errors.As(i.Check(), &bad) || errors.As(l.Engine.Check(i, l.Offload), &bad) || errors.As(l.CheckQueue(i), &bad) {
		bad.report(r, who, at, of)
	}
}

// report reports the error about an impairment of packets from who.
func (e *ImpairmentError) report(r *reader, who string, at *yaml.Node, of []impairment) {
	r.errorf(e.place(at, of...), "packets from %s: %s, expected %s", who, e.Found, e.Expected)
}

func (i impairment) isBroken() bool { return i.broken }
