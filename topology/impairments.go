package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// An impairment is what a map gives of an Impairment's keys.
type impairment struct {
	change  Change
	at      map[string]*yaml.Node // the values given, by key, right or not
	broken  bool                  // one of them is wrong
	senders []val[string]         // for each of the faults, the node whose packets alone it is for
}

// impairmentKeys are the keys in the order of Impairment.
var impairmentKeys = []string{"delay", "jitter", "loss", "duplicate", "reorder", "corrupt", "rate", "burst", "queue", "ecn", "cut", "flap", "faults"}

// impairment is the fields of an impairment, in the order of impairmentKeys.
func (r *reader) impairment(m *impairment) []field {
	c := &m.change
	faults := setting(r, m, "faults", &c.Faults, func(n *yaml.Node) []Fault { return r.faults(n, m) })
	return []field{
		setting(r, m, "delay", &c.Delay, single(r, linkDelay)),
		setting(r, m, "jitter", &c.Jitter, r.jitter),
		setting(r, m, "loss", &c.Loss, r.loss),
		setting(r, m, "duplicate", &c.Duplicate, single(r, probability)),
		setting(r, m, "reorder", &c.Reorder, r.reorder),
		setting(r, m, "corrupt", &c.Corrupt, r.corrupt),
		setting(r, m, "rate", &c.Rate, single(r, linkRate)),
		setting(r, m, "burst", &c.Burst, single(r, burstSize)),
		setting(r, m, "queue", &c.Queue, r.queue),
		setting(r, m, "ecn", &c.ECN, r.ecn),
		setting(r, m, "cut", &c.Cut, single(r, yes)),
		setting(r, m, "flap", &c.Flap, r.flap),
		{"faults", func(n *yaml.Node) {
			faults.read(n)
			if c.Faults != nil && *c.Faults == nil {
				c.Faults = &[]Fault{} // JSON does not tell nil from no change
			}
		}},
	}
}

func isNone(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == none }

// setting is the field of one key, whose value read reads and to receives if it
// is right.
func setting[T any](r *reader, m *impairment, key string, to **T, read func(*yaml.Node) T) field {
	return field{key, func(n *yaml.Node) {
		if m.at == nil {
			m.at = make(map[string]*yaml.Node)
		}
		m.at[key] = n
		var v T
		before := len(r.errors)
		if !isNone(n) {
			v = read(n)
		}
		if len(r.errors) > before {
			m.broken = true
			return
		}
		*to = &v
	}}
}

// single reads a value that has no other form than parse's.
func single[T any](r *reader, parse func(string) (T, error)) func(*yaml.Node) T {
	return func(n *yaml.Node) T { return scalar(r, n, parse).is }
}

// brief reads a value in its brief form, or reports false if it is a map. What it
// is called in its brief form is for messages.
func brief[T any](r *reader, n *yaml.Node, what string, parse func(string) (T, error)) (v T, ok bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		return v, false
	case n.Kind == yaml.SequenceNode || isNull(n):
		r.valueError(n, "found %s, expected %s or a map", describe(n), what)
		return v, true
	}
	return scalar(r, n, parse).is, true
}

// The values of an impairment's keys.
var (
	linkDelay   = span(0, maxDelay)
	probability = within(parsePercent, FormatPercent, 0, 1)
	chance      = within(parsePercent, FormatPercent, 1e-12, 1) // a probability other than never
	linkRate    = rateAbove0(within(parseRate, FormatRate, 1, maxRate))
	burstSize   = sized[uint64](sizes, 0, maxBytes)
	queueSize   = sized[uint64](queueSizes, minQueue, maxBytes)
	queueLength = within(func(text string) (uint64, error) { return packetCounts.whole(text, "packets") }, formatPackets, 1, maxPackets)
	markSize    = sized[uint64](sizes, 0, maxBytes)
	place       = count[uint64](1, 1<<40)
)

