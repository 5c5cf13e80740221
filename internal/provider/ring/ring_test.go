package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRing compares a ring with a slice.
func TestRing(t *testing.T) {
	const depth = 37
	random := rand.New(rand.NewPCG(1, 2))
	var r Ring[int]
	var want []int
	for i := range 10000 {
		switch action := random.IntN(7); {
		case action < 4 && r.Len() < depth:
			*r.Add(depth) = i
			want = append(want, i)
		case action == 4 && r.Len() > 0 && random.IntN(20) == 0:
			n := random.IntN(r.Len())
			r.Keep(n)
			want = want[:n]
		case r.Len() > 0:
			if *r.Oldest() != want[0] {
				t.Fatalf("the oldest is %d, want %d", *r.Oldest(), want[0])
			}
			r.Drop()
			want = want[1:]
		}
		var got []int
		for i := range r.Len() {
			got = append(got, *r.At(i))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %d actions: %v, want %v", i, got, want)
		}
	}
	if len(r.slots) != depth {
		t.Errorf("%d slots, want %d", len(r.slots), depth)
	}
}

// TestMemory grows with the entries, and what they hold is used again.
func TestMemory(t *testing.T) {
	var r Ring[[]byte]
	for range 100 {
		b := r.Add(1000)
		*b = append((*b)[:0], 1, 2, 3)
		r.Drop()
	}
	if len(r.slots) != leastSlots {
		t.Errorf("%d slots for one entry at a time, want %d", len(r.slots), leastSlots)
	}
	if n := testing.AllocsPerRun(100, func() {
		b := r.Add(1000)
		*b = append((*b)[:0], 1, 2, 3)
		r.Drop()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
