package cm

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// crowd makes two hosts with so many connections between them.
func crowd(b *testing.B, size int) (n *network, active, passive *host) {
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
			n, active, passive := crowd(b, others)
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

// BenchmarkIdle reports what one end of an idle connection occupies.
func BenchmarkIdle(b *testing.B) {
	const size = 10000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, active, passive := crowd(b, size)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(2*size), "B/end")
		runtime.KeepAlive(active)
		runtime.KeepAlive(passive)
	}
}
