//go:build !race

package workload

import (
	"runtime"
	"testing"
)

// TestAllocations has messages allocate nothing.
func TestAllocations(t *testing.T) {
	w := newWire(t)
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
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
			if each := float64(after-before) / float64(last-first); each > 0.1 {
				t.Errorf("%.2f allocations for each message", each)
			}
			w.client.Stop(spec.Name, spec.Flow)
			if r := <-done; r.Error != "" {
				t.Error(r.Error)
			}
			unserved := make(chan ServerResult, 1)
			if err := w.server.Unserve(spec.Name, spec.Flow, func(r ServerResult) { unserved <- r }); err != nil {
				t.Fatal(err)
			}
			<-unserved
		})
	}
}
