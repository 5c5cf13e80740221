package topology

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/topology/naming"
)

const (
	// suggestions bounds the searches for a nearest word in one file, since
	// each looks at every candidate, which may be every node of a large lab.
	suggestions = 2 * shownErrors
	// listed bounds how many words a message lists.
	listed = 16
)

// unknown reports a name that nothing has which is called what.
func (r *reader) unknown(v val[string], what string, known []string) {
	r.errorf(v.at, "no %s has the name %s, %s", what, quote(v.is), r.expectation(v.is, known))
}

// expectation is the end of a message about an unknown word: the known word
// that was probably meant, else the known words.
func (r *reader) expectation(word string, known []string) string {
	if r.suggested < suggestions {
		r.suggested++
		if best, ok := naming.Nearest(word, known); ok {
			return fmt.Sprintf("expected %q?", best)
		}
	}
	switch {
	case len(known) == 0:
		return "expected none, since the file has none"
	case len(known) == 1:
		return "expected " + known[0]
	}
	return "expected one of " + few(known)
}

// few returns the first of some words, and their number if there are more.
func few(words []string) string {
	text := strings.Join(words[:min(len(words), listed)], ", ")
	if len(words) > listed {
		text += fmt.Sprintf(", ... (%d in all)", len(words))
	}
	return text
}
