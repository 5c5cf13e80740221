package impair

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// In a burst that is on its way, each packet that hurries overtakes as many as
// it may.
func TestReorderedPacketsOvertakeTheDepth(t *testing.T) {
	for _, depth := range []int{0, 1, 5, MaxDepth} {
		d := direction(4, "link", 0, topology.Impairment{Delay: time.Millisecond, Reorder: topology.Reorder{Probability: 0.1, Depth: depth}})
		hurried, n := 0, 300_000
		for i := range n {
			// Ten at once each microsecond: 10,000 are on their way.
			at := time.Duration(i/10) * time.Microsecond
			v := d.Packet(packet(1000), at)
			if v.Overtakes > 0 {
				hurried++
			} else if late := v.Departs - at - time.Millisecond; late < 0 || late > 50 {
				t.Fatalf("depth %d: packet %d in its order is %v late", depth, i, late)
			}
			if want := max(1, depth); v.Overtakes > 0 && int(v.Overtakes) != want && i > 2*want+20 {
				t.Fatalf("depth %d: packet %d overtakes %d", depth, i, v.Overtakes)
			}
		}
		within(t, "reordered", hurried, n, 0.1)
	}
}

// A packet that has left cannot be overtaken, and no packet leaves before it came.
func TestOnlyPacketsOnTheirWayAreOvertaken(t *testing.T) {
	d := direction(4, "link", 0, topology.Impairment{Delay: 100, Reorder: topology.Reorder{Probability: 1, Depth: 10}})
	for _, c := range []struct {
		at, departs time.Duration
		overtakes   uint16
	}{
		{0, 100, 0},   // nobody to overtake
		{50, 99, 1},   // just before the only one
		{99, 99, 1},   // the second has left
		{100, 200, 0}, // all have left
		{150, 199, 1}, //
	} {
		if v := d.Packet(packet(100), c.at); v.Departs != c.departs || v.Overtakes != c.overtakes {
			t.Errorf("at %d: departs at %d before %d, want %d before %d", c.at, v.Departs, v.Overtakes, c.departs, c.overtakes)
		}
	}
}

func TestJitterReordersOnlyIfAsked(t *testing.T) {
	settings := topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Millisecond}}
	for _, depth := range []int{0, 3} {
		if depth > 0 {
			settings.Reorder = topology.Reorder{Probability: 1e-9, Depth: depth}
		}
		d := direction(4, "link", 0, settings)
		most := 0
		for i := range 100_000 {
			most = max(most, int(d.Packet(packet(100), time.Duration(i)*time.Microsecond).Overtakes))
		}
		if most != depth {
			t.Errorf("with a depth of %d packets overtake up to %d", depth, most)
		}
	}
}

// A change of the depth neither forgets who is on the way nor lets more be
// overtaken.
func TestDepthChanges(t *testing.T) {
	settings := topology.Impairment{Delay: time.Millisecond}
	d := direction(4, "link", 0, settings)
	for range 10 {
		d.Packet(packet(100), 0)
	}
	settings.Reorder = topology.Reorder{Probability: 1, Depth: 3}
	d.Set(settings, 0)
	if v := d.Packet(packet(100), 0); v.Departs < time.Millisecond {
		t.Errorf("the first packet after the change leaves at %v, before all ten", v.Departs)
	}
	d.Set(topology.Impairment{}, 0)
	if v := d.Packet(packet(100), 0); v.Departs < time.Millisecond {
		t.Errorf("without reordering a packet leaves at %v, before others", v.Departs)
	}
}

// With a smaller depth, packets on their way may be overtaken at once.
func TestDepthShrinks(t *testing.T) {
	settings := topology.Impairment{Delay: time.Millisecond, Reorder: topology.Reorder{Probability: 1e-9, Depth: 5}}
	d := direction(4, "link", 0, settings)
	for range 10 {
		d.Packet(packet(100), 0)
	}
	settings.Reorder = topology.Reorder{Probability: 1, Depth: 2}
	d.Set(settings, 0)
	if v := d.Packet(packet(100), 0); v.Overtakes != 2 {
		t.Errorf("%d packets are overtaken, want 2", v.Overtakes)
	}
}
