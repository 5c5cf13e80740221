package interop

import (
	"os"
	"testing"
)

// TestCongestion: a guest is none the worse for an adapter with congestion control (roce.md 13, 14). Packets to it are
// ECN-capable and marked, which it does not heed; it sends nothing that may be marked, and so is sent no CNP.
func TestCongestion(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	s := newSetting(t, "mtu: 1500, delay: 1ms, rate: 1gbit, ecn: {min: 1B, max: 2B}", "congestion: dcqcn", bySockets)
	s.short = true
	s.all(t)
	s.counters(t)
	in, err := s.lab.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]uint64{}
	for _, d := range in.Links[0].Directions {
		marked[d.From] = d.Marked
	}
	if marked["us:eth0"] == 0 || len(marked) != 2 {
		t.Errorf("packets were marked in the directions %v, want some to the guest", marked)
	}
	for from, n := range marked {
		if from != "us:eth0" && n > 0 {
			t.Errorf("%d packets from the guest were marked, want none: it makes none ECN-capable", n)
		}
	}
	for _, name := range []string{"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored"} {
		if n, known := in.Nodes[0].Transport[name]; n != 0 || !known {
			t.Errorf("the node counts %s: %d, want 0", name, n)
		}
	}
}
