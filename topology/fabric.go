package topology

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/topology/shape"
	"gopkg.in/yaml.v3"
)

// This file is the block that stands for the nodes and links of a usual shape.

// A fabricMap is the block.
type fabricMap struct {
	shape  string
	values map[string]int   // of the parameters, by key
	tiers  map[string]entry // what links of each tier have
}

// shapeNames are the shapes that a block may have.
func shapeNames() []string {
	return textsOf(shape.All(), func(s shape.Shape) string { return s.Name })
}

// parameterKey is the key of a shape's parameter.
func parameterKey(p shape.Parameter) string { return strings.ReplaceAll(p.Name, "-", "_") }

var fabricTable = sync.OnceValue(func() *keyTable[fabricMap] {
	t := &keyTable[fabricMap]{
		what: "a fabric", noun: "fabric", def: "fabric", required: []string{"shape"},
		also: fabricRules,
		keys: []key[fabricMap]{
			one("shape", manyWords(shapeNames), func(m *fabricMap) *string { return &m.shape }, "what it looks like"),
			readBy("tiers", tiersSchema, func(r *reader, n *yaml.Node) func(*fabricMap) {
				tiers := make(map[string]entry)
				for _, e := range r.entries(n) {
					linksForm(tierTable).of(r, e.value)
					tiers[e.key.Value] = e
				}
				return func(m *fabricMap) { m.tiers = tiers }
			}, "how the links of each tier fare: of hosts, and those that lead up to spines, or to the routers agg and core, or between two switches (trunk)"),
		},
	}
	for _, s := range shape.All() {
		for _, p := range s.Parameters {
			name := parameterKey(p)
			doc := fmt.Sprintf("%s: %s, %d to %d, else %d", s.Name, p.Usage, p.Minimum, p.Maximum, p.Default)
			i := slices.Index(t.names(), name)
			if i >= 0 { // a parameter of several shapes
				t.keys[i].doc += "; " + doc
				continue
			}
			number := count[int](0, 1<<16) // of which Check knows the range
			t.keys = append(t.keys, readBy(name, number.schema, func(r *reader, n *yaml.Node) func(*fabricMap) {
				v := number.of(r, n).is
				return func(m *fabricMap) { m.values = merge(map[string]int{name: v}, m.values) }
			}, doc))
		}
	}
	return t
})

// tierTable is the keys of the links of a tier.
var tierTable = linksTable("the links of a tier")

// tiersSchema is the schema of what the links of all tiers have.
func tiersSchema() schema {
	tiers := map[string]schema{}
	for _, s := range shape.All() {
		for _, tier := range s.Tiers {
			tiers[tier] = tierTable().schema().describedAs("What holds for the links of this tier, before the link defaults.")
		}
	}
	return schema{"type": []string{"object", "null"}, "properties": tiers, "additionalProperties": false}
}

// fabricRules adds to the schema of a block which keys each shape has.
func fabricRules(t *keyTable[fabricMap], f schema) {
	var rules []schema
	for _, s := range shape.All() {
		own := []string{"shape", "tiers"}
		for _, p := range s.Parameters {
			own = append(own, parameterKey(p))
		}
		barred := slices.DeleteFunc(t.names(), func(key string) bool { return slices.Contains(own, key) })
		rules = append(rules, when(schema{"properties": bars(barred)}, map[string][]string{"shape": {s.Name}}))
	}
	f["allOf"] = rules
}

