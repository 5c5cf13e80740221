package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one thing wrong with a topology file. Line and Column count from
// 1; columns are characters.
type Error struct {
	File         string
	Line, Column int
	Message      string // what was found, what was expected; one line
}

// Error is the error as compilers write them, file:line:column: message, so
// that editors find the place.
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// An ErrorList is everything wrong with a file, in the order of the file, then
// with the files that it refers to. Parse returns no other type of error.
type ErrorList []Error

// shownErrors bounds what ErrorList.Error prints: a person mends a file from the
// top and then asks again.
const shownErrors = 50

// Error is one line for each error, of which it shows the first 50.
func (es ErrorList) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i == shownErrors {
			fmt.Fprintf(&b, "\nand %d more", len(es)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// ordered is the errors by position, each once: what stands wrong behind an
// anchor is met again at every alias. Those in the first file come first.
func (es ErrorList) ordered(first string) ErrorList {
	slices.SortStableFunc(es, func(a, b Error) int {
		switch {
		case a.File != b.File && a.File == first:
			return -1
		case a.File != b.File && b.File == first:
			return 1
		}
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(es)
}
