package adapter

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// TestLineRates has the rates of what each host sends: a link's own, that of its other direction,
// and none.
func TestLineRates(t *testing.T) {
	topo, err := topology.Parse("test.ndklab.yaml", []byte(`
topology:
  nodes: {a: , b: , s: {kind: switch, port: {rate: 5gbit}}}
  links:
    - {endpoints: [{node: a, interface: e0, addresses: [10.1.0.1/24, "fd01::1/64"]}, {node: b, interface: e0, addresses: [10.1.0.2/24, "fd01::2/64"]}], rate: 10gbit, reverse: {rate: 1gbit}}
    - {endpoints: [{node: a, interface: e1, addresses: [10.2.0.1/24]}, {node: b, interface: e1, addresses: [10.2.0.2/24]}], reverse: {rate: 2gbit}}
    - {endpoints: ["s:p1", {node: b, interface: e2, addresses: [10.3.0.2/24]}]}
    - {endpoints: ["s:p2", {node: a, interface: e2, addresses: [10.3.0.1/24]}], rate: 3gbit}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[netip.Addr]uint64{
		"a": {netip.MustParseAddr("10.1.0.1"): 10e9, netip.MustParseAddr("fd01::1"): 10e9, netip.MustParseAddr("10.3.0.1"): 3e9},
		"b": {netip.MustParseAddr("10.1.0.2"): 1e9, netip.MustParseAddr("fd01::2"): 1e9, netip.MustParseAddr("10.2.0.2"): 2e9},
	} {
		got := LineRates(topo.FindNode(name), topo.Links)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