// fabric is the nodes and links that the block at n stands for.
func (x *expander) fabric(n *yaml.Node) (nodes []entry, links []*yaml.Node) {
	before := len(x.errors)
	defer func() { x.failed = x.failed || len(x.errors) > before }()
	m := fabricTable().read(x.reader, n)
	all := shape.All()
	i := slices.IndexFunc(all, func(s shape.Shape) bool { return s.Name == m.is.shape })
	if i < 0 {
		return nil, nil
	}
	s := all[i]
	values := make(map[string]int)
	var keys []string
	for _, p := range s.Parameters {
		name := parameterKey(p)
		keys = append(keys, name)
		values[p.Name] = p.Default
		if m.ok(name) {
			values[p.Name] = m.is.values[name]
			if err := p.Check(values[p.Name]); err != nil {
				x.errorf(m.place(name), "%s: %v", name, err)
			}
		}
	}
	for _, g := range m.keys {
		if g.key != "shape" && g.key != "tiers" && !slices.Contains(keys, g.key) {
			x.errorf(g.at, "%s stands with the shape %s, expected some of %s", g.key, s.Name, strings.Join(keys, ", "))
		}
	}
	for tier, e := range m.is.tiers {
		if !slices.Contains(s.Tiers, tier) {
			x.errorf(e.key, "the shape %s has no tier %s, %s", s.Name, quote(tier), x.expectation(tier, s.Tiers))
		}
	}
	if len(x.errors) > before {
		return nil, nil
	}
	settings := make(map[string][]*yaml.Node) // of links, as a map's content
	for tier, e := range m.is.tiers {
		for _, e := range x.entries(e.value) {
			settings[tier] = append(settings[tier], e.key, e.value)
		}
	}
	plan := s.Plan(values)
	for _, node := range plan.Nodes {
		is := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
		if node.Kind != "" {
			is = flowMap(n, text(n, "kind"), text(n, node.Kind))
		}
		nodes = append(nodes, entry{text(n, node.Name), is})
	}
	for _, l := range plan.Links {
		ends := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle, Line: n.Line, Column: n.Column,
			Content: []*yaml.Node{text(n, l.Ends[0]), text(n, l.Ends[1])}}
		links = append(links, flowMap(n, append([]*yaml.Node{text(n, "endpoints"), ends}, settings[l.Tier]...)...))
	}
	return nodes, links
}

// flowMap is a map on one line, at the place of another value.
func flowMap(at *yaml.Node, content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle, Line: at.Line, Column: at.Column, Content: content}
}

// withFabric is the topology at n with the nodes and links of its block, if it has one,
// before those that it lists.
func (x *expander) withFabric(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	entries := x.entries(n)
	var generated []entry
	block := find(entries, "fabric")
	if block != nil {
		var links []*yaml.Node
		generated, links = x.fabric(block)
		if find(entries, "nodes") == nil {
			entries = append(entries, entry{text(block, "nodes"), flowMap(block)})
		}
		list := find(entries, "links")
		if list == nil || isNull(list) {
			list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: block.Line, Column: block.Column}
			entries = append(slices.DeleteFunc(entries, func(e entry) bool { return e.key.Value == "links" }), entry{text(block, "links"), list})
		}
		if list.Kind == yaml.SequenceNode {
			both := *list
			both.Anchor, both.Content, both.Style = "", append(links, list.Content...), 0
			for i := range entries {
				if entries[i].key.Value == "links" {
					entries[i].value = &both
				}
			}
		}
	}
	is := *n
	is.Content = nil
	for _, e := range entries {
		switch e.key.Value {
		case "fabric":
			continue
		case "nodes":
			e.value = x.nodes(e.value, generated)
		case "links":
			e.value = x.links(e.value)
		}
		is.Content = append(is.Content, e.key, e.value)
	}
	return &is
}

// Expand is a topology file that says the same as another, with each node, link and
// workload by itself: of ranges, patterns in nodes, free interfaces and the fabric block
// nothing is left, nor of variables, anchors and comments. The error is nil or an
// ErrorList.
func Expand(o Options, name string, data []byte) ([]byte, error) {
	r := &reader{Options: o, file: name}
	root := r.document(data)
	if root != nil {
		root = r.expanded(root)
	}
	if root == nil || len(r.errors) > 0 {
		return nil, r.errors.ordered(name)
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(written(r, root)); err != nil {
		return nil, err
	}
	return []byte(b.String()), e.Close()
}

// written is a value as it stands in a file: without aliases, and with its dollars as
// they are written.
func written(r *reader, n *yaml.Node) *yaml.Node {
	n = target(n)
	is := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Style: n.Style, Value: strings.ReplaceAll(n.Value, "$", "$$")}
	switch {
	case isNull(n):
		is.Value, is.Style = "null", 0
	case n.Kind == yaml.MappingNode:
		for _, e := range r.entries(n) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: e.key.Tag, Style: e.key.Style, Value: e.key.Value}
			is.Content = append(is.Content, key, written(r, e.value))
		}
		if len(n.Content) == 0 {
			is.Style = yaml.FlowStyle
		}
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			is.Content = append(is.Content, written(r, item))
		}
	}
	return is
}
