package mmu

import (
	"fmt"
	"slices"
	"testing"
)

// pair makes two switches, joined by their ports 0 and 1 of each; port 2 is a host's. Port 0 of one is
// at port 1 of the other, and so a ring of two.
func pair(t *testing.T) (a, b *Switch[int], members []Member, peer func(int, int) (int, int, bool)) {
	a, b = switchOf(t, 3, 1<<20, lossless, nil), switchOf(t, 3, 1<<20, lossless, nil)
	return a, b, []Member{a, b}, func(sw, port int) (int, int, bool) { return 1 - sw, 1 - port, port < 2 }
}

// hold has one switch ask the other to pause, for what came in by its port 1 and is to leave by another.
func hold(t *testing.T, from, to *Switch[int], out int) {
	from.arrive(t, 0, 1, out, 3, 10, Admitted)
	f, ok := from.Pause(0, 1)
	if !ok {
		t.Fatal("no pause")
	}
	to.Paused(0, 0, f)
}

func TestDeadlock(t *testing.T) {
	t.Run("found", func(t *testing.T) {
		a, b, members, peer := pair(t)
		hold(t, a, b, 0)
		if got := Deadlock(members, peer); got != nil {
			t.Errorf("%v before the other pauses", got)
		}
		hold(t, b, a, 0)
		got := Deadlock(members, peer)
		if want := []Queue{{0, 0, 3}, {1, 0, 3}}; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		name := func(q Queue) string { return fmt.Sprintf("s%d:%d", q.Switch, q.Port) }
		if got := FormatCycle(got, name); got != "s0:0 -> s1:0 -> s0:0" {
			t.Errorf("named %s", got)
		}
	})
	// Most of what holds the pause up may leave: then it ends, and there is no deadlock although each
	// of the queues waits for the other.
	t.Run("not if enough drains", func(t *testing.T) {
		a, b, members, peer := pair(t)
		hold(t, b, a, 0)
		a.arrive(t, 0, 1, 0, 3, 5, Admitted)
		a.arrive(t, 0, 1, 2, 3, 5, Admitted)
		f, _ := a.Pause(0, 1)
		b.Paused(0, 0, f)
		if got := Deadlock(members, peer); got != nil {
			t.Errorf("%v", got)
		}
		a.leave(t, 0, 2, 2)
		f, ok := a.Pause(0, 1)
		if !ok || f.Quanta[3] != 0 {
			t.Fatal("the pause did not end")
		}
	})
	t.Run("if what remains is beyond XON", func(t *testing.T) {
		a, b, members, peer := pair(t)
		hold(t, b, a, 0)
		a.arrive(t, 0, 1, 2, 3, 2, Admitted)
		a.arrive(t, 0, 1, 0, 3, 9, Admitted) // more than the 8,000 of XON
		f, _ := a.Pause(0, 1)
		b.Paused(0, 0, f)
		if got := Deadlock(members, peer); len(got) != 2 {
			t.Errorf("%v, want a cycle of two", got)
		}
		a.leave(t, 0, 2, 2)
		if _, ok := a.Pause(0, 1); ok {
			t.Error("the pause ended")
		}
	})
	// The threshold rises as all else drains.
	t.Run("not if room is made", func(t *testing.T) {
		class := Class{Lossless: true, Alpha: 0.5, Gap: 2000, Weight: 1}
		a, b := switchOf(t, 3, 90_000, class, nil), switchOf(t, 3, 90_000, class, nil)
		b.arrive(t, 0, 1, 0, 3, 30, Admitted)
		f, _ := b.Pause(0, 1)
		a.Paused(0, 0, f)
		a.arrive(t, 0, 2, 2, 3, 30, Admitted)
		a.arrive(t, 0, 1, 0, 3, 19, Admitted)
		a.arrive(t, 0, 1, 2, 3, 1, Admitted)
		f, ok := a.Pause(0, 1)
		b.Paused(0, 0, f)
		if !ok || f.Quanta[3] == 0 {
			t.Fatal("no pause")
		}
		if got := Deadlock([]Member{a, b}, func(sw, port int) (int, int, bool) { return 1 - sw, 1 - port, port < 2 }); got != nil {
			t.Errorf("%v", got)
		}
		a.leave(t, 0, 2, 31)
		if f, ok := a.Pause(0, 1); !ok || f.Quanta[3] != 0 {
			t.Error("the pause did not end")
		}
	})
	t.Run("not by a host", func(t *testing.T) {
		a, _, members, peer := pair(t)
		a.arrive(t, 0, 0, 2, 3, 10, Admitted)
		a.Paused(0, 2, stop)
		if got := Deadlock(members, peer); got != nil {
			t.Errorf("%v", got)
		}
		if got := a.Blocked(nil, 7); !slices.Equal(got, []Queue{{7, 2, 3}}) {
			t.Errorf("blocked %v", got)
		}
		if got := a.Held(0, 2, 3); got != 10_000 {
			t.Errorf("held %d", got)
		}
	})
}

func TestFindCycle(t *testing.T) {
	graph := map[int][]int{1: {2, 3}, 2: {4}, 3: {5}, 4: {}, 5: {6, 4}, 6: {3}}
	next := func(n int, visit func(int)) {
		for _, m := range graph[n] {
			visit(m)
		}
	}
	if got := FindCycle([]int{1, 2, 3, 4, 5, 6}, next); !slices.Equal(got, []int{3, 5, 6}) {
		t.Errorf("cycle %v", got)
	}
	graph[6] = nil
	if got := FindCycle([]int{1, 2, 3, 4, 5, 6}, next); got != nil {
		t.Errorf("cycle %v in a graph without", got)
	}
	graph[4] = []int{4}
	if got := FindCycle([]int{1}, next); !slices.Equal(got, []int{4}) {
		t.Errorf("cycle %v, want that of one", got)
	}
	if FormatCycle(nil, nil) != "" {
		t.Error("no cycle has a name")
	}
}
