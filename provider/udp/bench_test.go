package udp

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// cpu is the processor time that this process has used. On a machine that is
// busy otherwise it tells more than the throughput.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// arrivals counts packets, and lets one goroutine wait for them.
type arrivals struct {
	n    atomic.Int64
	more chan struct{}
}

func newArrivals() *arrivals { return &arrivals{more: make(chan struct{}, 1)} }

func (a *arrivals) add(n int) {
	a.n.Add(int64(n))
	select {
	case a.more <- struct{}{}:
	default:
	}
}

func (a *arrivals) await(tb testing.TB, n int64) {
	for a.n.Load() < n {
		select {
		case <-a.more:
		case <-time.After(patience):
			tb.Fatalf("%d of %d packets arrived", a.n.Load(), n)
		}
	}
}

// stream calls send, which sends n packets of 4 KiB, over and over, with as many
// in flight as the receive buffer takes.
func stream(b *testing.B, a *arrivals, buffer, n int, send func()) {
	window := int64(buffer / 4608)
	var sent int64
	b.SetBytes(4096)
	b.ReportAllocs()
	before := cpu(b)
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			a.await(b, sent+int64(n)-window)
			send()
			sent += int64(n)
		}
	}
	a.await(b, sent)
	b.ReportMetric(float64(cpu(b)-before)/float64(sent), "cpu-ns/op")
	b.ReportMetric(float64(sent)*4096*8/1e9/b.Elapsed().Seconds(), "Gb/s")
}

// BenchmarkThroughput is of WRITEs over a veth pair: everything that a carrier
// does at both ends, and a copy of the payload into memory as an adapter makes it.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			from, to := openLink(b, 4200)
			from.Listen(receiverFunc(func([]roce.Received) {}))
			a := newArrivals()
			memory := make([]byte, 1<<20)
			to.Listen(receiverFunc(func(batch []roce.Received) {
				for i := range batch {
					copy(memory[batch[i].Header.PSN<<12:], batch[i].Payload)
				}
				a.add(len(batch))
			}))
			flow := flowBetween(from, to, 0)
			packets := writes(make([]byte, 1<<20), size)
			// One packet first, to have the neighbour resolved: the kernel keeps
			// only 208 KiB until then.
			mustSend(b, from, flow, packets[:1])
			a.await(b, 1)
			a.n.Store(0)
			stream(b, a, min(to.ReceiveBuffer(), provider.DefaultReceiveBuffer), 64, func() { mustSend(b, from, flow, packets[:64]) })
		})
	}
}

// BenchmarkFloor measures the time that the system calls and the kernel take:
// the same super-packets by the same sockets, but no ICRC, no packet assembled or
// taken apart, and nothing copied but by the kernel.
func BenchmarkFloor(b *testing.B) {
	from, to := openLink(b, 4200)
	a := newArrivals()
	l, in := to.listeners[0], newIncoming()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.watch.raw.Read(func(uintptr) bool {
			for {
				n, more, _ := in.receive(l.fd)
				for i := range n {
					b, segment, _ := in.message(i)
					a.add((len(b) + segment - 1) / segment)
				}
				if !more {
					return false
				}
			}
		})
	}()
	flow := flowBetween(from, to, 0)
	out := new(sending)
	s := from.senders[sourceOf(flow)]
	packets := writes(make([]byte, 1<<20), 1<<20)
	for _, n := range []int{1, 60} {
		a.n.Store(0)
		if out.fill(&flow, packets[1:1+n], false) != n {
			b.Fatal("no room for", n)
		}
		send := func() {
			if n, errno := out.outgoing.send(s.fd, 0); n != out.outgoing.n {
				b.Fatal(n, errno)
			}
		}
		if n == 1 {
			send()
			a.await(b, 1)
		} else {
			stream(b, a, min(to.ReceiveBuffer(), provider.DefaultReceiveBuffer), n, send)
		}
	}
	if err := to.Close(); err != nil {
		b.Fatal(err)
	}
	<-done
}

// BenchmarkSend is the sender alone: what arrives is dropped, as nobody reads
// it.
func BenchmarkSend(b *testing.B) {
	from, to := openLink(b, 4200)
	flow := flowBetween(from, to, 0)
	packets := writes(make([]byte, 1<<20), 1<<20)
	b.SetBytes(4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%60 == 0 {
			mustSend(b, from, flow, packets[:60])
		}
	}
}

// BenchmarkPingPong is a round trip of SENDs of 64 bytes over a veth pair.
func BenchmarkPingPong(b *testing.B) {
	from, to := openLink(b, 4200)
	packet := []roce.Packet{{Header: roce.Header{Opcode: roce.SendOnly, PKey: roce.DefaultPKey}, Payload: [][]byte{make([]byte, 64)}}}
	back := make(chan struct{})
	from.Listen(receiverFunc(func([]roce.Received) { back <- struct{}{} }))
	reply := flowBetween(to, from, 0)
	to.Listen(receiverFunc(func([]roce.Received) { mustSend(b, to, reply, packet) }))
	flow := flowBetween(from, to, 0)
	b.ReportAllocs()
	for b.Loop() {
		mustSend(b, from, flow, packet)
		<-back
	}
}

// BenchmarkOpen is of one IPv4 and one IPv6 address.
func BenchmarkOpen(b *testing.B) {
	cfg := Config{Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}}
	for b.Loop() {
		c, err := Open(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.Close(); err != nil {
			b.Error(err)
		}
		b.StartTimer()
	}
}

// BenchmarkSmall is the smallest packet, sent and received over the loopback interface by one
// goroutine, which waits for nobody: what the calls themselves take.
func BenchmarkSmall(b *testing.B) {
	for _, class := range []uint8{0, 26<<2 | roce.ECT0} {
		b.Run(fmt.Sprintf("class %#x", class), func(b *testing.B) {
			c := open(b, "127.0.0.1")
			flow := flowBetween(c, c, 0)
			packets := []roce.Packet{acknowledgement(0)}
			packets[0].Class = class
			b.ReportAllocs()
			for b.Loop() {
				mustSend(b, c, flow, packets)
				for c.listeners[0].step(receiverFunc(func([]roce.Received) {})) == 0 {
				}
			}
		})
	}
}
