package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
)

// A sweep says how many runs are done, also those of an earlier time, and how long the others take.
func TestSweepInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b shared
		p := newSweepProgress(&b, false, 30, 10)
		defer p.close()
		topo := &topology.Topology{Workloads: []topology.Workload{{Duration: 10 * time.Second}}}
		for i := range 3 {
			r := p.began(i, topo, "link.delay=1ms, seed 1")
			passes(4 * time.Second)
			r.reach(5 * time.Second)
			if i < 2 {
				p.ended(i, map[int]string{1: "FAIL  run 2"}[i])
			}
		}
		want := "FAIL  run 2\n12 of 30 runs, 1 failed, 40 %, about 90 s left: link.delay=1ms, seed 1\n"
		if diff := cmp.Diff(want, b.take()); diff != "" {
			t.Error(diff)
		}
	})
}
