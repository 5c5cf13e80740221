package topology

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of faults.

// faultsKey is the key of faults.
func faultsKey() impairmentKey {
	k := settingOf("faults", form[[]Fault]{schema: func() schema { return faultList("fault") }}, (*reader).faults,
		func(i *Impairment) *[]Fault { return &i.Faults }, func(c *Change) **[]Fault { return &c.Faults },
		func(a, b []Fault) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }, formatFaults,
		"a list of [faults](#faults): RDMA packets chosen one by one")
	read := k.read
	k.read = func(r *reader, n *yaml.Node, m *impairment) {
		if read(r, n, m); m.change.Faults != nil && *m.change.Faults == nil {
			m.change.Faults = &[]Fault{} // JSON does not tell nil from no change
		}
	}
	return k
}

// faultList is the schema of a list of faults.
func faultList(of string) schema {
	return schema{"type": []string{"array", "null"}, "items": reference(of), "maxItems": maxFaults}
}

// faults reads a list of faults for m, which also gets the node whose packets
// alone each is for.
func (r *reader) faults(n *yaml.Node, m *impairment) (faults []Fault) {
	if len(n.Content) > maxFaults {
		r.valueError(n, "%d faults, expected at most %d", len(n.Content), maxFaults)
		return nil
	}
	r.items(n, func(n *yaml.Node) {
		f := r.fault(n)
		faults = append(faults, f.fault)
		m.senders = append(m.senders, f.from)
	})
	return faults
}

// A faultMap is a fault, and the node whose packets alone it is for.
type faultMap struct {
	fault  Fault
	match  val[Match]
	action val[Action]
	delay  val[time.Duration]
	from   val[string]
}

var faultTable = sync.OnceValue(func() *keyTable[faultMap] {
	return &keyTable[faultMap]{
		what: "a fault", noun: "fault", def: "fault", required: []string{"match", "action"},
		also: func(_ *keyTable[faultMap], s schema) {
			s["if"] = schema{"properties": schema{"action": schema{"const": string(Postpone)}}, "required": []string{"action"}}
			s["then"] = schema{"required": []string{"delay"}}
			s["else"] = schema{"properties": schema{"delay": false}}
		},
		keys: []key[faultMap]{
			one("match", matchForm, func(m *faultMap) *val[Match] { return &m.match }, "a map of what has to apply, all of it; `{}` is every RoCEv2 packet"),
			one("action", fewWords(Drop, Postpone, Double, Corrode), func(m *faultMap) *val[Action] { return &m.action }, "`drop`, `delay`, `duplicate` or `corrupt` (a bit of the payload is flipped)"),
			one("delay", span(1, maxDelay), func(m *faultMap) *val[time.Duration] { return &m.delay }, "with the action `delay`: by how much, while others may overtake"),
			one("from", anyText, func(m *faultMap) *val[string] { return &m.from }, "a node at the link: only packets that it sends. In `faults` of a link alone: elsewhere, `reverse` or the `from` beside `set` says it"),
		},
	}
})

// faultOfAnyTable is the keys of faults that do not say whose packets they are for.
func faultOfAnyTable() *keyTable[faultMap] {
	t := *faultTable()
	t.noun, t.def, t.keys = "fault of any", "faultOfAny", keysWithout(t.keys, "from")
	return &t
}

func (r *reader) fault(n *yaml.Node) (m faultMap) {
	before := len(r.errors)
	faultTable().read(r, n, &m)
	m.fault = Fault{Match: m.match.is, Action: m.action.is, Delay: m.delay.is}
	if bad := m.fault.check(); bad != nil && len(r.errors) == before {
		r.errorf(n, "%s, expected %s", bad.Found, bad.Expected)
	}
	return m
}

// noSenders reports faults that are for the packets of one node alone where the
// settings are for one direction, or for links that have no such node.
func (r *reader) noSenders(m impairment) {
	for _, s := range m.senders {
		if s.at != nil {
			r.errorf(s.at, "from stands in a fault that is not of a link itself, expected none: reverse, and from beside set, choose the direction")
		}
	}
}

// faultsFrom is a link's own faults for packets from a node, nil if it gives none.
func (r *reader) faultsFrom(m impairment, node string) *[]Fault {
	if m.change.Faults == nil {
		return nil
	}
	faults := []Fault{}
	for i, f := range *m.change.Faults {
		if s := m.senders[i]; s.at == nil || r.is(s, node) {
			faults = append(faults, f)
		}
	}
	return &faults
}

type matchMap struct {
	opcodes      val[[]uint8]
	syndromes    val[[]string]
	cm           val[[]uint16]
	qp           val[uint32]
	psn          val[PSNs]
	nth          val[[]uint64]
	every, count val[uint64]
	probability  val[float64]
}

