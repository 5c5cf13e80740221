package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSince has a node that did not answer before: what it counted meanwhile is
// not known.
func TestSince(t *testing.T) {
	before := []Node{{}, {Counters: map[string]uint64{"Connect": 5, "ActiveConnection": 2}, Transport: map[string]uint64{"timeouts": 9}}}
	now := []Node{
		{Counters: map[string]uint64{"Connect": 5, "ActiveConnection": 1}, Transport: map[string]uint64{"timeouts": 9}},
		{Counters: map[string]uint64{"Connect": 7, "ActiveConnection": 1}, Transport: map[string]uint64{"timeouts": 9}},
	}
	want := []Node{
		{Counters: map[string]uint64{"ActiveConnection": 1}, Transport: map[string]uint64{}},
		{Counters: map[string]uint64{"Connect": 2, "ActiveConnection": 1}, Transport: map[string]uint64{"timeouts": 0}},
	}
	if diff := cmp.Diff(want, Since(before, now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if now[1].Counters["Connect"] != 7 {
		t.Error("what was read is changed")
	}
}

// Of many flows those that failed and the slowest are shown.
func TestSlowest(t *testing.T) {
	w := Workload{Flows: []Flow{{From: "a", Gbps: 3}, {From: "b", Gbps: 1}, {From: "c", Gbps: 9, Errors: 1}, {From: "d", Gbps: 2}, {From: "e", Gbps: 4, Errors: 5}}}
	var got []string
	for _, f := range w.Slowest(3) {
		got = append(got, f.From)
	}
	if diff := cmp.Diff([]string{"e", "c", "b"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(w.Slowest(5)); n != 5 || w.Slowest(5)[0].From != "a" {
		t.Errorf("%d flows, in another order", n)
	}
}
