package topology

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// A mapping is a map of the file that was read: what its keys made, and where each stands.
type mapping[M any] struct {
	givens
	table *keyTable[M]
	is    M
	sets  []func(*M) // for each of keys: puts the value into an M
}

// givens is the keys that a map has. It is a type of its own so that the compiler makes what
// acts on it once, and not for each table.
type givens struct {
	*reader
	noun  string // as its table has it
	at    *yaml.Node
	keys  []given // in the order of the file
	right bool    // all of it is
}

// A given is a key that a map has.
type given struct {
	key string
	at  *yaml.Node // the value
	ok  bool       // the value is right
}

// set reads the value of a key.
func (p *mapping[M]) set(k *key[M], n *yaml.Node) {
	before := len(p.errors)
	set := k.read(p.reader, n)
	set(&p.is)
	p.keys = append(p.keys, given{k.name, n, len(p.errors) == before})
	p.sets = append(p.sets, set)
}

// has reports whether the map has a key. Where there is no map, as p is nil, this and the
// other methods that look for keys find none.
func (p *mapping[M]) has(key string) bool { return p.place(key) != nil }

// find returns a key as the map has it, the zero given if it has not.
func (p *mapping[M]) find(key string) given {
	if p == nil {
		return given{}
	}
	return p.givens.find(key)
}

// among returns the keys of some that the map has, in the order of the names.
func (p *mapping[M]) among(names ...string) []given {
	if p == nil {
		return nil
	}
	return p.givens.among(names...)
}

// absent returns the names of keys that the map has not got.
func (p *mapping[M]) absent(names ...string) []string {
	if p == nil {
		return names
	}
	return p.givens.absent(names...)
}

// place returns the value of a key in the file, nil if the map has not got the key.
func (p *mapping[M]) place(key string) *yaml.Node { return p.find(key).at }

// ok reports whether the map has a key with a value that is right.
func (p *mapping[M]) ok(key string) bool { return p.find(key).ok }

// word returns the single value of a key as the file has it.
func (p *mapping[M]) word(key string) val[string] { return p.find(key).word() }

// endpoint returns the endpoint that a key has as its value.
func (p *mapping[M]) endpoint(key string) val[Endpoint] {
	return asEndpoint(p.word(key))
}

// saying returns the map with another word as the value of a key.
func (p *mapping[M]) saying(name string, word val[string]) *mapping[M] {
	other := p.without(name)
	k := p.table.find(name)
	other.set(&k, text(word.at, word.is))
	return other
}

// without returns the map without a key. The values that the key set stay.
func (p *mapping[M]) without(key string) *mapping[M] {
	other := *p
	other.keys, other.sets = nil, nil
	for i, g := range p.keys {
		if g.key != key {
			other.keys, other.sets = append(other.keys, g), append(other.sets, p.sets[i])
		}
	}
	return &other
}

// find returns a key as the map has it, the zero given if it has not.
func (p *givens) find(key string) given {
	for _, g := range p.keys {
		if g.key == key {
			return g
		}
	}
	return given{}
}

// among returns the keys of some that the map has, in the order of the names.
func (p *givens) among(names ...string) []given {
	var all []given
	for _, name := range names {
		if g := p.find(name); g.at != nil {
			all = append(all, g)
		}
	}
	return all
}

// absent returns the names of keys that the map has not got.
func (p *givens) absent(names ...string) []string {
	var all []string
	for _, name := range names {
		if p.find(name).at == nil {
			all = append(all, name)
		}
	}
	return all
}

// complete reports the keys that are absent of those that are required, of which a map has
// exactly one, or one at least; nil: there are none such.
func (p *givens) complete(required, exactlyOne, atLeastOne []string) {
	if required != nil {
		p.required(required...)
	}
	if exactlyOne != nil {
		p.exactlyOne(exactlyOne...)
	}
	if atLeastOne != nil {
		p.anyOf(atLeastOne...)
	}
}

// required reports the keys that are absent.
func (p *givens) required(names ...string) {
	if absent := p.absent(names...); absent != nil && isMap(p.at) {
		p.errorf(p.at, "the %s has no %s, expected %s", p.noun, strings.Join(absent, " and no "), strings.Join(names, ", "))
	}
}

// exactlyOne reports if the map has none of the keys, or several.
func (p *givens) exactlyOne(names ...string) {
	switch has := p.among(names...); {
	case !isMap(p.at) || len(has) == 1:
	case len(has) == 0:
		p.errorf(p.at, "the %s has no %s, expected one of them", p.noun, strings.Join(names, " and no "))
	default:
		p.errorf(p.at, "the %s has %s, expected only one of them", p.noun, strings.Join(textsOf(has, given.name), " and "))
	}
}

// anyOf reports if the map has none of the keys.
func (p *givens) anyOf(names ...string) {
	if len(p.absent(names...)) == len(names) {
		p.errorf(p.at, "the %s has no %s, expected at least one of them", p.noun, strings.Join(names, " and no "))
	}
}

// layers are maps about the same thing, that of most precedence first. Some may be nil.
type layers[M any] []*mapping[M]

// find returns a key as the first of the maps that has it does.
func (l layers[M]) find(key string) given {
	for _, p := range l {
		if g := p.find(key); g.at != nil {
			return g
		}
	}
	return given{}
}

// apply puts into m what all maps have.
func (l layers[M]) apply(m *M) {
	for _, p := range slices.Backward(l) {
		if p == nil {
			continue
		}
		for _, set := range p.sets {
			set(m)
		}
	}
}

// name returns the name of the key.
func (g given) name() string { return g.key }

// word returns the single value of the key as the file has it.
func (g given) word() val[string] {
	if g.at == nil || !g.ok {
		return val[string]{at: g.at}
	}
	return val[string]{g.at, g.at.Value, true}
}

// textsOf returns the text of each item.
func textsOf[T any](items []T, text func(T) string) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = text(item)
	}
	return all
}

// where returns where the map stands.
func (p *givens) where() Place { return p.reader.place(p.at) }