// rateAbove0 is parse with a message of its own for a rate of nothing.
func rateAbove0(parse func(string) (uint64, error)) func(string) (uint64, error) {
	return func(text string) (uint64, error) {
		if n, err := parseRate(text); err == nil && n == 0 {
			return 0, fmt.Errorf("%s passes nothing, expected 1bit to 1tbit, none for no limit, or cut: true", text)
		}
		return parse(text)
	}
}

func (r *reader) jitter(n *yaml.Node) Jitter {
	if spread, ok := brief(r, n, "a duration such as 50us", linkDelay); ok {
		return Jitter{Spread: spread}
	}
	var spread val[time.Duration]
	var distributed val[Distribution]
	var samples []time.Duration
	var list, file val[[]time.Duration]
	r.fields(n, "jitter",
		one(r, "spread", &spread, linkDelay),
		one(r, "distribution", &distributed, distribution),
		field{"samples", func(n *yaml.Node) {
			list.at = n
			before := len(r.errors)
			r.items(n, func(n *yaml.Node) { samples = append(samples, scalar(r, n, sample).is) })
			if len(r.errors) == before {
				r.hasSamples(n, samples)
			}
		}},
		field{"file", func(n *yaml.Node) {
			file.at = n
			if name := scalar(r, n, anyText); name.ok {
				samples = r.sampleFile(n, name.is)
			}
		}},
	)
	r.exactlyOne(n, "jitter", need("spread", spread), need("samples", list), need("file", file))
	if samples != nil {
		if distributed.at != nil {
			r.errorf(distributed.at, "distribution stands with samples, expected it with spread: samples are their own distribution")
		}
		return Jitter{Distribution: Sampled, Samples: samples}
	}
	return Jitter{Spread: spread.is, Distribution: distributed.is}
}

// hasSamples reports if there are too few or too many.
func (r *reader) hasSamples(n *yaml.Node, samples []time.Duration) {
	if len(samples) == 0 || len(samples) > maxSamples {
		r.valueError(n, "%d samples, expected 1 to %d", len(samples), maxSamples)
	}
}

// distribution is a parser for how jitter is spread. Uniform is what there is
// without.
func distribution(text string) (Distribution, error) {
	switch d := Distribution(text); d {
	case Uniform:
		return "", nil
	case Normal, Pareto:
		return d, nil
	}
	return "", fmt.Errorf("found %s, expected uniform, normal or pareto", quote(text))
}

// sample is a parser for a duration that may be negative.
var sample = within(parseDuration, formatSigned, -maxDelay, maxDelay)

func (r *reader) loss(n *yaml.Node) Loss {
	if rate, ok := brief(r, n, "a percentage such as 0.1%", probability); ok {
		return Loss{Rate: rate}
	}
	var rate, burst val[float64]
	var every val[uint64]
	var packets val[[]uint64]
	r.fields(n, "loss",
		one(r, "rate", &rate, probability),
		one(r, "burst", &burst, within(parseLength, formatNumber, 1, maxBurst)),
		one(r, "every", &every, place),
		field{"packets", func(n *yaml.Node) { packets = r.places(n) }},
	)
	if burst.at != nil && rate.at == nil {
		r.errorf(burst.at, "burst stands without rate, expected rate too: what share of packets is lost")
	} else {
		r.anyOf(n, "loss", need("rate", rate), need("every", every), need("packets", packets))
	}
	return Loss{Rate: rate.is, Burst: burst.is, Every: every.is, Packets: packets.is}
}

// places reads which packets of a sequence, as a number or a list; they are
// returned in ascending order.
func (r *reader) places(n *yaml.Node) val[[]uint64] {
	v := val[[]uint64]{at: n}
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		v.is = []uint64{scalar(r, n, place).is}
		return v
	}
	before := len(r.errors)
	r.items(n, func(n *yaml.Node) { v.is = append(v.is, scalar(r, n, place).is) })
	slices.Sort(v.is)
	v.is = slices.Compact(v.is)
	if len(r.errors) == before && (len(v.is) == 0 || len(v.is) > maxPlaces) {
		r.valueError(n, "%d places, expected 1 to %d, of which 1 is the first packet's", len(v.is), maxPlaces)
	}
	return v
}

