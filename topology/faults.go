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
	take := func(list []faultMap, m *impairment) []Fault {
		all := make([]Fault, len(list)) // not nil: JSON does not tell that from no change
		m.senders = make([]val[string], len(list))
		for i, f := range list {
			all[i], m.senders[i] = f.Fault, f.from
		}
		return all
	}
	return settingOf("faults", form[[]faultMap]{schema: func() schema { return faultList("fault") }, read: faultMaps}, take,
		func(i *Impairment) *[]Fault { return &i.Faults }, func(c *Change) **[]Fault { return &c.Faults },
		func(a, b []Fault) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }, formatFaults,
		"a list of [faults](#faults): RDMA packets chosen one by one")
}

// faultList is the schema of a list of faults.
func faultList(of string) schema {
	return schema{"type": []string{"array", "null"}, "items": reference(of), "maxItems": maxFaults}
}

// faultMaps reads a list of faults.
func faultMaps(r *reader, n *yaml.Node) (all []faultMap) {
	if len(n.Content) > maxFaults {
		r.valueError(n, "%d faults, expected at most %d", len(n.Content), maxFaults)
		return nil
	}
	r.items(n, func(n *yaml.Node) { all = append(all, faultForm.read(r, n)) })
	return all
}

// A faultMap is a fault, and the node whose packets alone it is for.
type faultMap struct {
	Fault
	from val[string]
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
			one("match", matchForm, func(m *faultMap) *Match { return &m.Match }, "a map of what has to apply, all of it; `{}` is every RoCEv2 packet"),
			one("action", fewWords(Drop, Postpone, Double, Corrode), func(m *faultMap) *Action { return &m.Action }, "`drop`, `delay`, `duplicate` or `corrupt` (a bit of the payload is flipped)"),
			one("delay", span(1, maxDelay), func(m *faultMap) *time.Duration { return &m.Delay }, "with the action `delay`: by how much, while others may overtake"),
			one("from", placed(anyText), func(m *faultMap) *val[string] { return &m.from }, "a node at the link: only packets that it sends. In `faults` of a link alone: elsewhere, `reverse` or the `from` beside `set` says it"),
		},
	}
})

// faultOfAnyTable is the keys of faults that do not say whose packets they are for.
func faultOfAnyTable() *keyTable[faultMap] {
	t := *faultTable()
	t.noun, t.def, t.keys = "fault of any", "faultOfAny", keysWithout(t.keys, "from")
	return &t
}

var faultForm = mapOf(faultTable, func(m *mapping[faultMap]) faultMap {
	if bad := m.is.check(); bad != nil && m.right {
		m.errorf(m.at, "%s, expected %s", bad.Found, bad.Expected)
	}
	return m.is
})

// noSenders reports faults that are for the packets of one node alone where the
// settings are for one direction, or for links that have no such node.
func noSenders(r *reader, m impairment) {
	for _, s := range m.senders {
		if s.at != nil {
			r.errorf(s.at, "from stands in a fault that is not of a link itself, expected none: reverse, and from beside set, choose the direction")
		}
	}
}

// faultsFrom is a link's own faults for packets from a node, nil if it gives none.
func faultsFrom(r *reader, m impairment, node string) *[]Fault {
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

var matchTable = sync.OnceValue(func() *keyTable[Match] {
	return &keyTable[Match]{
		what: "match", noun: "match", def: "match",
		keys: []key[Match]{
			one("opcode", severalOf(opcodeList, func() schema { return anyOf(textSchema()) }), func(m *Match) *[]uint8 { return &m.Opcodes },
				"one or a list of: a class (`send`, `write`, `read` for the requests, `read-response`, `ack`, `atomic`, `flush`, `ud`, `cnp`), an opcode's name (`SEND_FIRST`, `WRITE_ONLY_IMMEDIATE`, `READ_REQUEST`, `ACKNOWLEDGE`, `UC_SEND_ONLY` ..., also as \"RC RDMA WRITE First\"), a number (`0x0a`). With RoCE packets of 4 KiB and no congestion control, a WRITE into memory that was written to before goes as one `WRITE_ONLY` for each packet, and ndklab's adapters answer a READ of another by `READ_RESPONSE_FIRST`s and a `READ_RESPONSE_LAST`; a class has all of them"),
			one("syndrome", several(fewWords(syndromes...)), func(m *Match) *[]string { return &m.Syndromes },
				"of acknowledgements, one or a list of: `ack`, `nak`, `rnr`"),
			one("cm", several(single(message, func() schema { return anyOf(textSchema()) })), func(m *Match) *[]uint16 { return &m.CM },
				"messages of connection management, one or a list of: `"+strings.Join(messages[:], "`, `")+"`, or an attribute ID"),
			one("qp", made(identifier(max24), pointer), func(m *Match) **uint32 { return &m.QP }, "the destination's QP number, `0x12`"),
			one("psn", made(single(psnRange, psnSchema), pointer), func(m *Match) **PSNs { return &m.PSN }, "a packet sequence number or a range, `5`, `5-20`, `0xfffff0-0x0f`"),
			one("nth", places, func(m *Match) *[]uint64 { return &m.Packets }, "of the packets to which all of that applies, counted from 1 since the fault was set: only the one at this place, or those of a list"),
			one("every", place, func(m *Match) *uint64 { return &m.Every }, "of these only each so many-th"),
			one("probability", share(1e-12), func(m *Match) *float64 { return &m.Probability }, "of these only this share, at random"), // other than never
			one("count", place, func(m *Match) *uint64 { return &m.Count }, "only the first so many for which all else applies"),
		},
	}
})

var matchForm = mapOf(matchTable, itself)

// pointer returns a pointer to a value.
func pointer[T any](v T) *T { return &v }

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

// opcodeList reads a word for one opcode or several.
func opcodeList(r *reader, n *yaml.Node) []uint8 {
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
