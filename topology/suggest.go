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
	case len(known) > listed:
		return fmt.Sprintf("expected one of %s, ... (%d in all)", strings.Join(known[:listed], ", "), len(known))
	}
	return "expected one of " + strings.Join(known, ", ")
}
