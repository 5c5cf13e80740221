package simulate

import (
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
