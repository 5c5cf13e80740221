// Package rows spares those who ask for a list again and again what has not changed in it since they last did.
//
// A Table has the list where it is made. Each of its rows has the number of its last change; numbers grow. Each asker has the
// last list, and the number that it came with: the Table answers with the Changes since that number, and these make the new list of
// the last one. A number of 0 comes before all changes, so that the answer is the whole list.
//
// The package is pure. It knows nothing of what the rows are about, and nothing of who asks, of whom there may be many.
//
// Start reading at Table.
package rows

import (
	"fmt"
	"reflect"
	"slices"
)

// A Table is a list of rows of type T, each of which is made of an input. A row whose input is the same is not to be made
// again. It is not for use by several goroutines at once.
type Table[Input comparable, T any] struct {
	rows []row[Input, T]
}

type row[Input comparable, T any] struct {
	of     Input
	value  T
	number uint64 // of the last change; 0: it was never put
}

// Reset makes the table one of n rows, none of which has been put.
func (t *Table[Input, T]) Reset(n int) { t.rows = make([]row[Input, T], n) }

// Is reports whether a row was put with this input.
func (t *Table[Input, T]) Is(place int, input Input) bool {
	r := &t.rows[place]
	return r.number != 0 && r.of == input
}

// Put has a row be one that is made of an input. Unless it was just that, as reflect.DeepEqual has it, number is that of its last change: above 0, and
// not below any number before. The Table owns all that value refers to from now on, and nobody changes it.
func (t *Table[Input, T]) Put(place int, input Input, value *T, number uint64) {
	r := &t.rows[place]
	r.of = input
	if r.number == 0 || !reflect.DeepEqual(&r.value, value) {
		r.value, r.number = *value, number
	}
}

// Since returns the rows whose last change has a greater number than after. All rows have been put.
func (t *Table[Input, T]) Since(after uint64) Changes[T] {
	c := Changes[T]{Length: len(t.rows)}
	for place := range t.rows {
		if r := &t.rows[place]; r.number > after {
			c.Places, c.Rows = append(c.Places, place), append(c.Rows, r.value)
		}
	}
	return c
}

// Changes make the present list of an earlier one.
type Changes[T any] struct {
	Length int   // of the present list
	Places []int `json:",omitempty"` // of the rows that have changed, in ascending order
	Rows   []T   `json:",omitempty"` // those, in their present state
}

// Apply returns the present list, made of the earlier one, which is not changed. The two share what is the same.
func (c *Changes[T]) Apply(earlier []T) ([]T, error) {
	if len(c.Rows) != len(c.Places) || c.Length < 0 {
		return nil, fmt.Errorf("%d rows for %d places of %d", len(c.Rows), len(c.Places), c.Length)
	}
	list := make([]T, c.Length)
	known := copy(list, earlier)
	for i, place := range c.Places {
		if place < 0 || place >= len(list) {
			return nil, fmt.Errorf("row %d of %d", place, len(list))
		}
		list[place] = c.Rows[i]
	}
	for place := known; place < len(list); place++ {
		if _, ok := slices.BinarySearch(c.Places, place); !ok {
			return nil, fmt.Errorf("row %d of %d is missing: it is not among the %d rows that have changed", place, len(list), len(c.Rows))
		}
	}
	return list, nil
}
