package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file puts values of the command line into places of a file, such as a delay into all
// links. The path of a place is the keys of the file that lead there.

// A Setting is a value for places of a topology file, instead of what the file has there.
type Setting struct {
	// Path is the keys from the file's top to the places, with dots: topology.defaults.link.delay.
	// A word in brackets behind a key chooses of a list or a map: workloads[bulk].size. Without one
	// the path goes on in each item of a list. A word is a name, a range or a pattern, as nodes have
	// them; for a link it is an end, or its nodes as a-b; and for a list without names, a number from 1.
	//
	// link, node, workload, defaults and fabric stand for topology.links, topology.nodes[*],
	// workloads, topology.defaults and topology.fabric.
	Path string
	// Value is the value, as YAML has it in one line.
	Value string
}

// String returns the setting as ParseSetting reads it.
func (s Setting) String() string { return s.Path + "=" + s.Value }

// ParseSetting reads PATH=VALUE. It knows no file: a path that a file has not got is an error of ParseWith.
func ParseSetting(text string) (Setting, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok || path == "" {
		return Setting{}, fmt.Errorf("found %s, expected PATH=VALUE such as link.delay=1ms", quote(text))
	}
	s := Setting{path, value}
	if _, err := s.steps(); err != nil {
		return s, err
	}
	return s, s.check()
}

// check says what is wrong with the value as YAML.
func (s Setting) check() error {
	r := &reader{}
	if n, ok := r.value([]byte(s.Value)); ok && isNull(n) {
		return fmt.Errorf("%s: there is no value, expected one such as link.delay=1ms", s.Path)
	}
	if len(r.errors) > 0 {
		return fmt.Errorf("%s: %s", s.Path, r.errors[0].Message)
	}
	return nil
}

// A step is a part of a path: a key, and the word behind it.
type step struct {
	key, word string // word is "" if there is none
}

func (s step) String() string {
	if s.word == "" {
		return s.key
	}
	return s.key + "[" + s.word + "]"
}

// steps returns the parts of the path as it is written.
func (s Setting) steps() ([]step, error) {
	var all []step
	for rest := s.Path; ; {
		var one step
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		one.key, rest = rest[:end], rest[end:]
		if strings.HasPrefix(rest, "[") {
			closing := closingBracket(rest)
			if closing < 0 {
				return nil, fmt.Errorf("%s: the bracket after %s has no end, expected ]", s.Path, one.key)
			}
			if one.word, rest = rest[1:closing], rest[closing+1:]; one.word == "" {
				return nil, fmt.Errorf("%s: nothing is in the brackets after %s, expected a name", s.Path, one.key)
			}
		}
		if one.key == "" || rest != "" && rest[0] != '.' {
			return nil, fmt.Errorf("%s is no path, expected keys with dots between them, such as link.delay or workload[bulk].size", quote(s.Path))
		}
		all = append(all, one)
		if rest == "" {
			return all, nil
		}
		rest = rest[1:]
	}
}

// closingBracket returns the index of the bracket that closes the first one, -1 if none does.
func closingBracket(text string) int {
	depth := 0
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// stands returns what a word stands for that a path may begin with, beside keys of the file; nil for others.
func stands(word string) []step {
	switch word {
	case "link":
		return []step{{key: "topology"}, {key: "links"}}
	case "node":
		return []step{{key: "topology"}, {key: "nodes", word: "*"}}
	case "workload":
		return []step{{key: "workloads"}}
	case "defaults":
		return []step{{key: "topology"}, {key: "defaults"}}
	case "fabric":
		return []step{{key: "topology"}, {key: "fabric"}}
	}
	return nil
}

// full returns the parts of a path from the file's top.
func full(steps []step) []step {
	stands := stands(steps[0].key)
	if stands == nil {
		return steps
	}
	if word := steps[0].word; word != "" {
		stands[len(stands)-1].word = word
	}
	return append(stands, steps[1:]...)
}

// A setter puts one value into its places.
type setter struct {
	*reader
	setting Setting
	value   *yaml.Node
}

// set returns the file at root with the settings, or nil after errors. Those of the fabric block
// come before it is expanded, and all others after that, when each node and link stands by itself.
func (r *reader) set(root *yaml.Node, ofFabric bool) *yaml.Node {
	before := len(r.errors)
	for _, setting := range r.Set {
		steps, err := setting.steps()
		if err = errors.Join(err, setting.check()); err != nil {
			r.errorf(root, "%v", err)
			return nil
		}
		steps = full(steps)
		if fabric := len(steps) > 1 && steps[0].key == "topology" && steps[1].key == "fabric"; fabric != ofFabric {
			continue
		}
		s := &setter{reader: r, setting: setting}
		s.value, _ = r.value([]byte(setting.Value)) // which is checked
		if known := append(labTable().names(), "link", "node", "workload", "defaults", "fabric"); !slices.Contains(known, steps[0].key) {
			s.fail(root, "a file has no key %s, %s", quote(steps[0].key), r.expectation(steps[0].key, known))
			continue
		}
		root = s.put(root, "the file", steps)
	}
	if len(r.errors) > before {
		return nil
	}
	if r.Set != nil {
		m := measure{reader: r, size: make(map[*yaml.Node]expanse)}
		if _, ok := m.of(root, 1); !ok {
			return nil
		}
	}
	return root
}

func (s *setter) fail(at *yaml.Node, format string, args ...any) {
	s.errorf(at, "%s: %s", s.setting.Path, fmt.Sprintf(format, args...))
}

// put returns n, which is called what, with the value in the places that steps lead to from there.
// Nothing of n itself changes: other places may have it, too.
func (s *setter) put(n *yaml.Node, what string, steps []step) *yaml.Node {
	if len(steps) == 0 {
		return movedTo(s.value, n)
	}
	if isNull(n) {
		n = flowMap(n)
	}
	if n.Kind != yaml.MappingNode {
		s.fail(n, "%s is %s, expected a map", what, describe(n))
		return n
	}
	entries, first := s.entries(n), steps[0]
	i := slices.IndexFunc(entries, func(e entry) bool { return e.key.Value == first.key })
	if i < 0 {
		if first.word != "" || first.key == "links" || first.key == "workloads" {
			s.fail(n, "the file has no %s, expected some to set something of", first.key)
			return n
		}
		entries = append(entries, entry{text(n, first.key), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}})
		i = len(entries) - 1
	}
	value := s.in(entries[i].value, first, steps[1:])
	return with(append(entries[:i:i], append([]entry{{entries[i].key, value}}, entries[i+1:]...)...), n, nil)
}

