package rows

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// An input has a value that shows in the row, and one that does not.
type input struct{ shown, hidden int }

// A record refers to memory, as rows do.
type record struct {
	Shown    *int
	Counters map[string]int
}

func recordOf(in input) *record {
	return &record{&in.shown, map[string]int{"shown": in.shown}}
}

// Each asker has the present list at any time, of changes that crossed a channel.
func TestChangesMakeTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type asker struct {
			number uint64
			list   []record
		}
		var table Table[input, record]
		var list []input
		askers := make([]asker, 3)
		small := rapid.IntRange(0, 3)
		for number := uint64(1); number < 30; number++ {
			if number == 1 || small.Draw(t, "another length") == 0 {
				list = make([]input, rapid.IntRange(0, 6).Draw(t, "length"))
				table.Reset(len(list))
			}
			for place := range list {
				list[place].shown, list[place].hidden = small.Draw(t, "shown"), small.Draw(t, "hidden")
				if !table.Is(place, list[place]) {
					table.Put(place, list[place], recordOf(list[place]), number)
				}
			}
			want := []record{}
			for _, in := range list {
				want = append(want, *recordOf(in))
			}
			for i := range askers {
				a := &askers[i]
				if rapid.Bool().Draw(t, "asks") {
					continue
				}
				text, err := json.Marshal(table.Since(a.number))
				if err != nil {
					t.Fatal(err)
				}
				var changes Changes[record]
				if err := json.Unmarshal(text, &changes); err != nil {
					t.Fatal(err)
				}
				last := slices.Clone(a.list)
				now, err := changes.Apply(a.list)
				if diff := cmp.Diff(want, now); err != nil || diff != "" {
					t.Fatalf("%v, since %d at %d: -want +got:\n%s", err, a.number, number, diff)
				}
				if diff := cmp.Diff(last, a.list); diff != "" {
					t.Fatalf("the earlier list has changed: -was +is:\n%s", diff)
				}
				a.number, a.list = number, now
			}
		}
	})
}

// A row is told once, when it has changed, whatever others do.
func TestOnlyChangesAreTold(t *testing.T) {
	var table Table[input, record]
	table.Reset(3)
	put := func(number uint64, inputs ...input) {
		for place, in := range inputs {
			if !table.Is(place, in) {
				table.Put(place, in, recordOf(in), number)
			}
		}
	}
	put(1, input{1, 0}, input{2, 0}, input{3, 0})
	put(2, input{1, 0}, input{2, 0}, input{4, 0})
	put(3, input{1, 7}, input{2, 0}, input{5, 0}) // the first is made again, and is the same
	for _, c := range []struct {
		after uint64
		want  []int
	}{{0, []int{0, 1, 2}}, {1, []int{2}}, {2, []int{2}}, {3, nil}} {
		if got := table.Since(c.after); got.Length != 3 || !slices.Equal(got.Places, c.want) || len(got.Rows) != len(c.want) {
			t.Errorf("since %d: %+v, want rows %v", c.after, got, c.want)
		}
	}
	if !table.Is(0, input{1, 7}) || table.Is(0, input{1, 0}) {
		t.Error("the first row has not the input of which it was made last")
	}
	table.Reset(1)
	if table.Is(0, input{}) {
		t.Error("a row has an input that was never put")
	}
}

// Changes that cannot be of the list are refused.
func TestImpossibleChanges(t *testing.T) {
	for _, c := range []struct {
		changes Changes[int]
		want    string
	}{
		{Changes[int]{Length: 2, Places: []int{1}}, "0 rows for 1 places of 2"},
		{Changes[int]{Length: -1}, "0 rows for 0 places of -1"},
		{Changes[int]{Length: 2, Places: []int{2}, Rows: []int{7}}, "row 2 of 2"},
		{Changes[int]{Length: 2, Places: []int{-1}, Rows: []int{7}}, "row -1 of 2"},
		{Changes[int]{Length: 3, Places: []int{2}, Rows: []int{7}}, "row 1 of 3 is missing"},
	} {
		if _, err := c.changes.Apply([]int{1}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.changes, err, c.want)
		}
	}
}
