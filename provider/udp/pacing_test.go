package udp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A pacedPair is a queue pair that congestion control holds to a rate, and its peer, over a veth pair.
type pacedPair struct {
	tb       testing.TB
	from, to *station
	qp       *provider.QP
	wake     chan struct{}
	results  [32]provider.Result
}

const (
	pacedSize  = 64 << 10 // bytes of a message
	pacedDepth = 8
	// pacedWire is the bytes on the wire of a message: Ethernet with preamble and gap, IPv4, UDP, BTH and ICRC around
	// each 4 KiB, and a RETH in the first packet.
	pacedWire = pacedSize/4096*(4096+24+14+20+8+12+4) + 16
	// pacedBurst is that of agents (internal/node).
	pacedBurst = 32 << 10
)

func newPacedPair(tb testing.TB, rate float64) *pacedPair {
	tb.Helper()
	ends := newLink(tb, 4200)
	control := congestion.Config{
		Algorithm: congestion.WithDCQCN, DCQCN: congestion.ConnectX(), CNP: congestion.ConnectXCNP(), Burst: pacedBurst,
		LineRates: map[netip.Addr]uint64{addressesOf(0)[0]: 10e9},
	}
	control.DCQCN.RPGMaxRate = rate
	p := &pacedPair{tb: tb, wake: make(chan struct{}, 1)}
	p.from = newStation(tb, ends[0], addressesOf(0)[0], pacedDepth, func(any, provider.Status) { p.wake <- struct{}{} }, control)
	p.to = newStation(tb, ends[1], addressesOf(1)[0], 16, nil, control)
	p.qp = connect(tb, p.from, p.to, 1, pacedDepth)[0]
	return p
}

// write writes n messages, and returns how long that took.
func (p *pacedPair) write(n int) time.Duration {
	p.tb.Helper()
	sgl := []provider.SGE{{VirtualAddress: regionBase, Length: pacedSize, MemoryRegionToken: p.from.mr.LocalToken()}}
	begun := clock.Real().Now()
	posted := 0
	for completed := 0; completed < n; {
		for ; posted < min(n, completed+pacedDepth); posted++ {
			if status := p.qp.Write(nil, sgl, regionBase, p.to.mr.RemoteToken(), 0); status != provider.StatusSuccess {
				p.tb.Fatal(status)
			}
		}
		got := p.from.cq.Results(p.results[:])
		if got == 0 {
			p.from.cq.Arm(provider.NotifyAny)
			if got = p.from.cq.Results(p.results[:]); got == 0 {
				select {
				case <-p.wake:
				case <-time.After(patience):
					p.tb.Fatalf("%d of %d messages are complete", completed, n)
				}
				continue
			}
		}
		for _, r := range p.results[:got] {
			if r.Status != provider.StatusSuccess {
				p.tb.Fatal(r.Status)
			}
		}
		completed += got
	}
	return clock.Real().Now() - begun
}

// TestPacing: a queue pair never sends faster than its congestion control lets it, but for what it may catch up with. Its
// being slower depends on the machine: in the best of many short times it is not. By timers that are late by a millisecond,
// it would be in each.
func TestPacing(t *testing.T) {
	const rate, messages = 400e6, 2
	p := newPacedPair(t, rate)
	ideal := time.Duration(messages * pacedWire * 8 / rate * 1e9)
	ahead := time.Duration((pacedBurst + 2*4300) * 8 / rate * 1e9) // the first packet waits for nothing, nobody for the last
	best := time.Duration(1<<63 - 1)
	for range 200 {
		took := p.write(messages)
		if took < ideal-ahead {
			t.Fatalf("%d messages took %v, want %v at least", messages, took, ideal-ahead)
		}
		best = min(best, took)
	}
	if best > ideal {
		t.Errorf("%d messages took %v or longer each time, want %v at most", messages, best, ideal)
	}
}

// BenchmarkPacing is of a queue pair that congestion control holds to a rate: "percent" is what it has of that.
func BenchmarkPacing(b *testing.B) {
	for _, rate := range []float64{50e6, 100e6, 200e6, 500e6, 1e9, 2e9} {
		b.Run(fmt.Sprintf("%.0fMbps", rate/1e6), func(b *testing.B) {
			p := newPacedPair(b, rate)
			used := cpu(b)
			b.ResetTimer()
			took := p.write(b.N)
			b.StopTimer()
			b.ReportMetric(float64(cpu(b)-used)/float64(b.N)/(pacedSize/4096), "cpu-ns/packet")
			b.ReportMetric(100*float64(b.N*pacedWire*8)/took.Seconds()/rate, "percent")
		})
	}
}
