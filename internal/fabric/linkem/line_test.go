package linkem

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A bench is a loop without a thread, with a started link whose ports are Unix
// datagram sockets: what one end of a pair sends is a frame with its virtio
// header to the other.
type bench struct {
	*loop
	k    *link
	ends [2]int // the nodes' ends
}

func newBench(tb testing.TB, there topology.Impairment) *bench { return newDilatedBench(tb, 1, there) }

func newDilatedBench(tb testing.TB, dilated dilation, there topology.Impairment) *bench {
	tb.Helper()
	b, ports := newBareBench(tb, dilated)
	b.attach(tb, Link{Name: "x", Seed: 1, Directions: [2]topology.Impairment{there}}, ports)
	return b
}

// newBareBench returns a bench whose ports are no link's yet.
func newBareBench(tb testing.TB, dilated dilation) (b *bench, ports [2]*port) {
	tb.Helper()
	l, err := newLoop(dilated)
	must(tb, err)
	b = &bench{loop: l}
	for i := range ports {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		must(tb, err)
		for _, fd := range pair {
			must(tb, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20))
		}
		b.ends[i] = pair[0]
		ports[i] = &port{name: "lo", fd: pair[1]}
		tb.Cleanup(func() {
			unix.Close(pair[0])
			unix.Close(pair[1])
		})
	}
	tb.Cleanup(func() {
		unix.Close(l.poller.fd)
		unix.Close(l.commands.eventfd)
	})
	return b, ports
}

// attach makes ports those of a link.
func (b *bench) attach(tb testing.TB, link Link, ports [2]*port) {
	tb.Helper()
	must(tb, b.links.attach(link, ports))
	_, err := b.links.start(link.Name)
	must(tb, err)
	b.k = b.links.byName[link.Name]
}

// superPacket is a UDP super-packet of n datagrams of size bytes, the payload of
// each its number.
func superPacket(n, size int) []byte {
	b := make([]byte, frame.HeaderLen+42, frame.HeaderLen+42+n*size)
	b[0], b[1] = 1, 5 // checksum needed, UDP
	binary.NativeEndian.PutUint16(b[4:], uint16(size))
	binary.NativeEndian.PutUint16(b[6:], 34)
	binary.NativeEndian.PutUint16(b[8:], 6)
	eth := b[frame.HeaderLen:]
	eth[12], eth[13] = 8, 0
	eth[14], eth[23] = 0x45, 17
	for i := range n {
		b = append(b, bytes.Repeat([]byte{byte(i)}, size)...)
	}
	return b
}

// set changes the settings of a link that is not being given back.
func (b *bench) set(tb testing.TB, params setParams) {
	tb.Helper()
	watches, err := b.links.set(params)
	if err != nil || watches != [2]*watch{} {
		tb.Fatalf("watches %v, error %v", watches, err)
	}
}

// arrive has a frame arrive at port 0 and the loop take it.
func (b *bench) arrive(tb testing.TB, raw []byte) {
	tb.Helper()
	_, err := unix.Write(b.ends[0], raw)
	must(tb, err)
	b.ingress.receive(b.k.ports[0])
}

// left is the payload numbers of the frames that have left at port 1, and how
// many frames that were.
func (b *bench) left(tb testing.TB) (numbers []byte, frames int) {
	tb.Helper()
	buf := make([]byte, frame.MaxLen)
	for {
		n, err := unix.Read(b.ends[1], buf)
		if err == unix.EAGAIN {
			return numbers, frames
		}
		must(tb, err)
		frames++
		f, err := frame.Parse(buf[:n])
		must(tb, err)
		for i := range f.Segments() {
			p := f.AppendPacket(nil, i)
			numbers = append(numbers, p[len(p)-1])
		}
	}
}

// wire is the packets that have left at port 1, as a wire would have carried them.
func (b *bench) wire(tb testing.TB) (packets [][]byte) {
	tb.Helper()
	buf := make([]byte, frame.MaxLen)
	for {
		n, err := unix.Read(b.ends[1], buf)
		if err == unix.EAGAIN {
			return packets
		}
		must(tb, err)
		f, err := frame.Parse(buf[:n])
		must(tb, err)
		for i := range f.Segments() {
			packets = append(packets, f.AppendPacket(nil, i))
		}
	}
}

