package html

import (
	"bufio"
	stdhtml "html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A page is made of parts: elements, their attributes and text. The names and texts of labs, nodes and
// programs are values or texts, and both are escaped when they are written, so that they cannot
// become markup. Names of elements and attributes are constants of this package.
//
// Not html/template: its initialisation takes time in every process of a lab, as all run this binary.
type part interface{ of(e *element) }

type element struct {
	name       string
	attributes []attribute
	children   []node
}

// A node can be written.
type node interface{ write(w *bufio.Writer) }

type attribute struct{ name, value string }

// text is content that is escaped.
type text string

// verbatim is markup as it is: the style sheets and scripts of this package, and the pictures of
// package graph, which escapes by itself.
type verbatim string

// A group is several parts one after the other.
type group []part

func (e *element) of(p *element)  { p.children = append(p.children, e) }
func (t text) of(e *element)      { e.children = append(e.children, t) }
func (v verbatim) of(e *element)  { e.children = append(e.children, v) }
func (a attribute) of(e *element) { e.attributes = append(e.attributes, a) }
func (g group) of(e *element) {
	for _, p := range g {
		p.of(e)
	}
}

// el returns an element with its attributes and children.
func el(name string, parts ...part) *element {
	e := &element{name: name}
	group(parts).of(e)
	return e
}

func attr(name, value string) attribute { return attribute{name, value} }
func class(names string) attribute      { return attribute{"class", names} }
func id(value string) attribute         { return attribute{"id", value} }

// when returns some parts, or none.
func when(condition bool, parts ...part) group {
	if !condition {
		return nil
	}
	return parts
}

// to links to the part of the page with an id, which is never anybody's text.
func to(id string, parts ...part) *element {
	return el("a", append(group{attr("href", "#"+id)}, parts...)...)
}

func (e *element) write(w *bufio.Writer) {
	// Errors stay in the writer until it is flushed.
	_, _ = w.WriteString("<" + e.name)
	for _, a := range e.attributes {
		_, _ = w.WriteString(" " + a.name + `="` + escaped(a.value) + `"`)
	}
	_, _ = w.WriteString(">")
	switch e.name {
	case "meta", "link", "br": // which have no end
		return
	}
	for _, c := range e.children {
		c.write(w)
	}
	_, _ = w.WriteString("</" + e.name + ">")
	switch e.name {
	case "tr", "section", "p", "head", "title", "table", "li", "figure", "details", "div", "script", "style":
		_, _ = w.WriteString("\n")
	}
}

func (t text) write(w *bufio.Writer)     { _, _ = w.WriteString(escaped(string(t))) }
func (v verbatim) write(w *bufio.Writer) { _, _ = w.WriteString(string(v)) }

// escaped returns text without markup, without control characters, and without those that would
// turn the direction of what is around it.
func escaped(s string) string {
	return stdhtml.EscapeString(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ' || 0x7F <= r && r < 0xA0 || r == utf8.RuneError,
			0x202A <= r && r <= 0x202E, 0x2066 <= r && r <= 0x2069:
			return '?'
		}
		return r
	}, s))
}

// bounded returns the beginning of a text.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}

func boundedAll(texts []string, most int) []string {
	all := make([]string, len(texts))
	for i, s := range texts {
		all[i] = bounded(s, most)
	}
	return all
}

// tail returns the end of a text.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "… " + strings.ToValidUTF8(s[len(s)-most:], "")
}

func number[T int | uint64](n T) text { return text(strconv.FormatInt(int64(n), 10)) }
