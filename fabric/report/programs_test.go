package report

import "testing"

// What the programs of a workload are called, and what they moved.
func TestPrograms(t *testing.T) {
	of := func(client ...string) *Workload {
		return &Workload{Operation: "exec", Nodes: []string{"s", "c"}, Programs: []Program{{Node: "s", Server: true, Command: []string{"server"}}, {Node: "c", Command: client}}}
	}
	several := of("x")
	several.Nodes = []string{"s", "c", "d"}
	fast, often, ended := of("x"), of("x"), of("x")
	fast.Gbps = 2
	often.MessageRate = 1500
	ended.Programs[0].Ended = "after its last client"
	for _, tt := range []struct {
		of                              *Workload
		what, between, speed, narration string
	}{
		{of("/usr/bin/ib_write_bw", "-a", "s"), "ib_write_bw", "c -> s", "-", ""},
		{of("sh", "-c", "UCX_TLS=rc X=1 ucx_perftest s"), "ucx_perftest", "c -> s", "-", ""},
		{of("sh", "-c", " "), "exec", "c -> s", "-", ""},
		{several, "x", "2 clients -> s", "-", ""},
		{fast, "x", "c -> s", "2.00 Gb/s", ""},
		{often, "x", "c -> s", "1500 msg/s", ""},
		{ended, "x", "c -> s", "-", "the program of s was ended after its last client"},
		{&Workload{Operation: "exec", Nodes: []string{"s", "c"}}, "exec", "2 nodes", "-", ""},
	} {
		if w := tt.of; w.What() != tt.what || w.Between() != tt.between || w.Speed() != tt.speed || w.Story() != tt.narration {
			t.Errorf("%q, %q, %q, %q; want %+v", w.What(), w.Between(), w.Speed(), w.Story(), tt)
		}
	}
}
