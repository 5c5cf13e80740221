package main

import (
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// A seed that is drawn survives those who read JSON's numbers as IEEE 754 has them.
func TestDrawnSeeds(t *testing.T) {
	drawn := map[uint64]bool{}
	for range 100 {
		topo := &topology.Topology{Name: "x"}
		if err := new(seedFlag).settle(topo, io.Discard); err != nil {
			t.Fatal(err)
		}
		drawn[topo.Seed] = true
		if float64(topo.Seed) >= 1<<53 || uint64(float64(topo.Seed)) != topo.Seed {
			t.Errorf("seed %d", topo.Seed)
		}
	}
	if len(drawn) < 90 {
		t.Errorf("of 100 seeds only %d differ", len(drawn))
	}
	given := new(seedFlag)
	if err := given.Set(fmt.Sprint(uint64(math.MaxUint64))); err != nil {
		t.Error(err)
	}
}
