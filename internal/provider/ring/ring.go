// Package ring has queues whose memory grows with what is in them. They do not lock.
package ring

// A Ring is a queue of entries that are used where they are. To add one does not allocate, unless there are more
// than ever before. The zero Ring is empty.
type Ring[T any] struct {
	slots []T
	first int // index of the oldest
	n     int
}

// leastSlots counts the entries for which there is room at first, unless fewer are allowed.
const leastSlots = 8

// Len counts the entries.
func (r *Ring[T]) Len() int { return r.n }

// At returns the i-th entry, of which 0 is the oldest, and Len()-1 the newest.
func (r *Ring[T]) At(i int) *T {
	if i += r.first; i >= len(r.slots) {
		i -= len(r.slots)
	}
	return &r.slots[i]
}

// Oldest returns the entry that Drop removes.
func (r *Ring[T]) Oldest() *T { return &r.slots[r.first] }

// Add returns a new entry, the newest, of which there are depth at most. It is as one before left it, or zero, so
// that slices in it can be used again. It must be called with fewer than depth entries.
func (r *Ring[T]) Add(depth int) *T {
	if r.n == len(r.slots) {
		slots := make([]T, min(depth, max(leastSlots, 2*r.n)))
		copied := copy(slots, r.slots[r.first:])
		copy(slots[copied:], r.slots[:r.first])
		r.slots, r.first = slots, 0
	}
	r.n++
	return r.At(r.n - 1)
}

// Drop removes the oldest entry.
func (r *Ring[T]) Drop() {
	if r.first++; r.first == len(r.slots) {
		r.first = 0
	}
	r.n--
}

// Keep removes all entries but the n oldest.
func (r *Ring[T]) Keep(n int) { r.n = n }