// shift moves all departures and arrivals into the past.
func (b *bench) shift(by time.Duration) { b.egress.Time = b.egress.Add(-by) }

func numbers(from, to int) (all []byte) {
	for i := from; i < to; i++ {
		all = append(all, byte(i))
	}
	return all
}

func TestWholeFramesPassAsTheyAre(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	for _, raw := range [][]byte{superPacket(15, 4096), superPacket(3, 100), superPacket(1, 60)} {
		b.arrive(t, raw)
		b.egress.send(b.k.lines[0])
		buf := make([]byte, frame.MaxLen)
		n, err := unix.Read(b.ends[1], buf)
		must(t, err)
		if !bytes.Equal(buf[:n], raw) {
			t.Errorf("a frame of %d bytes was altered", len(raw))
		}
	}
}

func TestRatedPacketsLeaveInTurn(t *testing.T) {
	// 10 packets of 1000 bytes at 80 s each, which is more than any pause of the machine.
	b := newBench(t, topology.Impairment{Rate: 8 * uint64(impair.WireBytes(1042)) / 80})
	b.arrive(t, superPacket(10, 1000))
	n := b.k.lines[0]
	b.egress.send(n)
	if got, _ := b.left(t); len(got) != 0 {
		t.Fatalf("packets %v left before their time", got)
	}
	b.shift(250 * time.Second) // the first three are due, and leave as one
	b.egress.send(n)
	if got, frames := b.left(t); !bytes.Equal(got, numbers(0, 3)) || frames != 1 {
		t.Fatalf("packets %v in %d frames, want 0 to 2 in one", got, frames)
	}
	b.shift(1000 * time.Second)
	b.egress.send(n)
	if got, frames := b.left(t); !bytes.Equal(got, numbers(3, 10)) || frames != 1 {
		t.Fatalf("packets %v in %d frames, want 3 to 9 in one", got, frames)
	}
	if !n.queue.empty() || b.egress.departures.Len() != 0 || len(b.egress.memory.spare) != 1 || n.shared != nil {
		t.Error("something is held after all has left")
	}
	m := n.measure(false)
	if m.Packets != 10 || m.Delivered != 10 || m.Bytes != 10*1042 || m.Delay.Count != 10 || time.Duration(m.Queueing.Min) < 80*time.Second || time.Duration(m.Queueing.Max) < 800*time.Second {
		t.Errorf("measured %+v", m)
	}
}

func TestLostPacketsLeaveGaps(t *testing.T) {
	b := newBench(t, topology.Impairment{Loss: topology.Loss{Rate: 0.3}})
	n := b.k.lines[0]
	model := impair.New(1, "x", 0) // meets the same fate
	model.Set(topology.Impairment{Loss: topology.Loss{Rate: 0.3}}, 0)
	for round := range 50 {
		var want []byte
		runs, last := 0, -2
		for i := range 15 {
			if model.Packet(&impair.Packet{Frame: 1042}, 0).Fate == impair.Passes {
				want = append(want, byte(i))
				if i != last+1 {
					runs++
				}
				last = i
			}
		}
		b.arrive(t, superPacket(15, 1000))
		if !n.queue.empty() {
			b.egress.send(n)
		}
		if got, frames := b.left(t); !bytes.Equal(got, want) || frames != runs {
			t.Fatalf("round %d: packets %v in %d frames, want %v in %d", round, got, frames, want, runs)
		}
	}
	if m := n.measure(false); m.Dropped+m.Delivered != 750 || m.Packets != 750 {
		t.Errorf("measured %+v", m)
	}
}

