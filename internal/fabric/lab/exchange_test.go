package lab

import (
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/topology"
)

// All hosts of a ring exchange messages with the next at the same time, over plain
// and over impaired links; nothing fails because there are many.
func TestAllExchange(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Microsecond} {
		t.Run(fmt.Sprintf("delay-%d", delay), func(t *testing.T) {
			nodes := 100
			if !need.Long() {
				nodes = 20
			}
			topo := ring(uniqueName(t), nodes)
			topo.Seed = 1
			for i := range topo.Links {
				l := &topo.Links[i]
				l.Directions[0].Delay, l.Directions[1].Delay = delay, delay
				topo.Workloads = append(topo.Workloads, topology.Workload{
					Name: fmt.Sprintf("w%d", i), From: l.Endpoints[0].Node, To: l.Endpoints[1].Node,
					Operation: topology.Send, Size: 4096, Depth: 1, Count: 5, Verify: true,
				})
			}
			r := runLab(t, start(t, topo))
			for _, w := range r.Workloads {
				if !w.Verified || w.Messages != 5 || w.Errors != 0 {
					t.Errorf("%s from %s to %s: messages: %d, verified: %t, errors: %d %s", w.Name, w.From, w.To, w.Messages, w.Verified, w.Errors, w.Error)
				}
			}
			if len(r.Workloads) != nodes || len(r.Nodes) != nodes || len(r.Links) != nodes {
				t.Errorf("workloads: %d, nodes: %d, links: %d, want %d of each", len(r.Workloads), len(r.Nodes), len(r.Links), nodes)
			}
		})
	}
}