var matchTable = sync.OnceValue(func() *keyTable[matchMap] {
	return &keyTable[matchMap]{
		what: "match", noun: "match", def: "match",
		keys: []key[matchMap]{
			one("opcode", severalOf((*reader).opcodes, func() schema { return anyOf(textSchema()) }), func(m *matchMap) *val[[]uint8] { return &m.opcodes },
				"one or a list of: a class (`send`, `write`, `read` for the requests, `read-response`, `ack`, `atomic`, `flush`, `ud`, `cnp`), an opcode's name (`SEND_FIRST`, `WRITE_ONLY_IMMEDIATE`, `READ_REQUEST`, `ACKNOWLEDGE`, `UC_SEND_ONLY` ..., also as \"RC RDMA WRITE First\"), a number (`0x0a`)"),
			one("syndrome", several(fewWords(syndromes...)), func(m *matchMap) *val[[]string] { return &m.syndromes },
				"of acknowledgements, one or a list of: `ack`, `nak`, `rnr`"),
			one("cm", several(single(message, func() schema { return anyOf(textSchema()) })), func(m *matchMap) *val[[]uint16] { return &m.cm },
				"messages of connection management, one or a list of: `"+strings.Join(messages[:], "`, `")+"`, or an attribute ID"),
			one("qp", identifier(max24), func(m *matchMap) *val[uint32] { return &m.qp }, "the destination's QP number, `0x12`"),
			one("psn", single(psnRange, psnSchema), func(m *matchMap) *val[PSNs] { return &m.psn }, "a packet sequence number or a range, `5`, `5-20`, `0xfffff0-0x0f`"),
			one("nth", places, func(m *matchMap) *val[[]uint64] { return &m.nth }, "of the packets to which all of that applies, counted from 1 since the fault was set: only the one at this place, or those of a list"),
			one("every", place, func(m *matchMap) *val[uint64] { return &m.every }, "of these only each so many-th"),
			one("probability", share(1e-12), func(m *matchMap) *val[float64] { return &m.probability }, "of these only this share, at random"), // other than never
			one("count", place, func(m *matchMap) *val[uint64] { return &m.count }, "only the first so many for which all else applies"),
		},
	}
})

var matchForm = mapOf(matchTable, func(_ *reader, _ *yaml.Node, m *matchMap) Match {
	return Match{
		Opcodes: m.opcodes.is, Syndromes: m.syndromes.is, CM: m.cm.is, QP: m.qp.pointer(), PSN: m.psn.pointer(),
		Packets: m.nth.is, Every: m.every.is, Count: m.count.is, Probability: m.probability.is,
	}
})

// severalOf is one word or a list of words, of which each may stand for several values;
// the values are in ascending order, each once.
func severalOf[T cmp.Ordered](read func(*reader, *yaml.Node) []T, word func() schema) form[[]T] {
	return form[[]T]{schema: func() schema { return oneOrList(word(), math.MaxInt32) }, read: func(r *reader, n *yaml.Node) (all []T) {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			all = read(r, n)
		} else {
			r.items(n, func(n *yaml.Node) { all = append(all, read(r, n)...) })
			if len(n.Content) == 0 {
				r.valueError(n, "found nothing in the list, expected one at least")
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}}
}

// several is severalOf for words that each stand for one value.
func several[T cmp.Ordered](f form[T]) form[[]T] {
	return severalOf(func(r *reader, n *yaml.Node) []T { return []T{f.of(r, n).is} }, f.schema)
}

func (r *reader) opcodes(n *yaml.Node) []uint8 {
	word := anyText.of(r, n)
	if !word.ok {
		return nil
	}
	codes := opcodesNamed(word.is)
	if codes == nil {
		r.valueError(n, "unknown opcode %s, %s", quote(word.is), r.expectation(word.is, opcodeWords()))
	}
	return codes
}

// message is a parser for a message of connection management.
func message(text string) (uint16, error) {
	id, ok := messageNamed(text)
	if !ok {
		return 0, fmt.Errorf("found %s, expected a CM message: %s or an attribute ID", quote(text), strings.Join(messages[:], ", "))
	}
	return id, nil
}

// psnRange is a parser for a PSN or a range of them.
func psnRange(text string) (PSNs, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, err := identifier(max24).parse(first)
	b, err2 := identifier(max24).parse(last)
	if err := errors.Join(err, err2); err != nil {
		return PSNs{}, fmt.Errorf("found %s, expected a PSN up to 0xffffff such as 5, or a range such as 5-20", quote(text))
	}
	return PSNs{a, b}, nil
}

func psnSchema() schema {
	return anyOf(schema{"type": "integer", "minimum": 0, "maximum": max24}, matching(fmt.Sprintf("%[1]s(?:-%[1]s)?", "(?:0x[0-9a-fA-F]+|[0-9]+)")))
}
