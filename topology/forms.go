package topology

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file has the readers of the values of keys, and their schemas; the
// values themselves are in values.go, and with the maps that have them.

// A form is the way of writing the values of a key.
type form[T any] struct {
	parse  func(string) (T, error)     // of a single value
	read   func(*reader, *yaml.Node) T // of any value, whose errors it reports; nil: of a single one, by parse
	schema func() schema
	ranges func() string // from what to what the values are, for people; nil: there is nothing to say
}

// single is values that parse reads.
func single[T any](parse func(string) (T, error), s func() schema) form[T] {
	return form[T]{parse: parse, schema: s}
}

// of is the value of n.
func (f form[T]) of(r *reader, n *yaml.Node) val[T] {
	if f.read == nil {
		return scalar(r, n, f.parse)
	}
	before := len(r.errors)
	v := val[T]{at: n, is: f.read(r, n)}
	v.ok = len(r.errors) == before
	return v
}

// made is the form, of whose values others are made.
func made[T, S any](of form[S], make func(S) T) form[T] {
	return form[T]{schema: of.schema, ranges: of.ranges, parse: func(text string) (T, error) {
		v, err := of.parse(text)
		return make(v), err
	}}
}

// orWord is the form with a word that stands for a value beside the others, which are called what in
// messages.
func (f form[T]) orWord(word string, is T, what string) form[T] {
	return form[T]{
		schema: func() schema { return anyOf(oneWord(word), f.schema()) },
		ranges: f.ranges,
		parse: func(text string) (T, error) {
			switch {
			case text == word:
				return is, nil
			case !number.compiled().MatchString(text):
				return is, fmt.Errorf("found %s, expected %s or %s", quote(text), word, what)
			}
			return f.parse(text)
		},
	}
}

// maxItems bounds the items of a list, and so the nodes and the links of a lab: aliases
// take 3 bytes of a file each, and what they stand for a thousand of memory.
const maxItems = naming.Most

// placed is the form, of whose values the places are kept.
func placed[T any](f form[T]) form[val[T]] {
	return form[val[T]]{schema: f.schema, ranges: f.ranges, read: func(r *reader, n *yaml.Node) val[T] { return f.of(r, n) }}
}

// listOf is lists, or nothing at all.
func listOf[T any](item form[T]) form[[]T] {
	return form[[]T]{schema: func() schema { return listSchema(item.schema()) }, read: func(r *reader, n *yaml.Node) (all []T) {
		if items := len(n.Content); n.Kind == yaml.SequenceNode {
			if items > maxItems {
				r.errorf(n, "the list has %d items, expected up to %d", items, maxItems)
				return nil
			}
			all = make([]T, 0, items)
		}
		r.items(n, func(n *yaml.Node) { all = append(all, item.of(r, n).is) })
		return all
	}}
}

// A named is an entry of a map whose keys are names that the file chooses.
type named[T any] struct {
	name val[string]
	is   T
}

// namedOf is maps from plain names to other values.
func namedOf[T any](what form[T]) form[[]named[T]] {
	return form[[]named[T]]{schema: func() schema { return mapSchema(keyNames(), what.schema()) }, read: func(r *reader, n *yaml.Node) (all []named[T]) {
		for _, e := range r.entries(n) {
			name := scalar(r, e.key, plainName(maxNodeName))
			name.is = e.key.Value
			all = append(all, named[T]{name, what.of(r, e.value).is})
		}
		return all
	}}
}

// mapOf is maps with the keys of a table, of which full makes the value.
func mapOf[T, M any](t func() *keyTable[M], full func(*mapping[M]) T) form[T] {
	return form[T]{
		schema: func() schema { return t().reference() },
		read:   func(r *reader, n *yaml.Node) T { return full(t().read(r, n)) },
	}
}

// itself is the value of a map whose keys say all of it, for mapOf.
func itself[M any](p *mapping[M]) M { return p.is }

// withPlaces is the map with the places of its keys, for mapOf.
func withPlaces[M any](p *mapping[M]) *mapping[M] { return p }

// onlyMap is mapOf for what cannot be nothing at all.
func onlyMap[T, M any](example string, t func() *keyTable[M], full func(*mapping[M]) T) form[T] {
	return neverNothing(example, mapOf(t, full))
}

// neverNothing is maps, where nothing at all is none of them.
func neverNothing[T any](example string, f form[T]) form[T] {
	read := f.read
	f.read = func(r *reader, n *yaml.Node) (v T) {
		if n.Kind != yaml.MappingNode {
			r.valueError(n, "found %s, expected a map such as %s", describe(n), example)
			return v
		}
		return read(r, n)
	}
	return f
}

// briefly is single values, which are called what in messages, or maps with the keys of a
// table.
func briefly[T, M any](what string, brief form[T], t func() *keyTable[M], full func(*mapping[M]) T) form[T] {
	f := mapOf(t, full)
	read := f.read
	return form[T]{schema: func() schema { return anyOf(brief.schema(), f.schema()) }, read: func(r *reader, n *yaml.Node) (v T) {
		switch {
		case n.Kind == yaml.MappingNode:
			return read(r, n)
		case n.Kind == yaml.SequenceNode || isNull(n):
			r.valueError(n, "found %s, expected %s or a map", describe(n), what)
			return v
		}
		return brief.of(r, n).is
	}}
}
