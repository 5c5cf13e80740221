package naming

import "strings"

// suggestable is the length in bytes above which no word is compared with others: nobody
// mistypes a word that long, and the comparison is quadratic.
const suggestable = 64

// Nearest is the candidate that fewest typing mistakes turn into the word, if
// any is near: a third of the word's letters wrong, at most. A beginning of a
// candidate is nearly as near as a single mistake.
func Nearest(word string, candidates []string) (best string, ok bool) {
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

// distance counts the typing mistakes that separate a and b: letters inserted, left
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
