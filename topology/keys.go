package topology

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// This file has the parts of tables of keys. Each map of the file has one table, from
// which come what reads the map, its JSON Schema, completion, and its part of
// docs/topology.md. A new key is a row of its table, and the code that acts on it.

//go:generate go test -count=1 -run ^TestKeysAreDocumented$ . -rewrite

// A key is a key of a map of the file, which is read into an M.
type key[M any] struct {
	keyText
	// read reads a value, whose errors it reports, and returns what puts it into an M.
	read func(*reader, *yaml.Node) func(*M)
}

// A keyText is a key but for what reads it, which has no part in the type that it is read into.
type keyText struct {
	name   string
	doc    string        // what it says, in Markdown, without a full stop; $range is what its form has
	absent string        // what holds where a map has not got the key, if doc does not say it
	with   []string      // with what the key stands, such as operations of workloads; nil: with all
	schema func() schema // nil: the key is known only to be refused
	ranges func() string // see form; nil: none
}

// one is a key for a field of M. A single value that is wrong leaves the field as it is.
// (Tables have hundreds of rows: in line, what makes one would be most of a table's code.)
//
//go:noinline
func one[M, T any](name string, f form[T], to func(*M) *T, doc string) key[M] {
	return key[M]{
		keyText: keyText{name: name, doc: doc, schema: f.schema, ranges: f.ranges},
		read: func(r *reader, n *yaml.Node) func(*M) {
			v := f.of(r, n)
			return func(m *M) {
				if v.ok || f.read != nil {
					*to(m) = v.is
				}
			}
		},
	}
}

// asking is a key whose value stays in the file, where mapping.word finds it: it names what
// only the whole lab has.
func asking[M, T any](name string, f form[T], doc string) key[M] {
	return readBy(name, f.schema, func(r *reader, n *yaml.Node) func(*M) {
		f.of(r, n)
		return func(*M) {}
	}, doc)
}

// readBy is a key whose value read reads.
//
//go:noinline
func readBy[M any](name string, s func() schema, read func(*reader, *yaml.Node) func(*M), doc string) key[M] {
	return key[M]{keyText{name: name, doc: doc, schema: s}, read}
}

// orElse is the key with what holds where it is absent.
func (k key[M]) orElse(absent string) key[M] {
	k.absent = absent
	return k
}

// only is the key as one that stands with some words alone.
func only[M any, W ~string](k key[M], words ...W) key[M] {
	k.with = texts(words)
	return k
}

// block is a key for a field of M whose value is a map, which leaves what it does not have
// of the field as it is.
func block[M, P any](name string, f form[*mapping[P]], to func(*M) *P, doc string) key[M] {
	return readBy(name, f.schema, func(r *reader, n *yaml.Node) func(*M) {
		p := f.of(r, n).is
		return func(m *M) { layers[P]{p}.apply(to(m)) }
	}, doc)
}

// shared is keys of a map that are read into a part of it.
func shared[M, P any](keys []key[P], part func(*M) *P) []key[M] {
	all := make([]key[M], len(keys))
	for i, k := range keys {
		all[i] = key[M]{
			keyText: k.keyText,
			read: func(r *reader, n *yaml.Node) func(*M) {
				set := k.read(r, n)
				return func(m *M) { set(part(m)) }
			},
		}
	}
	return all
}

// keysWithout is the keys but some.
func keysWithout[M any](keys []key[M], names ...string) []key[M] {
	return slices.DeleteFunc(slices.Clone(keys), func(k key[M]) bool { return slices.Contains(names, k.name) })
}

// text is the documentation of a key, in Markdown.
func (k keyText) text() string {
	if k.ranges == nil {
		return k.doc
	}
	return strings.ReplaceAll(k.doc, "$range", k.ranges())
}

