package linkem

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// BenchmarkThroughput sends super-packets of 15 datagrams of 4 KiB, 4 MB in
// flight, and reports payload Gb/s and the cores that the engine used.
func BenchmarkThroughput(b *testing.B) {
	ms := time.Millisecond
	for _, c := range []struct {
		name  string
		there topology.Impairment
		hosts int // whose engines carry the link; 0: the kernel does
	}{
		{"kernel", topology.Impairment{}, 0},
		{"unimpaired", topology.Impairment{}, 1},
		{"1ms", topology.Impairment{Delay: ms}, 1},
		{"1ms-10gbit", topology.Impairment{Delay: ms, Rate: 10e9}, 1},
		{"1ms-10gbit-50us", topology.Impairment{Delay: ms, Jitter: topology.Jitter{Spread: 50 * time.Microsecond}, Rate: 10e9}, 1},
		{"1ms-1gbit", topology.Impairment{Delay: ms, Rate: 1e9}, 1},
		{"1ms-100gbit", topology.Impairment{Delay: ms, Rate: 100e9}, 1},
		{"unimpaired-two-hosts", topology.Impairment{}, 2},
		{"1ms-two-hosts", topology.Impairment{Delay: ms}, 2},
		{"1ms-10gbit-50us-two-hosts", topology.Impairment{Delay: ms, Jitter: topology.Jitter{Spread: 50 * time.Microsecond}, Rate: 10e9}, 2},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, leaves := carried(b, c.hosts, c.there)
			from, to := l.nodes[0].udp(b, "udp4"), l.nodes[1].udp(b, "udp4")
			meet(b, from, to)
			segmentAny(b, from, to)
			tokens := make(chan struct{}, 64)
			done := make(chan struct{})
			go func() {
				defer close(done)
				in := make([]byte, 65536)
				for got, returned := 0, 0; got < b.N*super; {
					n, _, err := to.ReadFrom(in)
					if err != nil {
						b.Errorf("after %d bytes of %d: %v", got, b.N*super, err)
						return
					}
					for got += n; returned < got/super; returned++ {
						<-tokens
					}
				}
			}()
			buf := make([]byte, super)
			cpu := l.cpu(b)
			b.SetBytes(super)
			b.ResetTimer()
			for range b.N {
				select {
				case tokens <- struct{}{}:
				case <-done:
					b.FailNow()
				}
				if _, err := from.WriteTo(buf, to.LocalAddr()); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)*super*8/b.Elapsed().Seconds()/1e9, "Gb/s")
			b.ReportMetric((l.cpu(b)-cpu).Seconds()/b.Elapsed().Seconds(), "engine-cores")
			if c.hosts > 0 {
				leaves.report(b)
			}
		})
	}
}

// carried returns a lab whose link the engines of so many hosts carry, or the kernel; and the lab with the engine where packets to
// node 1 leave.
func carried(b *testing.B, hosts int, there topology.Impairment) (l, leaves *lab) {
	if hosts == 2 {
		t := newTrunked(b, there, topology.Impairment{})
		return t.lab, t.farLab
	}
	l = newLab(b, 4200)
	if hosts == 1 {
		l.attach(b, there, topology.Impairment{})
	} else {
		join(b)
	}
	return l, l
}

// BenchmarkAddedDelay sends datagrams of 1 KiB, evenly spaced, and reports what
// delay the engine added beyond what was asked for.
func BenchmarkAddedDelay(b *testing.B) {
	for _, delay := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		for _, perSecond := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%v-%d/s", delay, perSecond), func(b *testing.B) {
				l := newLab(b, 4200)
				l.attach(b, topology.Impairment{Delay: delay}, topology.Impairment{})
				from, to := l.nodes[0].udp(b, "udp4"), l.nodes[1].udp(b, "udp4")
				meet(b, from, to)
				done := make(chan struct{})
				go func() {
					defer close(done)
					in := make([]byte, 2048)
					for range b.N {
						if _, _, err := to.ReadFrom(in); err != nil {
							b.Error(err)
							return
						}
					}
				}()
				buf := make([]byte, 1024)
				cpu := l.cpu(b)
				gap := time.Second / time.Duration(perSecond)
				b.ResetTimer()
				ticks := pace(b, gap)
				for range b.N {
					ticks()
					if _, err := from.WriteTo(buf, to.LocalAddr()); err != nil {
						b.Fatal(err)
					}
				}
				<-done
				b.StopTimer()
				b.ReportMetric((l.cpu(b)-cpu).Seconds()/b.Elapsed().Seconds(), "engine-cores")
				l.report(b)
			})
		}
	}
}

