package topology

import (
	"slices"

	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file is nodes and links by name, where a name may be a range or a pattern.

// maxNamed bounds the names that all lists of a file are compared with.
const maxNamed = 1 << 24

// nameList is a name or a list of them.
var nameList = listOfNames(anyText)

// listOfNames is texts, alone or in a list, of which the schema says what form does.
func listOfNames(f form[string]) form[[]val[string]] {
	return form[[]val[string]]{
		schema: func() schema { return oneOrList(f.schema(), 1<<30) },
		read: func(r *reader, n *yaml.Node) (names []val[string]) {
			if n.Kind == yaml.ScalarNode && !isNull(n) {
				return []val[string]{f.of(r, n)}
			}
			r.items(n, func(n *yaml.Node) { names = append(names, f.of(r, n)) })
			if len(n.Content) == 0 {
				r.valueError(n, "found nothing in the list, expected one at least")
			}
			return names
		},
	}
}

// each is the names that a word stands for: of a pattern those of all, which are called
// what each is, of a range its own, whether or not there is something of that name. It is
// nothing if an error was reported.
func (r *reader) each(v val[string], what string, all []string) []val[string] {
	if !v.ok || !naming.IsSeveral(v.is) {
		return []val[string]{v}
	}
	w, err := naming.Parse(v.is)
	if err != nil {
		r.errorf(v.at, "%v", err)
		return nil
	}
	if !r.affordable(v.at, cost(w, all)) {
		return nil
	}
	var names []string
	if w.Pattern() {
		var missing string
		if names, missing = w.Among(all); missing != "" {
			r.errorf(v.at, "no %s is %s, %s", what, quote(missing), r.expectation(missing, all))
		}
	} else {
		names = slices.Collect(w.All())
	}
	each := make([]val[string], len(names))
	for i, name := range names {
		each[i] = val[string]{v.at, name, true}
	}
	return each
}

// cost returns the number of comparisons that finding a word among names takes; all is nil
// where it is compared with one name.
func cost(w naming.Word, all []string) int {
	switch {
	case w.Pattern():
		return w.Count() * max(1, len(all))
	case all == nil:
		return 1
	}
	return w.Count()
}

// affordable reports whether there is time for so many more comparisons of names, and
// the error if not.
func (r *reader) affordable(at *yaml.Node, comparisons int) bool {
	if r.namings += comparisons; r.namings <= maxNamed {
		return true
	}
	if r.namings-comparisons <= maxNamed {
		r.errorf(at, "the file has too many lists of names and patterns, expected fewer or shorter ones")
	}
	return false
}

// is reports whether a word stands for a name, among others.
func (r *reader) is(v val[string], name string) bool {
	if v.is == name || !naming.IsSeveral(v.is) {
		return v.is == name
	}
	w, err := naming.Parse(v.is)
	return err == nil && r.affordable(v.at, cost(w, nil)) && w.Has(name)
}

// named returns the names that a list of names and patterns stands for, in the order of the list and,
// for each pattern, in that of all. The parameter what is the word for the thing that each is; check
// reports whether there is something of a plain name, and the error if not. A name that comes about
// twice counts once. ok is false if errors were reported.
func (r *reader) named(list []val[string], what string, all []string, check func(val[string]) bool) (names []string, ok bool) {
	before := len(r.errors)
	has := make(map[string]bool)
	for _, v := range list {
		if !r.affordable(v.at, 1) {
			return nil, false
		}
		for _, one := range r.each(v, what, all) {
			if has[one.is] {
				continue
			}
			if !check(one) {
				break // of a range, one is enough to be told of
			}
			has[one.is] = true
			names = append(names, one.is)
		}
	}
	return names, len(r.errors) == before
}
