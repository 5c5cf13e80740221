package actions

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A fake is a lab whose nodes are paused and go on.
type fake struct {
	paused  map[string]bool
	carried []string
	fails   error
}

func (f *fake) name() string { return "l" }

func (f *fake) stand(_ context.Context, c *live.Change) (*live.Standing, error) {
	if f.paused[c.Node] {
		return &live.Standing{Node: "paused"}, nil
	}
	return &live.Standing{Node: "ready"}, nil
}

func (f *fake) carry(_ context.Context, c *live.Change) (string, error) {
	if f.fails != nil {
		return "", f.fails
	}
	f.carried = append(f.carried, fmt.Sprint(c.Act, " ", c.Node, c.Sets))
	f.paused[c.Node] = c.Act == live.ActPause
	return "it is done", nil
}

// Changes are undone from the last to the first. One that failed, or changed nothing, is none; neither is one that was only asked about.
func TestUndo(t *testing.T) {
	f := &fake{paused: map[string]bool{}}
	a := &Actions{target: f}
	do := func(c live.Change, dry bool, command string, undo ...live.Change) {
		t.Helper()
		d, err := a.Do(t.Context(), &c, dry)
		if err != nil || d.Command != command || !cmp.Equal(d.Undo, append([]live.Change{}, undo...)) || d.Text != "it is done" != dry {
			t.Errorf("%+v: %+v, %v", c, d, err)
		}
	}
	undo := func(dry bool, command string) {
		t.Helper()
		if d, err := a.Undo(t.Context(), dry); err != nil || d.Command != command || d.Undo == nil {
			t.Errorf("%+v, %v; want %s", d, err, command)
		}
	}
	if _, err := a.Undo(t.Context(), false); err != errNothing {
		t.Error(err)
	}
	do(live.Change{Act: "pause", Node: "a"}, false, "ndklab pause l/a", live.Change{Act: "resume", Node: "a"})
	do(live.Change{Act: "pause", Node: "a"}, false, "ndklab pause l/a")
	do(live.Change{Act: "pause", Node: "b"}, true, "ndklab pause l/b")
	f.fails = errors.New("it cannot be")
	if _, err := a.Do(t.Context(), &live.Change{Act: "pause", Node: "c"}, false); err != f.fails {
		t.Error(err)
	}
	f.fails = nil
	if _, err := a.Do(t.Context(), &live.Change{Act: "pause"}, false); err == nil {
		t.Error("it names no node")
	}
	do(live.Change{Act: "partition", Sets: [][]string{{"a"}}}, false, "ndklab link partition l a", live.Change{Act: "unpartition"})
	do(live.Change{Act: "partition", Sets: [][]string{{"b"}}}, false, "ndklab link partition l b", live.Change{Act: "partition", Sets: [][]string{{"a"}}})
	undo(true, "ndklab link partition l a")
	undo(false, "ndklab link partition l a")
	undo(false, "ndklab link heal l")
	do(live.Change{Act: "unpartition"}, false, "ndklab link heal l")
	f.fails = errors.New("it is gone")
	if _, err := a.Undo(t.Context(), false); err != f.fails {
		t.Error(err)
	}
	if _, err := a.Undo(t.Context(), true); err != errNothing { // what fails is not tried again
		t.Error(err)
	}
	want := []string{"pause a[]", "pause a[]", "partition [[a]]", "partition [[b]]", "partition [[a]]", "unpartition []", "unpartition []"}
	if diff := cmp.Diff(want, f.carried); diff != "" {
		t.Error(diff)
	}
}

// So many changes can be undone, the last ones.
func TestBound(t *testing.T) {
	f := &fake{paused: map[string]bool{}}
	a := &Actions{target: f}
	for i := range mostUndone + 5 {
		if _, err := a.Do(t.Context(), &live.Change{Act: "pause", Node: fmt.Sprint("n", i)}, false); err != nil {
			t.Fatal(err)
		}
	}
	for i := mostUndone + 4; i >= 5; i-- {
		if d, err := a.Undo(t.Context(), false); err != nil || d.Command != fmt.Sprint("ndklab resume l/n", i) {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
	}
	if _, err := a.Undo(t.Context(), false); err != errNothing {
		t.Error(err)
	}
}
