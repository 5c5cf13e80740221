package topology

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file replaces entries of a file that stand for several by each of them: nodes and
// links whose names have ranges, workloads likewise, and the fabric block. The result is a
// file without such entries, in which each value has the place that it has in the file.

// An expander replaces entries.
type expander struct {
	*reader
	failed bool            // an error of these entries was reported
	taken  map[string]bool // endpoints that the file names
	auto   []autoInterface // in the order of the file
}

// An autoInterface is an interface that the file writes as eth*.
type autoInterface struct {
	node, prefix string
	name         *yaml.Node // which gets the name, or the endpoint
	whole        bool       // it is the endpoint
}

// expanded is the file at root with the settings of the options and such entries replaced, or nil
// if something of that is wrong.
func (r *reader) expanded(root *yaml.Node) *yaml.Node {
	if root = r.set(root, true); root == nil {
		return nil
	}
	if root = r.expand(root); root == nil {
		return nil
	}
	return r.set(root, false)
}

// expand is the file at root with such entries replaced, or nil if one of them is wrong.
func (r *reader) expand(root *yaml.Node) *yaml.Node {
	x := &expander{reader: r, taken: make(map[string]bool)}
	root = x.replaced(root, map[string]func(*yaml.Node) *yaml.Node{
		"topology":  x.withFabric,
		"workloads": func(n *yaml.Node) *yaml.Node { return x.each(n, "workloads", x.workload) },
	})
	if x.failed {
		return nil
	}
	m := measure{reader: r, size: make(map[*yaml.Node]expanse)}
	if _, ok := m.of(root, 1); !ok {
		return nil
	}
	return root
}

func (x *expander) fail(at *yaml.Node, format string, args ...any) {
	x.failed = true
	x.errorf(at, format, args...)
}

// word reads a word at its place in the file.
func (x *expander) word(at *yaml.Node, text string) (w naming.Word, ok bool) {
	w, err := naming.Parse(text)
	if err != nil {
		x.fail(at, "%v", err)
	}
	return w, err == nil
}

// replaced returns a map with the values of some keys replaced. A value that is no map is
// for the reader to report.
func (x *expander) replaced(n *yaml.Node, by map[string]func(*yaml.Node) *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	is := *n
	is.Content = nil
	for _, e := range x.entries(n) {
		if replace := by[e.key.Value]; replace != nil {
			e.value = replace(e.value)
		}
		is.Content = append(is.Content, e.key, e.value)
	}
	return &is
}

// each is a list with each item replaced by those that it stands for.
func (x *expander) each(n *yaml.Node, what string, of func(*yaml.Node) []*yaml.Node) *yaml.Node {
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxItems {
		return n // which the reader reports
	}
	is := *n
	is.Content = nil
	for _, item := range n.Content {
		item = target(item)
		if item.Kind != yaml.MappingNode {
			is.Content = append(is.Content, item)
			continue
		}
		if is.Content = append(is.Content, of(item)...); len(is.Content) > maxItems {
			x.fail(item, "with this entry there are more than %d %s, expected up to that", maxItems, what)
			break
		}
	}
	return &is
}

// text is a single value at the place of another.
func text(at *yaml.Node, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: at.Line, Column: at.Column}
}

// with is a map with the values of some keys replaced, and nil taken away.
func with(entries []entry, at *yaml.Node, values map[string]*yaml.Node) *yaml.Node {
	is := *at
	is.Anchor, is.Content = "", nil
	for _, e := range entries {
		value, ok := values[e.key.Value]
		if !ok {
			value = e.value
		}
		if value != nil {
			is.Content = append(is.Content, e.key, value)
		}
	}
	return &is
}

// find is the value of a key; nil: there is none.
func find(entries []entry, key string) *yaml.Node {
	if i := slices.IndexFunc(entries, func(e entry) bool { return e.key.Value == key }); i >= 0 {
		return entries[i].value
	}
	return nil
}

// A declared is a node, with what the file says of it.
type declared struct {
	key    *yaml.Node
	own    *yaml.Node // under its own name, nil: nothing
	others []*yaml.Node
}

