package topology

import (
	"path"
	"strings"

	"gopkg.in/yaml.v3"
)

// This file is lists of nodes and links by name, in which a name may be a pattern.

// maxNamed bounds the names that all lists of a file are compared with.
const maxNamed = 1 << 24

// nameList reads a name or a list of them.
func (r *reader) nameList(n *yaml.Node) val[[]val[string]] {
	v := val[[]val[string]]{at: n}
	before := len(r.errors)
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		v.is = []val[string]{scalar(r, n, anyText)}
	} else {
		r.items(n, func(n *yaml.Node) { v.is = append(v.is, scalar(r, n, anyText)) })
		if len(n.Content) == 0 {
			r.valueError(n, "found nothing in the list, expected one at least")
		}
	}
	v.ok = len(r.errors) == before
	return v
}

// isPattern reports whether a name is one of path.Match's patterns.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// named is what a list of names and patterns stands for, in the order of the list and,
// for each pattern, in that of all. What is called what each is; check reports whether
// there is something of a plain name, and the error if not. What comes about twice counts
// once. ok is false if errors were reported.
func (r *reader) named(list []val[string], what string, all []string, check func(val[string]) bool) (names []string, ok bool) {
	before := len(r.errors)
	has := make(map[string]bool)
	add := func(name string) {
		if !has[name] {
			names = append(names, name)
		}
		has[name] = true
	}
	for _, v := range list {
		cost := 1
		if isPattern(v.is) {
			cost = len(all)
		}
		if r.namings += cost; r.namings > maxNamed {
			if r.namings-cost <= maxNamed {
				r.errorf(v.at, "the file has too many lists of names and patterns, expected fewer or shorter ones")
			}
			return nil, false
		}
		if !isPattern(v.is) {
			if check(v) {
				add(v.is)
			}
			continue
		}
		if _, err := path.Match(v.is, ""); err != nil {
			r.errorf(v.at, "%s is no pattern of names, expected one such as leaf-*", quote(v.is))
			continue
		}
		found := false
		for _, name := range all {
			if matches, _ := path.Match(v.is, name); matches {
				found = true
				add(name)
			}
		}
		if !found {
			r.errorf(v.at, "no %s is %s, %s", what, quote(v.is), r.expectation(v.is, all))
		}
	}
	return names, len(r.errors) == before
}
