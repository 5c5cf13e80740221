package priority

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct {
	due   int
	place Place
}

func (i *item) Before(other *item) bool { return i.due < other.due }
func (i *item) Place() *Place           { return &i.place }

// TestQueue holds a queue against a list that is sorted anew each time.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[*item]
		all := make([]*item, 20)
		for i := range all {
			all[i] = &item{}
		}
		in := func() (due []int) {
			for _, i := range all {
				if i.place.Queued() {
					due = append(due, i.due)
				}
			}
			slices.Sort(due)
			return due
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			i := rapid.SampledFrom(all).Draw(t, "item")
			if rapid.Bool().Draw(t, "remove") {
				q.Remove(i)
				if i.place.Queued() {
					t.Fatal("was removed, and is in")
				}
			} else {
				i.due = rapid.IntRange(0, 50).Draw(t, "due")
				q.Put(i)
				if !i.place.Queued() {
					t.Fatal("was put, and is not in")
				}
			}
			due := in()
			if q.Len() != len(due) {
				t.Fatalf("%d items, want %d", q.Len(), len(due))
			}
			if len(due) > 0 && q.First().due != due[0] {
				t.Fatalf("first is due at %d, want %d", q.First().due, due[0])
			}
		}
		for want := in(); len(want) > 0; want = want[1:] {
			first := q.First()
			if first.due != want[0] {
				t.Fatalf("due at %d, want %d", first.due, want[0])
			}
			q.Remove(first)
		}
	})
}

// TestLetsGo: a queue keeps nothing of an item that was taken out.
func TestLetsGo(t *testing.T) {
	var q Queue[*item]
	q.Put(&item{})
	q.Remove(q.First())
	if left := q.items[:1][0]; left != nil {
		t.Error("the queue keeps an item that is not in it")
	}
}
