package trial

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Coverage counts what happened, by name.
type Coverage map[string]uint64

// Count counts one more.
func (c Coverage) Count(what string) { c[what]++ }

// Add adds another run's counts.
func (c Coverage) Add(o Coverage) {
	for what, n := range o {
		c[what] += n
	}
}

// WriteTo writes a table, in the order of the names.
func (c Coverage) WriteTo(w io.Writer) (int64, error) {
	written := int64(0)
	for _, what := range slices.Sorted(maps.Keys(c)) {
		n, err := fmt.Fprintf(w, "%10d  %s\n", c[what], what)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