// plain is the documentation of a key, without Markdown.
func (k keyText) plain() string {
	text := strings.ReplaceAll(markdownLink.compiled().ReplaceAllString(k.text(), "$1"), "`", "") + "."
	if k.absent != "" {
		text += " Absent: " + strings.ReplaceAll(k.absent, "`", "") + "."
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// described is the schema of a key's values, with its documentation.
func (k keyText) described() schema { return k.schema().describedAs(k.plain()) }

// markdownLink matches a link.
var markdownLink = &pattern{text: `\[([^]]+)\]\([^)]+\)`}

// A keyTable is the keys of a map.
type keyTable[M any] struct {
	what    string // "a workload", as messages have it
	noun    string // that without its article, or as messages about absent keys have it
	keys    []key[M]
	initial M // of which keys that are absent leave what it has
	// Of these keys a map has all, exactly one, or one at least.
	required, exactlyOne, atLeastOne []string
	also                             func(*keyTable[M], schema) // adds what the schema says beside all that
	def                              string                     // of the schema in $defs; "": it stands in place
}

// read reads a map, and reports keys that are wrong or absent.
func (t *keyTable[M]) read(r *reader, n *yaml.Node) *mapping[M] {
	if r.seen != nil {
		r.seen(t.what)
	}
	before := len(r.errors)
	p := &mapping[M]{givens: givens{reader: r, noun: t.noun, at: n}, table: t, is: t.initial}
	for _, e := range r.entries(n) {
		i := slices.IndexFunc(t.keys, func(k key[M]) bool { return k.name == e.key.Value })
		if i < 0 || t.keys[i].read == nil {
			r.unknownKey(e.key, t.what, t.names())
			continue
		}
		outer := r.key
		r.key = e.key.Value
		p.set(&t.keys[i], e.value)
		r.key = outer
	}
	p.complete(t.required, t.exactlyOne, t.atLeastOne)
	p.right = len(r.errors) == before
	return p
}

// unknownKey reports a key that a map, which messages call what, does not have.
func (r *reader) unknownKey(n *yaml.Node, what string, names []string) {
	r.errorf(n, "unknown key %s in %s, %s", quote(n.Value), what, r.expectation(n.Value, names))
}

// find returns the key of that name, the zero key if there is none.
func (t *keyTable[M]) find(name string) key[M] {
	for _, k := range t.keys {
		if k.name == name {
			return k
		}
	}
	return key[M]{}
}

// names is the names of the keys.
func (t *keyTable[M]) names() []string {
	return textsOf(t.keys, func(k key[M]) string { return k.name })
}

// with is the names of keys that stand with a word, and not with all.
func (t *keyTable[M]) with(word string) []string {
	var names []string
	for _, k := range t.keys {
		if slices.Contains(k.with, word) {
			names = append(names, k.name)
		}
	}
	return names
}

// notWith is the names of keys that do not stand with a word.
func (t *keyTable[M]) notWith(word string) []string {
	var names []string
	for _, k := range t.keys {
		if k.with != nil && !slices.Contains(k.with, word) {
			names = append(names, k.name)
		}
	}
	return names
}

// reference is the schema of maps with the keys, where it stands in $defs.
func (t *keyTable[M]) reference() schema {
	if t.def == "" {
		return t.schema()
	}
	return reference(t.def)
}

// schema is the JSON Schema of maps with the keys.
func (t *keyTable[M]) schema() schema {
	s := schemaOf(t.texts(), t.required, t.exactlyOne, t.atLeastOne)
	if t.also != nil {
		t.also(t, s)
	}
	return s
}

// texts is the keys but for what reads them.
func (t *keyTable[M]) texts() []keyText {
	all := make([]keyText, len(t.keys))
	for i := range t.keys {
		all[i] = t.keys[i].keyText
	}
	return all
}

// schemaOf is the schema of maps with keys, of which they have all that are required, exactly
// one, or one at least; nil: it does not matter.
func schemaOf(keys []keyText, required, exactlyOne, atLeastOne []string) schema {
	properties := map[string]schema{}
	for _, k := range keys {
		if k.schema != nil {
			properties[k.name] = k.described()
		}
	}
	s := schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if required != nil || exactlyOne != nil || atLeastOne != nil {
		s["type"] = "object" // since nothing at all has no keys
	}
	if required != nil {
		s["required"] = required
	}
	if exactlyOne != nil {
		s.requiring("oneOf", exactlyOne...)
	}
	if atLeastOne != nil {
		s.requiring("anyOf", atLeastOne...)
	}
	return s
}

// title returns the name of the map in messages.
func (t *keyTable[M]) title() string { return t.what }

// definition is the schema as it stands in $defs, under that name.
func (t *keyTable[M]) definition() (name string, s schema) {
	if t.def == "" {
		return "", nil
	}
	return t.def, t.schema()
}
