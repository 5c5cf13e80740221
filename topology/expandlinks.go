package topology

import (
	"strings"

	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file replaces links whose endpoints have ranges by each of the links that they
// stand for.

// An endWord is an endpoint of a link as the file has it, which may stand for several.
type endWord struct {
	at          *yaml.Node
	entries     []entry // of the long form
	node, iface naming.Word
	auto        bool // the interface is written as eth*, and iface has the part before the *
}

// count returns the number of endpoints that it stands for.
func (e *endWord) count() int { return e.node.Count() * e.iface.Count() }

// several reports whether it may stand for anything but itself.
func (e *endWord) several() bool { return e.auto || !e.node.Plain() || !e.iface.Plain() }

// String is the endpoint as the file has it.
func (e *endWord) String() string {
	name := e.node.String() + ":" + e.iface.String()
	if e.auto {
		name += "*"
	}
	return name
}

// links is a list of links with each that stands for several replaced by all of these,
// and names for all interfaces.
func (x *expander) links(n *yaml.Node) *yaml.Node {
	is := x.each(n, "links", x.link)
	x.number()
	return is
}

// link returns the links that an entry stands for. Errors in the form of the entry are
// for the reader to report.
func (x *expander) link(n *yaml.Node) []*yaml.Node {
	entries := x.entries(n)
	list := find(entries, "endpoints")
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != 2 {
		return []*yaml.Node{n}
	}
	var of [2]endWord
	for end, item := range list.Content {
		var ok bool
		if of[end], ok = x.ends(target(item)); !ok {
			return []*yaml.Node{n}
		}
	}
	a, b := &of[0], &of[1]
	cross := false
	if v := find(entries, "cross"); v != nil {
		is, err := yes.parse(v.Value)
		if err != nil || v.Kind != yaml.ScalarNode {
			return []*yaml.Node{n}
		}
		cross = is
	}
	if !a.several() && !b.several() {
		x.taken[a.String()], x.taken[b.String()] = true, true
		return []*yaml.Node{n}
	}
	if a.count() > naming.Most || b.count() > naming.Most || cross && a.node.Count()*b.node.Count() > maxItems {
		x.fail(list, "the entry stands for more than %d links, expected up to that", maxItems)
		return nil
	}
	pairs, ok := x.zipped, false
	if cross {
		pairs = x.crossed
	}
	var links [][2]*yaml.Node
	if links, ok = pairs(a, b); !ok {
		return nil
	}
	all := make([]*yaml.Node, len(links))
	for i, link := range links {
		pair := *list
		pair.Anchor, pair.Content = "", link[:]
		all[i] = with(entries, n, map[string]*yaml.Node{"endpoints": &pair, "cross": nil})
	}
	return all
}

// ends reads an endpoint. ok is false if its form is wrong, or an error was reported.
func (x *expander) ends(n *yaml.Node) (e endWord, ok bool) {
	e.at = n
	var node, iface string
	switch n.Kind {
	case yaml.ScalarNode:
		brief, err := endpoint(n.Value)
		if err != nil || isNull(n) {
			return e, false
		}
		node, iface = brief.Node, brief.Interface
	case yaml.MappingNode:
		e.entries = x.entries(n)
		of, at := find(e.entries, "node"), find(e.entries, "interface")
		if of == nil || at == nil || of.Kind != yaml.ScalarNode || at.Kind != yaml.ScalarNode {
			return e, false
		}
		node, iface = of.Value, at.Value
	default:
		return e, false
	}
	iface, e.auto = strings.CutSuffix(iface, "*")
	if e.node, ok = x.word(n, node); !ok {
		return e, false
	}
	if e.iface, ok = x.word(n, iface); !ok {
		return e, false
	}
	switch {
	case e.node.Pattern() || e.iface.Pattern():
		x.fail(n, "%s has a pattern, expected names or ranges such as \"leaf[1-4]:up*\": what a link joins is said by name", quote(e.String()))
	case e.auto && e.iface.Count() > 1:
		x.fail(n, "%s has a range and *, expected one of them: * is the next number", quote(e.String()))
	case e.count() > 1 && find(e.entries, "addresses") != nil:
		x.fail(find(e.entries, "addresses"), "addresses are given to the %d interfaces of %s, expected one interface with addresses", e.count(), e.String())
	default:
		return e, true
	}
	return e, false
}

// zipped is the links from each end of one to the end of the other that has the same
// place. One that stands for a single end is the end of all, if its interface is a new
// one for each.
func (x *expander) zipped(a, b *endWord) ([][2]*yaml.Node, bool) {
	number := max(a.count(), b.count())
	for _, e := range []*endWord{a, b} {
		other := a
		if e == a {
			other = b
		}
		switch {
		case e.count() == number:
		case e.count() > 1:
			x.fail(e.at, "%s stands for %d ends and %s for %d, expected as many, or cross: true for links from each node to each", e, e.count(), other, number)
			return nil, false
		case !e.auto:
			x.fail(e.at, "%s is one interface and %s stands for %d, expected as many, or %s:%s* for the next that are free", e, other, number, e.node,
				strings.TrimRight(e.iface.String(), "0123456789[]-,"))
			return nil, false
		}
	}
	links := make([][2]*yaml.Node, number)
	for i := range links {
		for end, e := range []*endWord{a, b} {
			at := min(i, e.count()-1)
			links[i][end] = x.at(e, at/e.iface.Count(), at%e.iface.Count())
		}
	}
	return links, true
}

// crossed is the links from each node of one end to each of the other. The interfaces of
// a range are for the nodes of the other end, in their order.
func (x *expander) crossed(a, b *endWord) ([][2]*yaml.Node, bool) {
	for _, e := range []*endWord{a, b} {
		peers := b.node.Count()
		if e == b {
			peers = a.node.Count()
		}
		if !e.auto && e.iface.Count() != peers {
			x.fail(e.at, "%s has %d interfaces at each node for %d nodes at the other end, expected as many, or %s:%s* for the next that are free",
				e, e.iface.Count(), peers, e.node, strings.TrimRight(e.iface.String(), "0123456789[]-,"))
			return nil, false
		}
	}
	var links [][2]*yaml.Node
	for i := range a.node.Count() {
		for j := range b.node.Count() {
			links = append(links, [2]*yaml.Node{x.at(a, i, min(j, a.iface.Count()-1)), x.at(b, j, min(i, b.iface.Count()-1))})
		}
	}
	return links, true
}

// at is one of the endpoints, by the places of its node and interface.
func (x *expander) at(e *endWord, node, iface int) *yaml.Node {
	name := Endpoint{e.node.At(node), e.iface.At(iface)}
	is, whole := text(e.at, name.String()), true
	of := is
	if e.entries != nil {
		of, whole = text(find(e.entries, "interface"), name.Interface), false
		is = with(e.entries, e.at, map[string]*yaml.Node{"node": text(find(e.entries, "node"), name.Node), "interface": of})
	}
	if e.auto {
		x.auto = append(x.auto, autoInterface{name.Node, name.Interface, of, whole})
	} else {
		x.taken[name.String()] = true
	}
	return is
}