// in returns the value of a key with the value of the setting in the places that rest leads to from
// what the step chooses there.
func (s *setter) in(n *yaml.Node, at step, rest []step) *yaml.Node {
	if at.word == "" && (n.Kind != yaml.SequenceNode || len(rest) == 0) {
		return s.put(n, at.key, rest)
	}
	names := s.names(n, at.key)
	chosen, ok := s.choose(n, at, names)
	if !ok {
		return n
	}
	is := *n
	is.Anchor, is.Content, is.Style = "", slices.Clone(n.Content), 0
	if n.Kind == yaml.MappingNode {
		is.Content = nil
		for _, e := range s.entries(n) {
			is.Content = append(is.Content, e.key, e.value)
		}
	}
	for _, i := range chosen {
		name, _, _ := strings.Cut(names[i], nameSeparator)
		is.Content[i] = s.put(target(is.Content[i]), at.key+"["+name+"]", rest)
	}
	return &is
}

// choose returns which values of n a step chooses, by their index in what n holds.
func (s *setter) choose(n *yaml.Node, at step, names []string) (chosen []int, ok bool) {
	word, err := naming.Parse(at.word)
	switch {
	case n.Kind != yaml.SequenceNode && n.Kind != yaml.MappingNode:
		s.fail(n, "%s is %s, expected a list or a map to choose %s from", at.key, describe(n), at.word)
		return nil, false
	case err != nil && at.word != "":
		s.fail(n, "%v", err)
		return nil, false
	}
	for i, name := range names {
		if name == "" { // a key, whose value is next
			continue
		}
		if at.word == "" || slices.ContainsFunc(strings.Split(name, nameSeparator), word.Has) {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) > 0 {
		return chosen, true
	}
	known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	for i, name := range known {
		known[i], _, _ = strings.Cut(name, nameSeparator)
	}
	if at.word == "" {
		s.fail(n, "the file has no %s, expected some to set something of", at.key)
	} else {
		s.fail(n, "%s has no %s, %s", at.key, quote(at.word), s.expectation(at.word, known))
	}
	return nil, false
}

// nameSeparator is between the names of one thing: those of a link.
const nameSeparator = " "

// names returns, for each value that n holds, the names that choose it; "" for keys.
func (s *setter) names(n *yaml.Node, key string) []string {
	var names []string
	if n.Kind == yaml.MappingNode {
		for _, e := range s.entries(n) {
			names = append(names, "", e.key.Value)
		}
		return names
	}
	for i, item := range n.Content {
		name := strconv.Itoa(i + 1)
		if item = target(item); item.Kind == yaml.MappingNode {
			entries := s.entries(item)
			if of := find(entries, "name"); of != nil && of.Value != "" {
				name = of.Value
			}
			if key == "links" {
				name = linkNames(s.reader, find(entries, "endpoints"), name)
			}
		}
		names = append(names, name)
	}
	return names
}

// linkNames returns what a link is called by: its nodes in either order, and its ends.
func linkNames(r *reader, endpoints *yaml.Node, otherwise string) string {
	if endpoints == nil || endpoints.Kind != yaml.SequenceNode || len(endpoints.Content) != 2 {
		return otherwise // which the reader reports
	}
	var nodes, ends [2]string
	for i, item := range endpoints.Content {
		if item = target(item); item.Kind == yaml.MappingNode {
			entries := r.entries(item)
			node, iface := find(entries, "node"), find(entries, "interface")
			if node == nil || iface == nil {
				return otherwise
			}
			nodes[i], ends[i] = node.Value, node.Value+":"+iface.Value
			continue
		}
		nodes[i], _, _ = strings.Cut(item.Value, ":")
		ends[i] = item.Value
	}
	return strings.Join([]string{nodes[0] + "-" + nodes[1], nodes[1] + "-" + nodes[0], ends[0], ends[1]}, nameSeparator)
}

// movedTo returns a copy of a value that has the place of another.
func movedTo(value, at *yaml.Node) *yaml.Node {
	is := *value
	is.Line, is.Column, is.Content = at.Line, at.Column, nil
	for _, child := range value.Content {
		is.Content = append(is.Content, movedTo(child, at))
	}
	return &is
}
