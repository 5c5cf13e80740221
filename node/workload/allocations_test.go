//go:build !race

package workload

import (
	"runtime"
	"testing"
)

// TestAllocations has messages allocate nothing.
func TestAllocations(t *testing.T) {
	w := newWire(t)
	allocations := func(spec Spec) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.run(t, spec)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
			const few, more = 1000, 7000
			spec.Count = few
			allocations(spec) // what is made once
			once := allocations(spec)
			spec.Count += more
			// The encoding of a histogram takes some for each latency that it has.
			if each := (float64(allocations(spec)) - float64(once)) / more; each > 0.6 {
				t.Errorf("%.2f allocations for each message", each)
			}
		})
	}
}
