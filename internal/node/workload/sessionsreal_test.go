package workload

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// TestSessionsInRealTime has the operations whose connections come and go on sockets, where
// their callbacks run side by side.
func TestSessionsInRealTime(t *testing.T) {
	w := newWireBy(t, patientClock{clock.Real()})
	for name, spec := range map[string]Spec{
		"storm":   {Operation: topology.Connect, QPs: 2000, Depth: 64, Count: 2000},
		"churn":   {Operation: topology.Connect, QPs: 16, Depth: 8, Count: 1000},
		"storage": {Operation: topology.Storage, Size: 10000, QPs: 3, Depth: 8, Count: 1000, Verify: true},
		"rping":   {Operation: topology.Rping, Size: 1000, Depth: 1, Count: 200, Verify: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Name = name
			if got := w.run(t, spec); got.Messages != spec.Count {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestStormLatencyInRealTime: connections that are made one after the other where there is no
// network to speak of take a millisecond at most. Only a tenth of them has to: a machine
// that is busy makes others wait.
func TestStormLatencyInRealTime(t *testing.T) {
	w := newWire(t)
	got := w.run(t, Spec{Name: "w", Operation: topology.Connect, QPs: 1, Depth: 1, Count: 100})
	var all Latencies
	if err := all.Add(got.Latency); err != nil {
		t.Fatal(err)
	}
	if tenth := all.Micros(10); tenth > 1000 {
		t.Errorf("a tenth of all connections took %.0f us or less, want 1000 at most", tenth)
	}
}

// TestAllReduceInRealTime has a ring of two hosts.
func TestAllReduceInRealTime(t *testing.T) {
	w := newWireBy(t, patientClock{clock.Real()})
	hosts := [2]*Host{w.client, w.server}
	addresses := [2]netip.AddrPort{netip.AddrPortFrom(w.from, 7000), w.to}
	results := make(chan Result, 2)
	spec := Spec{Name: "w", Operation: topology.AllReduce, Size: 100000, Count: 100, Ranks: 2}
	for flow := range 2 {
		spec.Flow, spec.Rank = flow, flow
		if err := hosts[1-flow].Serve(spec, addresses[1-flow]); err != nil {
			t.Fatal(err)
		}
	}
	for flow := range 2 {
		spec.Flow, spec.Rank = flow, flow
		if err := hosts[flow].Run(spec, addresses[flow].Addr(), addresses[1-flow], func(r Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if r := soon(t, results); r.Messages != 100 || r.Errors != 0 {
			t.Errorf("%+v", r)
		}
	}
	found := make(chan ServerResult, 2)
	for flow := range 2 {
		if err := hosts[1-flow].Unserve("w", flow, func(r ServerResult) { found <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if r := soon(t, found); r.Error != "" {
			t.Error(r.Error)
		}
	}
}

// BenchmarkStorage is requests of 64 KiB, 16 in flight, of which every other one writes.
func BenchmarkStorage(b *testing.B) {
	w := newWire(b)
	for _, verify := range []bool{false, true} {
		b.Run(fmt.Sprintf("verify=%v", verify), func(b *testing.B) {
			spec := Spec{Name: "w", Operation: topology.Storage, Size: 65536, Depth: 16, Count: uint64(b.N), Verify: verify}
			b.SetBytes(int64(spec.Size))
			b.ReportAllocs()
			w.run(b, spec)
		})
	}
}

// BenchmarkStorm is connections that are made and ended, 64 at a time.
func BenchmarkStorm(b *testing.B) {
	w := newWire(b)
	b.ReportAllocs()
	w.run(b, Spec{Name: "w", Operation: topology.Connect, QPs: 256, Depth: 64, Count: uint64(b.N)})
}
