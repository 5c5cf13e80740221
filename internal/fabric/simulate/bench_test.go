package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// BenchmarkBulk is 64 KiB writes on a link of 10 Gb/s, verified. It reports how many
// packets a second of real time has, and how much faster than a lab's that is.
func BenchmarkBulk(b *testing.B) {
	for _, c := range []struct {
		name, settings string
		verify         bool
	}{{"clean", "delay: 100us, rate: 10gbit", false}, {"verified", "delay: 100us, rate: 10gbit", true}, {"lossy", "delay: 1ms, rate: 10gbit, loss: 1%", true}} {
		b.Run(c.name, func(b *testing.B) {
			l := up(b, pair(c.settings))
			w := l.begin(b, "a", "b", workload.Spec{Operation: topology.Write, Size: 64 << 10, Depth: 16, Duration: time.Hour, Verify: c.verify})
			l.clock.Run(10 * time.Millisecond)
			before := l.network.links[0].wires[0].Statistics().Packets
			b.ReportAllocs()
			for b.Loop() {
				l.clock.Run(100 * time.Millisecond)
			}
			packets := l.network.links[0].wires[0].Statistics().Packets - before
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
			b.ReportMetric(float64(b.N)*0.1/b.Elapsed().Seconds(), "s/s")
			b.ReportMetric(float64(packets)/float64(b.N)*4096*8/0.1/1e9, "gbps")
			_ = w
		})
	}
}

// BenchmarkPermutation is 2 ms of 128 hosts at 8 leaves and 4 spines, of 40 Gb/s with shared buffers, PFC and DCQCN, each of which
// writes to one other. It reports the time for each packet that a host has sent, which crosses three or four links.
func BenchmarkPermutation(b *testing.B) {
	var links strings.Builder
	for leaf := range 8 {
		for host := range 16 {
			fmt.Fprintf(&links, "    - endpoints: [\"h%d-%d:eth0\", \"leaf%d:d%d\"]\n", leaf, host, leaf, host)
		}
		for spine := range 4 {
			fmt.Fprintf(&links, "    - endpoints: [\"leaf%d:u%d\", \"spine%d:l%d\"]\n", leaf, spine, spine, leaf)
		}
	}
	t, err := topology.Parse("permutation", []byte(`
name: permutation
topology:
  defaults:
    adapter: {congestion: dcqcn, pfc: [3], dscp: 26, roce_frame_size: 1024, turnaround: 500ns}
    link: {rate: 40gbit, delay: 1us, mtu: 1500}
  kinds:
    tier: {kind: router, buffer: {preset: hpcc, size: 32MiB}, priorities: {lossless: [3]}}
  nodes: {"spine[0-3]": {kind: tier}, "leaf[0-7]": {kind: tier}, "h[0-7]-[0-15]": {}}
  links:
`+links.String()+`
workloads:
  - {name: each, pattern: permutation, nodes: "h*", operation: write, size: 1MiB, depth: 4, duration: 2ms}
`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	packets := uint64(0)
	for b.Loop() {
		r, err := Run(b.Context(), t.Draw(1), Options{})
		if err != nil {
			b.Fatal(err)
		}
		for i := range r.Nodes {
			packets += r.Nodes[i].Transport["packets_sent"]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}
