// Package priority has a queue whose items know their places, so that each of them can be moved or taken out when its turn
// changes: timers, and lines whose next packet leaves at another time. It decides nothing about items but their order.
//
// Start reading at Queue.
package priority

import "container/heap"

// An Item is in one Queue at most.
type Item[T any] interface {
	// Before reports whether the item's turn comes before another's.
	Before(T) bool
	// Place returns the item's own, which nobody else changes.
	Place() *Place
}

// A Place says where in its Queue an item is. The zero Place is that of an item in none.
type Place struct{ number int32 } // from 1

// Queued reports whether the item is in a Queue.
func (p *Place) Queued() bool { return p.number > 0 }

// A Queue has items, that whose turn is next in front. The zero Queue is empty. Its methods take time that grows with the logarithm
// of the number of items, but for Len and First. It is not for use by several goroutines at once.
type Queue[T Item[T]] struct{ items items[T] }

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) }

// First returns the item whose turn is next; the Queue must not be empty.
func (q *Queue[T]) First() T { return q.items[0] }

// Put adds an item, or moves it to where it belongs since its turn has changed.
func (q *Queue[T]) Put(item T) {
	if p := item.Place(); p.Queued() {
		heap.Fix(&q.items, int(p.number-1))
	} else {
		heap.Push(&q.items, item)
	}
}

// Remove takes an item out, if it is in.
func (q *Queue[T]) Remove(item T) {
	if p := item.Place(); p.Queued() {
		heap.Remove(&q.items, int(p.number-1))
	}
}

// items implements heap.Interface.
type items[T Item[T]] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].Before(s[j]) }

func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].Place().number, s[j].Place().number = int32(i+1), int32(j+1)
}

// Push adds an item behind the others.
func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.Place().number = int32(len(*s))
}

// Pop takes the last item.
func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	clear((*s)[last:]) // lets go of it
	*s = (*s)[:last]
	*item.Place() = Place{}
	return item
}