func (r *reader) reorder(n *yaml.Node) Reorder {
	if p, ok := brief(r, n, "a percentage such as 1%", probability); ok {
		return Reorder{Probability: p}
	}
	var p val[float64]
	var depth val[int]
	r.fields(n, "reorder",
		one(r, "probability", &p, probability),
		one(r, "depth", &depth, count[int](1, MaxReorderDepth)),
	)
	r.required(n, "reorder", need("probability", p))
	return Reorder{Probability: p.is, Depth: depth.is}
}

func (r *reader) corrupt(n *yaml.Node) Corrupt {
	if p, ok := brief(r, n, "a percentage such as 0.1%", probability); ok {
		return Corrupt{Probability: p}
	}
	var p val[float64]
	var anywhere val[bool]
	var bits val[int]
	r.fields(n, "corrupt",
		one(r, "probability", &p, probability),
		one(r, "where", &anywhere, choice("payload", "anywhere")),
		one(r, "bits", &bits, count[int](1, MaxCorruptBits)),
	)
	r.required(n, "corrupt", need("probability", p))
	return Corrupt{Probability: p.is, Anywhere: anywhere.is, Bits: bits.is}
}

func (r *reader) queue(n *yaml.Node) Queue {
	if q, ok := brief(r, n, "a size such as 4MiB, a number of packets such as 1000packets", queueBound); ok {
		return q
	}
	var bytes, packets val[uint64]
	r.fields(n, "queue",
		one(r, "bytes", &bytes, sized[uint64](sizes, minQueue, maxBytes)),
		one(r, "packets", &packets, count[uint64](1, maxPackets)),
	)
	r.anyOf(n, "queue", need("bytes", bytes), need("packets", packets))
	return Queue{Bytes: bytes.is, Packets: packets.is}
}

// queueBound is a parser for one bound of a queue.
func queueBound(text string) (q Queue, err error) {
	if strings.HasSuffix(text, packetCounts.usual) {
		q.Packets, err = queueLength(text)
	} else {
		q.Bytes, err = queueSize(text)
	}
	return q, err
}

func (r *reader) ecn(n *yaml.Node) ECN {
	if n.Kind != yaml.MappingNode {
		r.valueError(n, "found %s, expected a map such as {min: 100KiB, max: 400KiB}", describe(n))
		return ECN{}
	}
	var least, most val[uint64]
	r.fields(n, "ecn",
		one(r, "min", &least, markSize),
		one(r, "max", &most, markSize),
	)
	r.required(n, "ecn", need("min", least), need("max", most))
	return ECN{Min: least.is, Max: most.is}
}

func (r *reader) flap(n *yaml.Node) Flap {
	if n.Kind != yaml.MappingNode {
		r.valueError(n, "found %s, expected a map such as {period: 1s, down: 100ms}", describe(n))
		return Flap{}
	}
	var period, down val[time.Duration]
	r.fields(n, "flap",
		one(r, "period", &period, span(minPeriod, maxPeriod)),
		one(r, "down", &down, span(1, maxPeriod)),
	)
	r.required(n, "flap", need("period", period), need("down", down))
	return Flap{Period: period.is, Down: down.is}
}

// place is where the first of the impairments gives one of the keys that an error
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
func (r *reader) fits(l *Link, i Impairment, who string, at *yaml.Node, of ...impairment) {
	if slices.ContainsFunc(of, func(i impairment) bool { return i.broken }) {
		return
	}
	var bad *ImpairmentError
	if errors.As(i.Check(), &bad) || errors.As(l.Engine.Check(i, l.Offload), &bad) || errors.As(l.CheckQueue(i), &bad) {
		r.errorf(bad.place(at, of...), "packets from %s: %s, expected %s", who, bad.Found, bad.Expected)
	}
}
