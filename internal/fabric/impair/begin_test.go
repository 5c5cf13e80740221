package impair

import (
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// A direction that begins anew counts packets for its losses from there.
func TestBegin(t *testing.T) {
	d := New(42, "link", 0)
	d.Set(topology.Impairment{Loss: topology.Loss{Every: 3, Packets: []uint64{1}}}, 0)
	for round := range 2 {
		if round > 0 {
			d.Begin(0, false)
		}
		lost := ""
		for range 4 {
			if d.Packet(&Packet{Frame: 100}, 0).Fate == Passes {
				lost += "."
			} else {
				lost += "x"
			}
		}
		if want := "x.x."; lost != want {
			t.Errorf("round %d: lost %s, want %s", round, lost, want)
		}
	}
}
