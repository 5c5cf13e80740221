package cm

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// crowded makes two hosts with so many connections between them.
func crowded(b *testing.B, size int) (n *network, active, passive *host) {
	n, active, passive = pair(b)
	for i := range uint32(size) {
		establish(active, passive, 0x100+i, 0x100+i)
		active.sent, passive.sent = active.sent[:0], passive.sent[:0]
	}
	return n, active, passive
}

// BenchmarkLife makes and ends connections, both ends and the simulated network
// included. The time must not depend on how many others there are.
func BenchmarkLife(b *testing.B) {
	for _, others := range []int{0, 100, 10000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			n, active, passive := crowded(b, others)
			qpn := uint32(0x100000)
			b.ReportAllocs()
			for b.Loop() {
				qpn++
				id, _ := establish(active, passive, qpn, qpn)
				active.must(active.disconnect(id))
				n.clock.Run(time.Second)
				active.events, passive.events = active.events[:0], passive.events[:0]
				active.sent, passive.sent = active.sent[:0], passive.sent[:0]
			}
		})
	}
}

// BenchmarkCrowd makes and ends connections that are all asked for at once, both
// ends and the simulated network included. The time for each must not depend on
// how many there are.
func BenchmarkCrowd(b *testing.B) {
	for _, size := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("connections=%d", size), func(b *testing.B) {
			c := newCrowd(b, size)
			b.ReportAllocs()
			for b.Loop() {
				c.connect()
				c.disconnect()
				c.active.sent, c.passive.sent = c.active.sent[:0], c.passive.sent[:0]
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/connection")
		})
	}
}

// BenchmarkIdle reports what one end of an idle connection occupies.
func BenchmarkIdle(b *testing.B) {
	const size = 10000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, active, passive := crowded(b, size)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(2*size), "B/end")
		runtime.KeepAlive(active)
		runtime.KeepAlive(passive)
	}
}