// When the delay lines' memory is spent, packets are lost and counted, and the
// rest is delivered.
func TestMemoryBudget(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Hour})
	small, err := newPool(10 * (bufferLen + heldCost + runCost))
	must(t, err)
	*b.egress.memory = *small
	n := b.k.lines[0]
	for range 15 {
		b.arrive(t, superPacket(15, 4096))
	}
	b.arrive(t, superPacket(2, 100))
	if m := n.measure(false); m.Packets != 15*15+2 || m.LostOverrun != 5*15+2 {
		t.Errorf("measured %+v, want 5 super-packets of 15 and one of 2 lost", m)
	}
	b.shift(time.Hour)
	for !n.queue.empty() {
		b.egress.send(n)
	}
	if m := n.measure(false); m.Delivered != 10*15 {
		t.Errorf("measured %+v, want 10 super-packets delivered", m)
	}
	b.arrive(t, superPacket(2, 100))
	if m := n.measure(false); m.LostOverrun != 5*15+2 {
		t.Error("memory was not given back")
	}
}

// Short frames share buffers, and all buffers come back.
func TestShortFramesShareMemory(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Hour})
	const memory = 2*bufferLen + 300*(heldCost+runCost)
	small, err := newPool(memory)
	must(t, err)
	*b.egress.memory = *small
	n := b.k.lines[0]
	const count = 300
	for i := range count {
		raw := superPacket(1, 300)
		raw[len(raw)-1] = byte(i)
		b.arrive(t, raw)
	}
	b.shift(time.Hour)
	var got []byte
	for !n.queue.empty() {
		b.egress.send(n)
		some, _ := b.left(t)
		got = append(got, some...)
	}
	if !bytes.Equal(got, numbers(0, count)) {
		t.Errorf("%d frames left, or not in order: %v", len(got), got)
	}
	if m := n.measure(false); m.LostOverrun != 0 {
		t.Errorf("measured %+v", m)
	}
	if len(b.egress.memory.free) != 2 || b.egress.memory.left != memory {
		t.Error("not all memory came back")
	}
}

// The budget includes the memory kept for frames besides their bytes: for short
// ones, for copies, and for packets that each leave at a time of their own.
func TestBudgetCoversWhatIsKept(t *testing.T) {
	const memory = 8 * bufferLen
	for name, c := range map[string]struct {
		settings topology.Impairment
		raw      []byte
	}{
		"short":     {topology.Impairment{Delay: time.Hour}, superPacket(1, 18)},
		"copied":    {topology.Impairment{Delay: time.Hour, Duplicate: 1}, superPacket(1, 18)},
		"reordered": {topology.Impairment{Delay: time.Hour, Reorder: topology.Reorder{Probability: 0.5, Depth: 9}}, superPacket(15, 4)},
		"corrupted": {topology.Impairment{Delay: time.Hour, Corrupt: topology.Corrupt{Probability: 1}}, superPacket(15, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.settings)
			small, err := newPool(memory)
			must(t, err)
			*b.egress.memory = *small
			n := b.k.lines[0]
			for n.stats.Counts.LostOverrun == 0 {
				b.arrive(t, c.raw)
			}
			buffers := map[*buffer]bool{}
			kept := 0
			seen := map[*heldFrame]bool{}
			n.queue.merge(math.MaxInt64)
			for _, r := range n.queue.upcoming() {
				buffers[r.held.buffer], seen[r.held] = true, true
				kept += int(unsafe.Sizeof(r))
			}
			kept += len(buffers)*bufferLen + len(seen)*int(unsafe.Sizeof(heldFrame{}))
			if kept > memory || kept < memory/3 {
				t.Errorf("%d bytes are kept, the budget is %d", kept, memory)
			}
			b.egress.flush(n, false)
			if b.egress.memory.left != memory {
				t.Errorf("%d bytes of %d came back", b.egress.memory.left, memory)
			}
		})
	}
}

