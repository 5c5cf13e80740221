package topology

import (
	"fmt"
	"strings"
)

const (
	// suggestable is the length in bytes above which no word is compared with
	// others: nobody mistypes a word that long, and the comparison is quadratic.
	suggestable = 64
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
		if best, ok := nearest(word, known); ok {
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

// nearest is the candidate that fewest typing mistakes turn into the word, if
// any is near: a third of the word's letters wrong, at most. A beginning of a
// candidate is nearly as near as a single mistake.
func nearest(word string, candidates []string) (best string, ok bool) {
	if len(word) > suggestable {
		return "", false
	}
	word = strings.ToLower(word)
	least := (len(word)+1)/3 + 1
	for _, c := range candidates {
		if len(c) > suggestable {
			continue
		}
		lower := strings.ToLower(c)
		d := distance(word, lower)
		if len(word) >= 3 && strings.HasPrefix(lower, word) {
			d = min(d, 1)
		}
		if d < least {
			best, least, ok = c, d, true
		}
	}
	return best, ok
}

// distance is how many typing mistakes separate a and b: letters inserted, left
// out, replaced, or swapped with their neighbour (optimal string alignment).
func distance(a, b string) int {
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := above[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