// BenchmarkRoundTrip has a small datagram go to and fro between blocking ends.
func BenchmarkRoundTrip(b *testing.B) {
	for hosts, name := range []string{"kernel", "unimpaired", "unimpaired-two-hosts"} {
		b.Run(name, func(b *testing.B) {
			l, _ := carried(b, hosts, topology.Impairment{})
			a, c := l.nodes[0].udp(b, "udp4"), l.nodes[1].udp(b, "udp4")
			go func() {
				in := make([]byte, 2048)
				for {
					n, from, err := c.ReadFrom(in)
					if err != nil {
						return
					}
					if _, err := c.WriteTo(in[:n], from); err != nil {
						return
					}
				}
			}()
			in := make([]byte, 2048)
			for b.Loop() {
				if _, err := a.WriteTo(in[:64], c.LocalAddr()); err != nil {
					b.Fatal(err)
				}
				if _, _, err := a.ReadFrom(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdle reports what an engine uses that has links with delay and no
// traffic.
func BenchmarkIdle(b *testing.B) {
	l := newLab(b, 4200)
	l.attach(b, topology.Impairment{Delay: time.Millisecond}, topology.Impairment{Delay: time.Millisecond})
	cpu := l.cpu(b)
	tick := pace(b, 100*time.Millisecond)
	for b.Loop() {
		tick()
	}
	b.ReportMetric((l.cpu(b)-cpu).Seconds()/b.Elapsed().Seconds(), "engine-cores")
}

// pace returns a function that returns once per gap, as a timerfd has it.
func pace(b *testing.B, gap time.Duration) func() {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	must(b, err)
	b.Cleanup(func() { unix.Close(fd) })
	every := unix.NsecToTimespec(int64(gap))
	must(b, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil))
	due := uint64(0)
	return func() {
		if due > 0 {
			due--
			return
		}
		var count [8]byte
		for {
			if _, err := unix.Read(fd, count[:]); err != syscall.EINTR {
				must(b, err)
				break
			}
		}
		due = uint64(count[0]) | uint64(count[1])<<8 - 1
	}
}

// meet has two nodes learn each other's link address: until then the kernel
// queues little.
func meet(b testing.TB, from, to *net.UDPConn) {
	for _, c := range [][2]*net.UDPConn{{from, to}, {to, from}} {
		_, err := c[0].WriteTo([]byte("hello"), c[1].LocalAddr())
		must(b, err)
		_, _, err = c[1].ReadFrom(make([]byte, 8))
		must(b, err)
	}
}

func segmentAny(b *testing.B, from, to *net.UDPConn) {
	raw, err := from.SyscallConn()
	must(b, err)
	must(b, raw.Control(func(fd uintptr) { must(b, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, datagram)) }))
	raw, err = to.SyscallConn()
	must(b, err)
	must(b, raw.Control(func(fd uintptr) { must(b, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)) }))
}

// report adds what the engine measured from node 0 to node 1.
func (l *lab) report(b *testing.B) {
	m, err := l.engine.Measure(deadline(b), nil)
	must(b, err)
	d := m[linkName][0]
	b.ReportMetric(float64(d.Lateness.P50)/1e3, "late-p50-us")
	b.ReportMetric(float64(d.Lateness.P99)/1e3, "late-p99-us")
	b.ReportMetric(d.PeakRate/1e9, "wire-peak-Gb/s")
	if d.LostOverrun > 0 {
		b.Logf("overrun: %d packets", d.LostOverrun)
	}
}

// cpu is the processor time that the engine has used.
func (l *lab) cpu(b *testing.B) time.Duration {
	total := time.Duration(0)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", l.cmd.Process.Pid))
	must(b, err)
	for _, t := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", l.cmd.Process.Pid, t.Name()))
		must(b, err)
		ns, err := strconv.ParseInt(strings.Fields(string(stat))[0], 10, 64)
		must(b, err)
		total += time.Duration(ns)
	}
	return total
}
