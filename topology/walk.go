package topology

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A reader turns YAML nodes into values and collects what is wrong with them.
type reader struct {
	Options
	file       string
	errors     ErrorList
	key        string                     // being read, to begin messages with; "" outside of fields
	suggested  int                        // see suggestions
	partitions int                        // see checkedPartitions
	namings    int                        // see maxNamed
	samples    map[string][]time.Duration // of files, by path
	sources    map[string][]byte          // content of files, by path
	seen       func(what string)          // told of every map that is read; nil but in tests
	needs      []Need                     // met so far, of a machine
	simulated  []Need                     // likewise, of a simulation
	buffered   map[string]bool            // names of nodes with a buffer
}

// A val is a value with its place in the file.
type val[T any] struct {
	at *yaml.Node // nil: the file does not give it
	is T
	ok bool // given, and right
}

// or is v if the file gives it, else the one of less precedence.
func (v val[T]) or(less val[T]) val[T] {
	if v.at != nil {
		return v
	}
	return less
}

// orElse is the value, or a default where the file gives none.
func (v val[T]) orElse(d T) T {
	if v.ok {
		return v.is
	}
	return d
}

func (r *reader) errorAt(line, column int, format string, args ...any) {
	r.errors = append(r.errors, Error{File: r.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// errorf reports an error at n.
func (r *reader) errorf(n *yaml.Node, format string, args ...any) {
	r.errorAt(n.Line, n.Column, format, args...)
}

// place returns where the file has n.
func (r *reader) place(n *yaml.Node) Place { return Place{r.file, n.Line, n.Column} }

// path returns the path of a file that this one names: a relative name begins at the folder
// of the file that has it.
func (r *reader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.file), name)
}

// content returns what is in a file that n names, of at most so many bytes. It reports the
// error, and ok is false, if that cannot be read: by failed, a format, or by what else the
// file could say where no files are read.
func (r *reader) content(n *yaml.Node, path string, most int, instead, failed string) (content []byte, ok bool) {
	if r.Read == nil {
		r.valueError(n, "files are not read here, expected %s", instead)
		return nil, false
	}
	content, err := r.Read(path)
	switch {
	case err != nil:
		r.valueError(n, failed, err)
	case len(content) > most:
		r.valueError(n, "%s has more than %d bytes (%d MiB), expected no more", path, most, most>>20)
	default:
		return content, true
	}
	return nil, false
}

// valueError reports what is wrong with a value, after the key that it is of.
func (r *reader) valueError(n *yaml.Node, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if r.key != "" {
		message = r.key + ": " + message
	}
	r.errorf(n, "%s", message)
}

// scalar is the value of n.
func scalar[T any](r *reader, n *yaml.Node, parse func(string) (T, error)) val[T] {
	v := val[T]{at: n}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.valueError(n, "found %s, expected a single value", describe(n))
		return v
	}
	is, err := parse(n.Value)
	if err != nil {
		r.valueError(n, "%v", err)
		return v
	}
	v.is, v.ok = is, true
	return v
}

// items reads a list. Nothing at all is an empty list.
func (r *reader) items(n *yaml.Node, read func(*yaml.Node)) {
	switch {
	case isNull(n):
	case n.Kind != yaml.SequenceNode:
		r.valueError(n, "found %s, expected a list", describe(n))
	default:
		for _, item := range n.Content {
			read(target(item))
		}
	}
}

// An entry is one key of a map, with aliases followed.
type entry struct{ key, value *yaml.Node }

// entries returns what a map holds, in the order of the file, followed by what it
// takes over from others by a merge key (<<). A key the map has itself wins
// over a merged one, and of those the first.
func (r *reader) entries(n *yaml.Node) []entry {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.valueError(n, "found %s, expected a map", describe(n))
		return nil
	}
	var entries []entry
	var merged []*yaml.Node
	has := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := target(n.Content[i]), target(n.Content[i+1])
		first := has[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.errorf(key, "found %s as a key, expected a single value", describe(key))
			continue
		case key.Tag == "!!merge":
			merged = append(merged, r.merged(value)...)
			continue
		case first != nil:
			r.errorf(n.Content[i], "key %s a second time, expected it once (line %d has it)", quote(key.Value), first.Line)
			continue
		}
		has[key.Value] = key
		entries = append(entries, entry{key, value})
	}
	for _, m := range merged {
		for _, e := range r.entries(m) {
			if has[e.key.Value] == nil {
				has[e.key.Value] = e.key
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// merged is the maps that the value of a merge key stands for.
func (r *reader) merged(n *yaml.Node) []*yaml.Node {
	maps := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		maps = nil
		for _, item := range n.Content {
			maps = append(maps, target(item))
		}
	}
	for _, m := range maps {
		if m.Kind != yaml.MappingNode {
			r.errorf(m, "found %s after a merge key, expected a map or a list of maps", describe(m))
			return nil
		}
	}
	return maps
}

// target returns what an alias stands for, and anything else as it is.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// isMap reports whether n has the shape of a map; nothing at all is an empty one.
func isMap(n *yaml.Node) bool { return n.Kind == yaml.MappingNode || isNull(n) }

// describe names what a value is, for messages.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return quote(n.Value)
}

// quote is text from the file on one line of bearable length.
func quote(text string) string {
	const most = 60 // characters
	if runes := []rune(text[:min(len(text), 4*most)]); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(text, ""))
}
