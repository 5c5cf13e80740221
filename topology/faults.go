package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of faults.

// faults reads a list of faults for m, which also gets the node whose packets
// alone each is for.
func (r *reader) faults(n *yaml.Node, m *impairment) []Fault {
	if len(n.Content) > maxFaults {
		r.valueError(n, "%d faults, expected at most %d", len(n.Content), maxFaults)
		return nil
	}
	var faults []Fault
	r.items(n, func(n *yaml.Node) {
		f, sender := r.fault(n)
		faults = append(faults, f)
		m.senders = append(m.senders, sender)
	})
	return faults
}

func (r *reader) fault(n *yaml.Node) (f Fault, sender val[string]) {
	var what val[Action]
	var match val[Match]
	var delay val[time.Duration]
	before := len(r.errors)
	r.fields(n, "a fault",
		field{"match", func(n *yaml.Node) { match = val[Match]{at: n, is: r.match(n)} }},
		one(r, "action", &what, action),
		one(r, "delay", &delay, span(1, maxDelay)),
		one(r, "from", &sender, anyText),
	)
	r.required(n, "fault", need("match", match), need("action", what))
	f = Fault{Match: match.is, Action: what.is, Delay: delay.is}
	if bad := f.check(); bad != nil && len(r.errors) == before {
		r.errorf(n, "%s, expected %s", bad.Found, bad.Expected)
	}
	return f, sender
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

// action is a parser for what a fault does.
func action(text string) (Action, error) {
	switch a := Action(text); a {
	case Drop, Postpone, Double, Corrode:
		return a, nil
	}
	return "", fmt.Errorf("found %s, expected drop, delay, duplicate or corrupt", quote(text))
}

func (r *reader) match(n *yaml.Node) Match {
	var m Match
	var qp val[uint32]
	var psn val[PSNs]
	var nth val[[]uint64]
	var every, number val[uint64]
	var p val[float64]
	r.fields(n, "match",
		words(r, "opcode", &m.Opcodes, r.opcodes),
		words(r, "syndrome", &m.Syndromes, oneOf(r, syndrome)),
		words(r, "cm", &m.CM, oneOf(r, message)),
		one(r, "qp", &qp, identifier(max24)),
		one(r, "psn", &psn, psnRange),
		field{"nth", func(n *yaml.Node) { nth = r.places(n) }},
		one(r, "every", &every, place),
		one(r, "count", &number, place),
		one(r, "probability", &p, chance),
	)
	m.QP, m.PSN = qp.pointer(), psn.pointer()
	m.Packets, m.Every, m.Count, m.Probability = nth.is, every.is, number.is, p.is
	return m
}

// words is a field with a word or a list of words, of which each may stand for
// several values; the values are in ascending order, each once.
func words[T uint8 | uint16 | string](r *reader, key string, to *[]T, read func(*yaml.Node) []T) field {
	return field{key, func(n *yaml.Node) {
		*to = nil
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			*to = read(n)
		} else {
			r.items(n, func(n *yaml.Node) { *to = append(*to, read(n)...) })
			if len(n.Content) == 0 {
				r.valueError(n, "found nothing in the list, expected one at least")
			}
		}
		slices.Sort(*to)
		*to = slices.Compact(*to)
	}}
}

// oneOf is what words needs, for words that each stand for one value.
func oneOf[T any](r *reader, parse func(string) (T, error)) func(*yaml.Node) []T {
	return func(n *yaml.Node) []T { return []T{scalar(r, n, parse).is} }
}

func (r *reader) opcodes(n *yaml.Node) []uint8 {
	word := scalar(r, n, anyText)
	if !word.ok {
		return nil
	}
	codes := opcodesNamed(word.is)
	if codes == nil {
		r.valueError(n, "unknown opcode %s, %s", quote(word.is), r.expectation(word.is, opcodeWords()))
	}
	return codes
}

// syndrome is a parser for what an acknowledgement says.
func syndrome(text string) (string, error) {
	if !slices.Contains(syndromes, text) {
		return "", fmt.Errorf("found %s, expected ack, nak or rnr", quote(text))
	}
	return text, nil
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
	a, err := identifier(max24)(first)
	b, err2 := identifier(max24)(last)
	if err := errors.Join(err, err2); err != nil {
		return PSNs{}, fmt.Errorf("found %s, expected a PSN up to 0xffffff such as 5, or a range such as 5-20", quote(text))
	}
	return PSNs{a, b}, nil
}
