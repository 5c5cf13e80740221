package udp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A station is an adapter of a device on a Carrier, with one CQ for all of its
// queue pairs and one region that all of them use.
type station struct {
	carrier *Carrier
	adapter *provider.Adapter
	pd      *provider.PD
	cq      *provider.CQ
	mr      *provider.MR
	address netip.Addr
}

const regionBase = 1 << 20

func newStation(b testing.TB, ns netns.NsHandle, address netip.Addr, entries uint32, notify provider.CQNotification, control congestion.Config) *station {
	b.Helper()
	s := &station{carrier: openIn(b, ns, address), address: address}
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = 4096
	m, err := provider.NewMiniport(provider.Config{
		Carrier: s.carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, uint64(address.As4()[3]))),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
		Configuration: &configuration, Congestion: control,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.carrier.Close() })
	status := provider.StatusSuccess
	check := func() {
		if status != provider.StatusSuccess {
			b.Fatal(status)
		}
	}
	s.adapter, status = m.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	check()
	s.pd, status = s.adapter.CreatePD(nil, nil)
	check()
	s.cq, status = s.adapter.CreateCQ(entries, notify, nil, nil, nil, nil)
	check()
	s.mr, status = s.pd.CreateMR(false, nil, nil)
	check()
	status = s.mr.Register(&provider.MDL{VirtualAddress: regionBase, Bytes: make([]byte, 1<<20)}, 1<<20,
		provider.MRAllowRemoteWrite|provider.MRAllowRemoteRead, nil, nil)
	check()
	return s
}

// connect joins n queue pairs of two stations, and returns those of the first.
func connect(b testing.TB, from, to *station, n int, depth uint32) []*provider.QP {
	b.Helper()
	service := netip.AddrPortFrom(to.address, 7000)
	var refused atomic.Uint32
	listener, _ := to.adapter.CreateListener(func(_ any, c *provider.Connector) {
		qp, status := to.pd.CreateQP(to.cq, to.cq, nil, 1, 1, 1, 1, 0, nil, nil)
		if status == provider.StatusSuccess {
			status = c.Accept(qp, 16, 16, nil, nil, nil, func(any, provider.Status) {}, nil)
		}
		if status != provider.StatusPending {
			refused.Store(uint32(status))
		}
	}, nil, nil, nil)
	if status := listener.Listen(service, nil, nil); status != provider.StatusSuccess {
		b.Fatal(status)
	}
	qps := make([]*provider.QP, n)
	for i := range qps {
		qp, status := from.pd.CreateQP(from.cq, from.cq, nil, 1, depth, 1, 1, 0, nil, nil)
		if status != provider.StatusSuccess {
			b.Fatal(status)
		}
		qps[i] = qp
		c, _ := from.adapter.CreateConnector(nil, nil)
		done := make(chan provider.Status, 1)
		c.Connect(qp, netip.AddrPortFrom(from.address, 0), service, 16, 16, nil,
			func(_ any, s provider.Status) { done <- s }, nil)
		if status := <-done; status != provider.StatusSuccess {
			b.Fatal(i, status, provider.Status(refused.Load()))
		}
		if status := c.CompleteConnect(nil, nil, nil, nil); status != provider.StatusSuccess {
			b.Fatal(status)
		}
	}
	return qps
}

// BenchmarkQueuePairs is of whole adapters at both ends of a veth pair, with as many
// queue pairs at work as its name says, each of which has some messages of 64 KiB
// under way.
func BenchmarkQueuePairs(b *testing.B) {
	const size, depth = 64 << 10, 8
	for _, op := range []string{"write", "read"} {
		for _, n := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", op, n), func(b *testing.B) {
				ends := newLink(b, 4200)
				wake := make(chan struct{}, 1)
				from := newStation(b, ends[0], addressesOf(0)[0], uint32(n*depth), func(any, provider.Status) { wake <- struct{}{} }, congestion.Config{})
				to := newStation(b, ends[1], addressesOf(1)[0], 16, nil, congestion.Config{})
				qps := connect(b, from, to, n, depth)
				sgl := []provider.SGE{{VirtualAddress: regionBase, Length: size, MemoryRegionToken: from.mr.LocalToken()}}
				done := make([]int, n)
				post := func(i int) {
					call := qps[i].Write
					if op == "read" {
						call = qps[i].Read
					}
					if status := call(i, sgl, regionBase, to.mr.RemoteToken(), 0); status != provider.StatusSuccess {
						b.Fatal(status)
					}
				}
				posted, completed, target := 0, 0, b.N
				results := make([]provider.Result, 256)
				before := from.carrier.Counters()
				beforeThere := to.carrier.Counters()
				used := cpu(b)
				b.SetBytes(size)
				b.ResetTimer()
				for range depth {
					for i := range qps {
						if posted < target {
							post(i)
							posted++
						}
					}
				}
				deadline := time.After(30 * time.Second)
				for completed < target {
					got := from.cq.Results(results)
					if got == 0 {
						from.cq.Arm(provider.NotifyAny)
						if got = from.cq.Results(results); got == 0 {
							select {
							case <-wake:
							case <-deadline:
								b.Fatal(completed, "of", target)
							}
							continue
						}
					}
					for _, r := range results[:got] {
						if r.Status != provider.StatusSuccess {
							b.Fatal(r.Status)
						}
						i := r.RequestContext.(int)
						done[i]++
						if posted < target {
							post(i)
							posted++
						}
					}
					completed += got
				}
				b.StopTimer()
				after, afterThere := from.carrier.Counters(), to.carrier.Counters()
				b.ReportMetric(float64(target)*size*8/1e9/b.Elapsed().Seconds(), "Gb/s")
				b.ReportMetric(float64(cpu(b)-used)/float64(target)/16, "cpu-ns/packet")
				overflow := after["receive_overflow"] - before["receive_overflow"] + afterThere["receive_overflow"] - beforeThere["receive_overflow"]
				b.ReportMetric(float64(overflow), "overflows")
				packets := after["packets_sent"] - before["packets_sent"]
				if op == "read" {
					packets = afterThere["packets_sent"] - beforeThere["packets_sent"]
				}
				b.ReportMetric(float64(packets)/float64(target)/16, "sent/needed")
				super := after["super_packets_received"] - before["super_packets_received"] + afterThere["super_packets_received"] - beforeThere["super_packets_received"]
				b.ReportMetric(float64(packets)/float64(super), "packets/super")
				b.ReportMetric(jain(done), "jain")
			})
		}
	}
}

// jain returns Jain's index of the values, which says how evenly they are spread: 1 if all
// are equal, 1/n if one has all.
func jain(values []int) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	return sum * sum / (float64(len(values)) * squares)
}
