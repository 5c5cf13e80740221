package topology

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// MaxSize is the size in bytes of the largest topology file that is read: one that names 100,000 nodes and as many links with a
// delay has 9 MB.
const MaxSize = 16 << 20

// maxReferred is the size in bytes of the largest file that a topology refers to.
const maxReferred = 4 << 20

const (
	// maxDepth bounds how deep lists and maps nest, aliases expanded. The
	// schema needs 8.
	maxDepth = 32
	// maxValues bounds the values of a file, aliases expanded. That of 100,000 nodes and
	// as many links with a delay has some 900,000.
	maxValues = 1 << 20
)

// document returns the root value of the only YAML document in data, or nil if
// errors were reported. A walk over it meets at most maxValues values to a depth
// of maxDepth, also when it follows every alias. Variables have been replaced by
// what they stand for.
func (r *reader) document(data []byte) *yaml.Node {
	root, ok := r.value(data)
	if !ok {
		return nil
	}
	if isNull(root) {
		r.errorAt(1, 1, "the file is empty, expected a lab: a map with the key topology")
		return nil
	}
	size := MaxSize
	if substitute(r, root, &size); len(r.errors) > 0 {
		return nil
	}
	return root
}

// value is document, but takes nothing at all, too, as a null value; ok is false
// if errors were reported.
func (r *reader) value(data []byte) (root *yaml.Node, ok bool) {
	if len(data) > MaxSize {
		r.errorAt(1, 1, "the file has more than %d bytes (%d MiB), expected no more", MaxSize, MaxSize>>20)
		return nil, false
	}
	if !printable(r, data) {
		return nil, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decode(decoder, &first); errors.Is(err, io.EOF) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: 1, Column: 1}, true
	} else if err != nil {
		syntaxError(r, data, err)
		return nil, false
	}
	if err := decode(decoder, &second); err == nil {
		r.errorf(&second, "a second YAML document, expected only one")
		return nil, false
	} else if !errors.Is(err, io.EOF) {
		syntaxError(r, data, err)
		return nil, false
	}
	root = first.Content[0]
	m := measure{reader: r, size: make(map[*yaml.Node]expanse)}
	if _, ok := m.of(root, 1); !ok {
		return nil, false
	}
	return root, true
}

// decode reads one document. yaml.v3 panics where it finds itself in a state it
// thought impossible; for us that is a file it cannot read.
func decode(d *yaml.Decoder, n *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	return d.Decode(n)
}

// printable reports whether data is printable as YAML has it: UTF-8 without control
// characters (YAML 1.2, section 5.1). yaml.v3 checks that too, but does not say
// where.
func printable(r *reader, data []byte) bool {
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		switch {
		case c == utf8.RuneError && size == 1:
			r.errorAt(line, column, "byte 0x%02x is not UTF-8, expected UTF-8 text", rest[0])
			return false
		case c < 0x20 && c != '\t' && c != '\n' && c != '\r', 0x7f <= c && c < 0xa0 && c != 0x85, c == 0xfffe, c == 0xffff:
			r.errorAt(line, column, "control character U+%04X, expected text", c)
			return false
		case c == '\n':
			line, column = line+1, 0
		}
		column++
		rest = rest[size:]
	}
	return true
}

var (
	yamlMessage = &pattern{text: `^yaml: (?:line (\d+): )?(.*)$`}
	// parserMessage matches what yaml.v3's parser, not its scanner, reports: it
	// counts those lines from 0.
	parserMessage = &pattern{text: `^did not find expected (<|node content|'-'|key|',')|^found (duplicate %|incompatible|undefined tag)`}
	// anchorMessage matches the one message that lacks a place altogether.
	anchorMessage = &pattern{text: `^unknown anchor '(.*)' referenced$`}
	// operatorMessage matches what yaml.v3 says of an unquoted ">= 200mbit":
	// to YAML, a leading > opens a folded text.
	operatorMessage = &pattern{text: `^did not find expected comment or line break|^found character that cannot start`}
)

// syntaxError reports an error of yaml.v3, which knows a line at best: often
// the one where the surrounding map or list begins.
func syntaxError(r *reader, data []byte, err error) {
	match := yamlMessage.compiled().FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if match == nil {
		r.errorAt(1, 1, "not YAML: %v", err)
		return
	}
	if name := anchorMessage.compiled().FindStringSubmatch(match[2]); name != nil {
		before, _, _ := strings.Cut(string(data), "*"+name[1])
		start := strings.LastIndexByte(before, '\n') + 1
		r.errorAt(1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[start:]),
			"unknown anchor %s, expected one that the file defines above", quote(name[1]))
		return
	}
	number, _ := strconv.Atoi(match[1]) // 0 if there is none
	if parserMessage.compiled().MatchString(match[2]) {
		number++
	}
	number = max(number, 1)
	var line string
	if lines := strings.SplitN(string(data), "\n", number+1); number <= len(lines) {
		line = lines[number-1]
	}
	blank := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if tab := strings.IndexByte(blank, '\t'); tab >= 0 {
		r.errorAt(number, tab+1, "a tab in the indentation, expected spaces")
		return
	}
	hint := ""
	switch {
	case operatorMessage.compiled().MatchString(match[2]) && strings.Contains(line, ">"):
		hint = `; a value that begins with > needs quotes: ">= 200mbit"`
	case parserMessage.compiled().MatchString(match[2]) && strings.Contains(line, "${"):
		hint = `; a variable inside of { } or [ ] needs quotes: {cpu: "${CPU:=1}"}`
	case parserMessage.compiled().MatchString(match[2]):
		hint = "; check indentation, brackets and commas from here on"
	}
	r.errorAt(number, len(blank)+1, "not YAML: %s%s", match[2], hint)
}

// An expanse is the size of a value with every alias in it replaced by what it
// stands for.
type expanse struct{ values, depth int }

// A measure finds out how large a document would become.
type measure struct {
	*reader
	// size holds what is known of every value that has an anchor, so that an
	// alias is not walked again; the zero expanse while it is being walked.
	size map[*yaml.Node]expanse
}

// of is the expanse of n, which lies at the given depth, or false if it breaks
// a limit, which is then reported.
func (m *measure) of(n *yaml.Node, depth int) (expanse, bool) {
	e := expanse{values: 1, depth: 1}
	if n.Kind == yaml.AliasNode {
		known, walked := m.size[n.Alias]
		if !walked { // what has the anchor was replaced since: see expand
			return m.of(n.Alias, depth)
		}
		if known == (expanse{}) {
			m.errorf(n, "alias *%s stands inside what it stands for, expected an end to it", n.Value)
			return e, false
		}
		return known, m.within(n, depth, known)
	}
	if depth > maxDepth {
		return e, m.within(n, depth, e)
	}
	if n.Anchor != "" {
		m.size[n] = expanse{}
	}
	for _, child := range n.Content {
		c, ok := m.of(child, depth+1)
		if !ok {
			return e, false
		}
		e.values += c.values
		e.depth = max(e.depth, 1+c.depth)
		if !m.within(child, depth, e) {
			return e, false
		}
	}
	if n.Anchor != "" {
		m.size[n] = e
	}
	return e, true
}

// within reports whether e at the given depth is within the limits.
func (m *measure) within(n *yaml.Node, depth int, e expanse) bool {
	switch {
	case e.values > maxValues:
		m.errorf(n, "more than %d values with aliases and ranges expanded, expected a smaller lab", maxValues)
	case depth+e.depth-1 > maxDepth:
		m.errorf(n, "lists and maps nested more than %d deep with aliases expanded, expected at most that", maxDepth)
	default:
		return true
	}
	return false
}
