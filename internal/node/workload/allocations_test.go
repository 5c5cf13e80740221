//go:build !race

package workload

import (
	"runtime"
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// TestAllocations has messages cost none: in a lab of hundreds of nodes the garbage of all
// would be collected. A message that lends memory does cost some, for its pages are copied.
func TestAllocations(t *testing.T) {
	w := newWire(t)
	all := kinds()
	all["rping"] = Spec{Name: "w", Operation: topology.Rping, Size: 64, Depth: 1}
	all["storage of nothing"] = Spec{Name: "w", Operation: topology.Storage, Depth: 16}
	for name, spec := range all {
		t.Run(name, func(t *testing.T) {
			if each := w.allocations(t, spec); each > 0.1 {
				t.Errorf("%.2f allocations for each message", each)
			}
		})
	}
}

// allocations returns the number of allocations that a message of a workload costs once the
// workload is under way.
func (w *wire) allocations(t *testing.T, spec Spec) float64 {
	t.Helper()
	const few, more = 500, 3000
	spec.Count = 1 << 40
	if err := w.server.Serve(spec, w.to); err != nil {
		t.Fatal(err)
	}
	done := make(chan Result, 1)
	if err := w.client.Run(spec, w.from, w.to, func(r Result) { done <- r }); err != nil {
		t.Fatal(err)
	}
	client := w.client.client(spec.Name, spec.Flow)
	allocationsAfter := func(messages uint64) (mallocs, completed uint64) {
		for client.Progress().Messages < messages && len(done) == 0 {
			runtime.Gosched()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.Mallocs, client.Progress().Messages
	}
	before, first := allocationsAfter(few)
	after, last := allocationsAfter(first + more)
	w.client.Stop(spec.Name, spec.Flow)
	if r := <-done; r.Error != "" {
		t.Error(r.Error)
	}
	unserved := make(chan ServerResult, 1)
	if err := w.server.Unserve(spec.Name, spec.Flow, func(r ServerResult) { unserved <- r }); err != nil {
		t.Fatal(err)
	}
	<-unserved
	return float64(after-before) / float64(last-first)
}