// An interface that takes no more holds frames up, it does not lose them.
func TestFullInterface(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	n := b.k.lines[0]
	must(t, unix.SetsockoptInt(b.k.ports[1].fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 100<<10))
	for range 20 {
		b.arrive(t, superPacket(5, 4096))
	}
	taken := 0
	for tries := 0; !n.queue.empty(); tries++ {
		before, began := n.stats.Counts.Delivered, b.egress.now()
		b.egress.send(n)
		if n.stats.Counts.Delivered > before {
			continue
		}
		if n.release < began+retryAfter || b.egress.departures.Len() != 1 {
			t.Fatal("no later try is scheduled")
		}
		got, _ := b.left(t)
		if taken += len(got); len(got) == 0 || tries > 1000 {
			t.Fatal("no progress")
		}
	}
	got, _ := b.left(t)
	if m := n.measure(false); taken+len(got) != 100 || m.Delivered != 100 || taken == 0 {
		t.Errorf("%d and %d packets left; measured %+v", taken, len(got), m)
	}
}

// Neither forwarding allocates, whatever is asked for, nor recording, nor a tap.
func TestForwardingDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings topology.Impairment
		told     bool // recorded and tapped
	}{
		{"rate and loss", topology.Impairment{Rate: 1e9, Loss: topology.Loss{Rate: 0.01}}, false},
		{"everything", topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Millisecond, Distribution: topology.Normal},
			Rate: 1e9, ECN: topology.ECN{Max: 1000}, Loss: topology.Loss{Rate: 0.1, Burst: 3}, Duplicate: 0.1,
			Reorder: topology.Reorder{Probability: 0.1, Depth: 5}, Corrupt: topology.Corrupt{Probability: 0.1, Bits: 3},
			Faults: []topology.Fault{{Match: topology.Match{Every: 7}, Action: topology.Double}}}, false},
		{"nothing, recorded and tapped", topology.Impairment{}, true},
	} {
		b := newBench(t, c.settings)
		if c.told {
			b.record(logFile(t), 100)
			b.listen(1<<20, 0)
		}
		buf := make([]byte, frame.MaxLen)
		long, short := roceSuperPacket(15, 4096, 2), roceSuperPacket(1, 100, 2)
		round := func() {
			for _, raw := range [][]byte{long, short} {
				_, err := unix.Write(b.ends[0], raw)
				if err != nil {
					t.Fatal(err)
				}
				b.ingress.receive(b.k.ports[0])
				b.shift(10 * time.Millisecond)
				for n := b.k.lines[0]; !n.queue.empty(); {
					b.egress.send(n)
				}
				for {
					if _, err := unix.Read(b.ends[1], buf); err != nil {
						break
					}
				}
			}
		}
		for range 100 {
			round() // pools, queues and histograms grow to their size
		}
		// The count is of the whole process, and another test's goroutines may be on
		// their last steps; a histogram takes a page at times. Allocations of the
		// path itself show every time.
		least := testing.AllocsPerRun(50, round)
		for range 4 {
			least = min(least, testing.AllocsPerRun(50, round))
		}
		if least > 0 {
			t.Errorf("%s: %v allocations per round", c.name, least)
		}
	}
}

func TestDeparturesAreInOrder(t *testing.T) {
	var d departures
	lines := make([]*line, 100)
	for i := range lines {
		lines[i] = newLine(nil, 0, nil)
		lines[i].release = time.Duration(i * 37 % 100)
		d.Put(lines[i])
	}
	lines[10].release = 1000
	d.Put(lines[10])
	d.Remove(lines[20])
	d.Remove(lines[20]) // which changes nothing
	last := time.Duration(-1)
	for n := 99; n > 0; n-- {
		if d.First().release < last || d.Len() != n {
			t.Fatalf("%v after %v, %d left", d.First().release, last, d.Len())
		}
		last = d.First().release
		d.Remove(d.First())
	}
	if last != 1000 {
		t.Errorf("last is %v, want the one that was put off", last)
	}
}

func TestWakeUpAdapts(t *testing.T) {
	l := &poller{early: maxEarly / 2}
	for range 1000 {
		l.adapt(5 * time.Microsecond)
	}
	if l.early < 4*time.Microsecond || l.early > 7*time.Microsecond {
		t.Errorf("early by %v after wake-ups that are 5 us late", l.early)
	}
	for range 100 {
		l.adapt(time.Second)
	}
	if l.early != maxEarly {
		t.Errorf("early by %v, want the most", l.early)
	}
}