// nodes returns a map of nodes with one entry for each. Settings of an entry for the node
// alone come before those of ranges, and these before those of patterns; of several ranges
// or patterns the one further down comes first. Generated nodes come behind all others.
func (x *expander) nodes(n *yaml.Node, generated []entry) *yaml.Node {
	if isNull(n) && generated != nil {
		n = flowMap(n)
	}
	if n.Kind != yaml.MappingNode {
		return n
	}
	nodes := make(map[string]*declared)
	var order []string
	add := func(key *yaml.Node, name string) *declared {
		d := nodes[name]
		if d == nil {
			d = &declared{key: text(key, name)}
			nodes[name] = d
			order = append(order, name)
		}
		return d
	}
	for _, e := range generated {
		add(e.key, e.key.Value)
	}
	type words struct {
		entry
		word naming.Word
	}
	var ranges, patterns []words
	for _, e := range x.entries(n) {
		if !naming.IsSeveral(e.key.Value) {
			d := add(e.key, e.key.Value)
			d.key, d.own = e.key, e.value
			continue
		}
		w, ok := x.word(e.key, e.key.Value)
		switch {
		case !ok:
		case w.Pattern():
			patterns = append(patterns, words{e, w})
		default:
			ranges = append(ranges, words{e, w})
			for name := range w.All() {
				add(e.key, name)
			}
			if len(order) > maxItems {
				x.fail(e.key, "with %s the lab has more than %d nodes, expected up to that", w, maxItems)
				return n
			}
		}
	}
	for _, w := range slices.Backward(ranges) {
		for name := range w.word.All() {
			nodes[name].others = append(nodes[name].others, w.value)
		}
	}
	for _, w := range slices.Backward(patterns) {
		if !x.affordable(w.key, cost(w.word, order)) {
			return n
		}
		found, missing := w.word.Among(order)
		if missing != "" {
			x.fail(w.key, "no node is %s, %s", quote(missing), x.expectation(missing, order))
		}
		for _, name := range found {
			nodes[name].others = append(nodes[name].others, w.value)
		}
	}
	for _, e := range generated {
		nodes[e.key.Value].others = append(nodes[e.key.Value].others, e.value)
	}
	is := *n
	is.Content, is.Style = nil, 0
	for _, name := range order {
		d := nodes[name]
		is.Content = append(is.Content, d.key, x.merge(d))
	}
	return &is
}

// merge is all that the file says of a node.
func (x *expander) merge(d *declared) *yaml.Node {
	all := d.others
	if d.own != nil {
		all = append([]*yaml.Node{d.own}, all...)
	}
	all = slices.DeleteFunc(slices.Clone(all), isNull)
	for _, one := range all {
		if one.Kind != yaml.MappingNode { // which the reader reports
			return one
		}
	}
	switch len(all) {
	case 0:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: d.key.Line, Column: d.key.Column}
	case 1:
		return all[0]
	}
	is := *all[0]
	is.Anchor, is.Content = "", nil
	has := make(map[string]bool)
	for _, one := range all {
		for _, e := range x.entries(one) {
			if !has[e.key.Value] {
				has[e.key.Value] = true
				is.Content = append(is.Content, e.key, e.value)
			}
		}
	}
	return &is
}

// workload is the workloads that an entry stands for: one for each name of a range that
// name, from and to have.
func (x *expander) workload(n *yaml.Node) []*yaml.Node {
	entries := x.entries(n)
	keys := []string{"name", "from", "to"}
	words := make(map[string]naming.Word)
	number := 1
	for _, key := range keys {
		v := find(entries, key)
		if v == nil || v.Kind != yaml.ScalarNode || !naming.IsSeveral(v.Value) {
			continue
		}
		w, ok := x.word(v, v.Value)
		if !ok {
			return nil
		}
		if !w.Pattern() { // else no such node or name is there
			words[key], number = w, max(number, w.Count())
		}
	}
	if len(words) == 0 {
		return []*yaml.Node{n}
	}
	for _, key := range keys {
		w, ok := words[key]
		switch {
		case ok && w.Count() != number && w.Count() != 1:
			x.fail(find(entries, key), "%s: %s stands for %d, and the entry for %d workloads, expected as many, or one", key, w, w.Count(), number)
			return nil
		case key == "name" && number > 1 && (!ok || w.Count() == 1):
			x.fail(firstAt(find(entries, key), n), "the entry stands for %d workloads, expected as many names such as name: flow-[1-%d]", number, number)
			return nil
		}
	}
	all := make([]*yaml.Node, number)
	for i := range all {
		values := make(map[string]*yaml.Node)
		for key, w := range words {
			values[key] = text(find(entries, key), w.At(min(i, w.Count()-1)))
		}
		all[i] = with(entries, n, values)
	}
	return all
}

// number gives the interfaces that are written as eth* names: the next number, from 0,
// that no other interface of the node has.
func (x *expander) number() {
	type place struct{ node, prefix string }
	next := make(map[place]int)
	for _, a := range x.auto {
		at := place{a.node, a.prefix}
		for x.taken[a.node+":"+a.prefix+strconv.Itoa(next[at])] {
			next[at]++
		}
		name := a.prefix + strconv.Itoa(next[at])
		next[at]++
		if a.whole {
			name = a.node + ":" + name
		}
		a.name.Value = strings.Clone(name)
	}
}
