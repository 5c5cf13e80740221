package topology

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// A mapping is a map of the file that was read: what its keys made, and where each stands.
type mapping[M any] struct {
	*reader
	table *keyTable[M]
	at    *yaml.Node
	is    M
	keys  []given[M] // in the order of the file
	right bool       // all of it is
}

// A given is a key that a map has.
type given[M any] struct {
	key string
	at  *yaml.Node // the value
	ok  bool       // the value is right
	set func(*M)   // puts the value into an M
}

// set reads the value of a key.
func (p *mapping[M]) set(k key[M], n *yaml.Node) {
	before := len(p.errors)
	set := k.read(p.reader, n)
	set(&p.is)
	p.keys = append(p.keys, given[M]{k.name, n, len(p.errors) == before, set})
}

// find returns a key as the map has it, the zero given if it has not or there is no map.
func (p *mapping[M]) find(key string) given[M] {
	if p == nil {
		return given[M]{}
	}
	for _, g := range p.keys {
		if g.key == key {
			return g
		}
	}
	return given[M]{}
}

// place returns the value of a key in the file, nil if the map has not got the key.
func (p *mapping[M]) place(key string) *yaml.Node { return p.find(key).at }

// has reports whether the map has a key.
func (p *mapping[M]) has(key string) bool { return p.place(key) != nil }

// ok reports whether the map has a key with a value that is right.
func (p *mapping[M]) ok(key string) bool { return p.find(key).ok }

// word returns the single value of a key as the file has it.
func (p *mapping[M]) word(key string) val[string] {
	g := p.find(key)
	if g.at == nil || !g.ok {
		return val[string]{at: g.at}
	}
	return val[string]{g.at, g.at.Value, true}
}

// endpoint returns the endpoint that a key has as its value.
func (p *mapping[M]) endpoint(key string) val[Endpoint] {
	return asEndpoint(p.word(key))
}

// saying returns the map with another word as the value of a key.
func (p *mapping[M]) saying(name string, word val[string]) *mapping[M] {
	other := p.without(name)
	other.set(p.table.find(name), text(word.at, word.is))
	return other
}

// without returns the map without a key. The values that the key set stay.
func (p *mapping[M]) without(key string) *mapping[M] {
	other := *p
	other.keys = slices.DeleteFunc(slices.Clone(p.keys), func(g given[M]) bool { return g.key == key })
	return &other
}

// among returns the keys of some that the map has, in the order of the names.
func (p *mapping[M]) among(names ...string) []given[M] {
	var all []given[M]
	for _, name := range names {
		if g := p.find(name); g.at != nil {
			all = append(all, g)
		}
	}
	return all
}

// absent returns the names of keys that the map has not got.
func (p *mapping[M]) absent(names ...string) []string {
	var all []string
	for _, name := range names {
		if !p.has(name) {
			all = append(all, name)
		}
	}
	return all
}

// required reports the keys that are absent.
func (p *mapping[M]) required(names ...string) {
	if absent := p.absent(names...); absent != nil && isMap(p.at) {
		p.errorf(p.at, "the %s has no %s, expected %s", p.table.noun, strings.Join(absent, " and no "), strings.Join(names, ", "))
	}
}

// exactlyOne reports if the map has none of the keys, or several.
func (p *mapping[M]) exactlyOne(names ...string) {
	switch has := p.among(names...); {
	case !isMap(p.at) || len(has) == 1:
	case len(has) == 0:
		p.errorf(p.at, "the %s has no %s, expected one of them", p.table.noun, strings.Join(names, " and no "))
	default:
		p.errorf(p.at, "the %s has %s, expected only one of them", p.table.noun, strings.Join(textsOf(has, given[M].name), " and "))
	}
}

// anyOf reports if the map has none of the keys.
func (p *mapping[M]) anyOf(names ...string) {
	if len(p.absent(names...)) == len(names) {
		p.errorf(p.at, "the %s has no %s, expected at least one of them", p.table.noun, strings.Join(names, " and no "))
	}
}

// layers are maps about the same thing, that of most precedence first. Some may be nil.
type layers[M any] []*mapping[M]

// find returns a key as the first of the maps that has it does.
func (l layers[M]) find(key string) given[M] {
	for _, p := range l {
		if g := p.find(key); g.at != nil {
			return g
		}
	}
	return given[M]{}
}

// apply puts into m what all maps have.
func (l layers[M]) apply(m *M) {
	for _, p := range slices.Backward(l) {
		if p == nil {
			continue
		}
		for _, g := range p.keys {
			g.set(m)
		}
	}
}

// name returns the name of the key.
func (g given[M]) name() string { return g.key }

// textsOf returns the text of each item.
func textsOf[T any](items []T, text func(T) string) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = text(item)
	}
	return all
}

// where returns where the map stands.
func (p *mapping[M]) where() Place { return p.reader.place(p.at) }
