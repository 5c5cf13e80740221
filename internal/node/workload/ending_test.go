package workload

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// TestEnding: a host that calls back who waits for a client or a server has said so before the instant at which it does, and has not all
// the time.
func TestEnding(t *testing.T) {
	for _, spec := range []Spec{
		{Name: "w", Operation: topology.Send, Size: 100, Depth: 4, Count: 50, Verify: true},
		{Name: "w", Operation: topology.Read, Size: 1 << 20, Depth: 2, QPs: 3, Count: 9},
		{Name: "w", Operation: topology.Write, Size: 4096, Depth: 4, Duration: 10 * time.Millisecond},
		{Name: "w", Operation: topology.Connect, Depth: 2, Count: 5},
		{Name: "w", Operation: topology.Rping, Size: 64, Count: 9},
	} {
		t.Run(string(spec.Operation), func(t *testing.T) {
			l := newLab(t)
			client, server := NewHost(l.devices[0], l.clock), NewHost(l.devices[1], l.clock)
			if err := server.Serve(spec, serverAddress); err != nil {
				t.Fatal(err)
			}
			done, found := false, false
			if err := client.Run(spec, clientAddress, serverAddress, func(Result) { done = true }); err != nil {
				t.Fatal(err)
			}
			calm := 0
			// until runs events until something is so, and says if the host had not said before the last instant that it would be.
			until := func(h *Host, so *bool) {
				said := false
				for now := time.Duration(-1); !*so; {
					next, ok := l.clock.Next()
					if !ok {
						t.Fatal("nothing is left that could happen")
					}
					if next != now {
						if now, said = next, h.Ending(); !said {
							calm++
						}
					}
					l.clock.Step()
				}
				if !said {
					t.Error("called back though nobody had said so")
				}
			}
			until(client, &done)
			if storm := spec.Operation == topology.Connect; (calm == 0) != storm {
				t.Errorf("at %d instants nothing was about to end", calm)
			}
			if err := server.Unserve("w", 0, func(ServerResult) { found = true }); err != nil {
				t.Fatal(err)
			}
			until(server, &found)
			if client.Ending() || server.Ending() {
				t.Error("nothing is left that could end")
			}
		})
	}
}
