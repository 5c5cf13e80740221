package topology

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Each node has one other to connect to, and is that of one other.
func TestDrawPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []string
		for i := range rapid.IntRange(2, 20).Draw(t, "nodes") {
			nodes = append(nodes, strconv.Itoa(i))
		}
		lab := &Topology{Workloads: []Workload{{Name: "p", Pattern: Permutation, Nodes: nodes}, {Name: "q", Pattern: Ring}}}
		seed := rapid.Uint64().Draw(t, "seed")
		drawn := lab.Draw(seed)
		var from, to []string
		for _, f := range drawn.Workloads[0].Flows {
			if f.From == f.To {
				t.Errorf("%s is with itself", f.From)
			}
			from, to = append(from, f.From), append(to, f.To)
		}
		slices.Sort(from)
		slices.Sort(to)
		want := slices.Sorted(slices.Values(nodes))
		if diff := cmp.Diff(want, from) + cmp.Diff(want, to); diff != "" {
			t.Error(diff)
		}
		if lab.Workloads[0].Flows != nil || drawn.Workloads[1].Flows != nil || drawn.Seed != seed {
			t.Errorf("from %+v drawn %+v", lab, drawn)
		}
		if diff := cmp.Diff(drawn, lab.Draw(seed)); diff != "" {
			t.Error(diff)
		}
	})
}

// All ways to arrange a few nodes come about.
func TestDrawPermutations(t *testing.T) {
	lab := &Topology{Workloads: []Workload{{Pattern: Permutation, Nodes: []string{"a", "b", "c", "d"}}}}
	seen := make(map[string]bool)
	for seed := range uint64(300) {
		ways := ""
		for _, f := range lab.Draw(seed).Workloads[0].Flows {
			ways += f.To
		}
		seen[ways] = true
	}
	if len(seen) != 9 { // the derangements of 4
		t.Errorf("%d ways: %v", len(seen), seen)
	}
}

// Chaos strikes within its time, for as long as it should, and never strikes what is still
// struck.
func TestDrawChaos(t *testing.T) {
	loss := Loss{Rate: 0.1}
	lab := &Topology{
		Links:    make([]Link, 4), // between other nodes
		Timeline: []Event{{At: time.Hour, Mark: "m"}},
		Chaos: []Chaos{
			{Start: time.Second, Until: 9 * time.Second, Kind: DownLink, Every: 100 * time.Millisecond, For: 300 * time.Millisecond, Links: []int{1, 2, 3}, Place: Place{"f", 1, 1}},
			{Until: 9 * time.Second, Kind: ImpairLink, Every: 200 * time.Millisecond, For: time.Second, Links: []int{2}, Set: Change{Loss: &loss}},
			{Until: 9 * time.Second, Kind: KillAny, Every: 300 * time.Millisecond, For: 400 * time.Millisecond, Nodes: []string{"a", "b"}},
			{Until: 9 * time.Second, Kind: PauseAny, Every: 300 * time.Millisecond, For: 400 * time.Millisecond, Nodes: []string{"a", "b"}},
			{Until: 9 * time.Second, Kind: RestartAny, Every: 500 * time.Millisecond, Nodes: []string{"a", "c"}},
		},
	}
	begins := func(e Event) bool {
		return e.Down || e.Set.Loss != nil || e.NodeAction == KillNode || e.NodeAction == PauseNode || e.NodeAction == RestartNode
	}
	strokes := 0
	for seed := range uint64(50) {
		drawn := lab.Draw(seed)
		if drawn.Chaos != nil || drawn.Timeline[0].Mark != "m" || len(lab.Timeline) != 1 {
			t.Fatalf("%+v", drawn)
		}
		last := time.Duration(0)
		held := make(map[string]bool)
		kinds := make(map[string]int)
		for _, e := range drawn.Timeline[1:] {
			if e.At < last {
				t.Errorf("seed %d: %v comes after %v", seed, e.At, last)
			}
			last = e.At
			what := "link" + strconv.Itoa(e.Link)
			switch {
			case e.Node != "":
				what = e.Node
			case e.Set.Loss != nil || e.Reset:
				what += "i"
			}
			if begins(e) {
				strokes++
				if held[what] || e.At >= 9*time.Second || e.Down && (e.At < time.Second || e.Place.File != "f") {
					t.Errorf("seed %d: %+v", seed, e)
				}
				held[what] = e.NodeAction != RestartNode
				kinds[string(e.NodeAction)]++
			} else if !held[what] {
				t.Errorf("seed %d: %+v ends nothing", seed, e)
			} else {
				held[what] = false
			}
		}
		for what, still := range held {
			if still {
				t.Errorf("seed %d: %s is not let go", seed, what)
			}
		}
		if len(kinds) != 4 {
			t.Errorf("seed %d: %v", seed, kinds)
		}
	}
	// Links 1 to 3 are struck some 80 times less those that find no link, and so on.
	if mean := strokes / 50; mean < 60 || mean > 130 {
		t.Errorf("%d strokes at the mean", mean)
	}
	if cmp.Equal(lab.Draw(1).Timeline, lab.Draw(2).Timeline) || !cmp.Equal(lab.Draw(1).Timeline, lab.Draw(1).Timeline) {
		t.Error("what is drawn is no function of the seed")
	}
}

// The links of a node that is killed or restarted are let be while it is away, and a node is
// while one of its links is struck: nothing could change there then.
func TestDrawChaosOfNodesWithLinks(t *testing.T) {
	lab := &Topology{
		Links: []Link{{Endpoints: [2]Endpoint{{Node: "a"}, {Node: "b"}}}, {Endpoints: [2]Endpoint{{Node: "b"}, {Node: "c"}}}},
		Chaos: []Chaos{
			{Until: time.Minute, Kind: DownLink, Every: 500 * time.Millisecond, For: 300 * time.Millisecond, Links: []int{0, 1}},
			{Until: time.Minute, Kind: KillAny, Every: 2 * time.Second, For: 200 * time.Millisecond, Nodes: []string{"a", "c"}},
			{Until: time.Minute, Kind: RestartAny, Every: 2 * time.Second, Nodes: []string{"a", "c"}},
		},
	}
	for seed := range uint64(50) {
		away, down, strokes := map[string]time.Duration{}, [2]bool{}, map[string]int{} // away: until when
		for _, e := range lab.Draw(seed).Timeline {
			link := map[string]int{"a": 0, "c": 1}
			switch {
			case e.OfLink():
				down[e.Link] = e.Down
				if node := []string{"a", "c"}[e.Link]; e.At < away[node] {
					t.Errorf("seed %d: at %v link %d changes, but %s is away", seed, e.At, e.Link, node)
				}
			case down[link[e.Node]]:
				t.Errorf("seed %d: %s of %s at %v, while its link is down", seed, e.NodeAction, e.Node, e.At)
			case e.NodeAction == KillNode:
				away[e.Node] = e.At + 200*time.Millisecond + settling
			case e.NodeAction == RestartNode:
				away[e.Node] = e.At + settling
			}
			strokes[string(e.NodeAction)]++
		}
		if len(strokes) != 4 {
			t.Errorf("seed %d: %v", seed, strokes)
		}
	}
}
