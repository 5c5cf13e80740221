package linkem

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

const us = time.Microsecond

// A fabricBench is a loop without a thread that carries a switch s with a packet buffer and the hosts a, b and c at it. Frames
// come and leave by Unix datagram sockets, one for each host.
type fabricBench struct {
	*loop
	sockets map[string]int // by the name of a link and its end: what the node there has
	began   time.Duration  // instants of the test count from it
}

// threeHosts is the file of a fabricBench. Packets of class 3 are lossless.
const threeHosts = `
name: three
seed: 1
topology:
  defaults: {adapter: {pfc: [3]}, link: {rate: 1gbit, delay: 40us, mtu: 4200}}
  nodes: {s: {kind: switch, buffer: %s}, a: , b: , c: }
  links:
    - {endpoints: [a:eth0, s:a]}
    - {endpoints: [b:eth0, s:b]}
    - {endpoints: [c:eth0, s:c]}
%s`

func newFabricBench(tb testing.TB, buffer, rest string) *fabricBench {
	tb.Helper()
	topo, err := topology.Parse("three.yaml", fmt.Appendf(nil, threeHosts, buffer, rest))
	must(tb, err)
	return newFabricBenchOf(tb, topo)
}

// newFabricBenchOf returns one of another topology, whose links all end at buffers.
func newFabricBenchOf(tb testing.TB, topo *topology.Topology) *fabricBench {
	tb.Helper()
	l, err := newLoop(1)
	must(tb, err)
	tb.Cleanup(func() {
		unix.Close(l.poller.fd)
		unix.Close(l.commands.eventfd)
	})
	d := &Fabric{Topology: topo, ReceiveBuffers: map[string]int64{}}
	for i := range topo.Nodes {
		d.ReceiveBuffers[topo.Nodes[i].Name] = 1 << 20
	}
	for i := range topo.Links {
		d.Addresses = append(d.Addresses, [2]MAC{{2, 0, 0, 0, byte(i), 0}, {2, 0, 0, 0, byte(i), 1}})
	}
	l.fabric, err = newFabric(d, l)
	must(tb, err)
	b := &fabricBench{loop: l, sockets: map[string]int{}}
	for i := range topo.Links {
		spec := &topo.Links[i]
		var ports [2]*port
		for end, e := range spec.Endpoints {
			if topo.FindNode(e.Node).Kind == topology.Switch {
				continue
			}
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			must(tb, err)
			must(tb, unix.SetsockoptInt(pair[1], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20))
			tb.Cleanup(func() {
				unix.Close(pair[0])
				unix.Close(pair[1])
			})
			b.sockets[fmt.Sprint(spec.Endpoints[0], " ", end)] = pair[0]
			ports[end] = &port{name: "lo", fd: pair[1]}
		}
		name := spec.Endpoints[0].String()
		must(tb, l.links.attach(Link{Name: name, Directions: spec.Directions}, ports))
		_, err = l.links.start(name)
		must(tb, err)
		must(tb, l.links.carry(carryParams{name, true}))
	}
	b.began = l.fabric.clock.Now() + time.Second // behind what real time brings during the test
	l.fabric.advance(b.began)
	return b
}

// hostMAC is the address of a host.
func hostMAC(name string) MAC { return MAC{2, 0, 0, 0, name[0] - 'a', 0} }

// toMAC is a UDP frame of n packets, each with so many bytes of payload, from one host to an address, of a traffic class.
func toMAC(from string, to MAC, class uint8, n, size int) []byte {
	raw := superPacket(n, size)
	if n == 1 {
		clear(raw[:frame.HeaderLen])
	}
	ethernet := raw[frame.HeaderLen:]
	copy(ethernet, to[:])
	src := hostMAC(from)
	copy(ethernet[6:], src[:])
	ethernet[15] = class
	binary.BigEndian.PutUint16(ethernet[16:], uint16(28+n*size))
	return raw
}

// arrive has a frame of a host arrive at an instant.
func (b *fabricBench) arrive(tb testing.TB, host string, raw []byte, at time.Duration) {
	tb.Helper()
	n := b.links.byName[host+":eth0"].lines[0]
	f, err := frame.Parse(raw)
	must(tb, err)
	copy(b.ingress.staging[0].bytes, raw)
	f, err = frame.Parse(b.ingress.staging[0].bytes[:len(raw)])
	must(tb, err)
	b.fabric.take(n, &f, 0, b.began+at)
}

// left returns when packets left for a host until an instant, in order, and clears them.
func (b *fabricBench) left(host string) (at []time.Duration) {
	n := b.links.byName[host+":eth0"].lines[1]
	for _, p := range n.departed {
		at = append(at, p.transit.Departs-b.began)
	}
	return at
}

// send sends all that has left, and returns the packets that a host got.
func (b *fabricBench) send(tb testing.TB, host string) (packets [][]byte) {
	tb.Helper()
	return b.sendTo(tb, host+":eth0 0")
}

// sendTo is send to the node at the end of a link.
func (b *fabricBench) sendTo(tb testing.TB, end string) (packets [][]byte) {
	tb.Helper()
	for _, n := range b.fabric.exits {
		if b.egress.sendDepartures(n) {
			tb.Fatal("a socket is full")
		}
	}
	b.fabric.exits = b.fabric.exits[:0]
	buf := make([]byte, frame.MaxLen)
	for {
		n, err := unix.Read(b.sockets[end], buf)
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

// sharedMemory returns how much memory is in buffers that lines keep for short frames.
func (b *fabricBench) sharedMemory() (size int) {
	for _, k := range b.links.byName {
		for _, n := range k.lines {
			if n.shared != nil {
				size += bufferLen
			}
		}
	}
	return size
}

func (b *fabricBench) advance(to time.Duration) { b.fabric.advance(b.began + to) }

// flowOf is a flow of UDP.
func flowOf(from, to string, port uint16) dataplane.Flow {
	return dataplane.Flow{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to), Port: port}
}

// wireTime returns how long a packet with so many bytes of UDP payload takes on a wire of 1 Gb/s.
func wireTime(payload int) time.Duration {
	return time.Duration(impair.WireBytes(42+payload)) * 8 * time.Nanosecond
}

// The packets of a frame cross two wires, each at its rate and with its delay, and leave at those very instants, however late
// the engine looks. Nobody gets them but the one that they are for. They are sent as the frame that they were.
func TestFabricForwards(t *testing.T) {
	b := newFabricBench(t, "hpcc", "")
	before := b.egress.memory.left
	const n, size = 5, 1000
	b.arrive(t, "a", toMAC("a", hostMAC("c"), 26<<2, n, size), 7*us)
	b.advance(10 * time.Millisecond)
	each := wireTime(size)
	var want []time.Duration
	for i := range n {
		want = append(want, 7*us+time.Duration(i+2)*each+80*us)
	}
	if got := b.left("c"); !slices.Equal(got, want) {
		t.Errorf("packets leave at %v, want %v", got, want)
	}
	if other := len(b.left("a")) + len(b.left("b")); other != 0 {
		t.Errorf("%d packets go elsewhere", other)
	}
	got := b.send(t, "c")
	if len(got) != n || got[4][len(got[4])-1] != 4 {
		t.Errorf("%d packets arrive", len(got))
	}
	before -= b.sharedMemory()
	if b.egress.memory.left != before {
		t.Errorf("%d bytes of memory are left, were %d", b.egress.memory.left, before)
	}
}

// A switch sends by all other ports what is for a station that it does not know, or for all. It learns where others are, and
// keeps to a link what is for the link alone.
func TestFabricForwardsLikeASwitch(t *testing.T) {
	b := newFabricBench(t, "hpcc", "")
	stranger := MAC{2, 9, 9, 9, 9, 9}
	count := func() (n [3]int) {
		for i, host := range []string{"a", "b", "c"} {
			n[i] = len(b.send(t, host))
		}
		return n
	}
	at := time.Duration(0)
	step := func(what, from string, to MAC, source MAC, want [3]int) {
		t.Helper()
		raw := toMAC(from, to, 0, 1, 100)
		copy(raw[frame.HeaderLen+6:], source[:])
		b.arrive(t, from, raw, at)
		at += time.Millisecond
		b.advance(at)
		if got := count(); got != want {
			t.Errorf("%s: a, b and c get %v, want %v", what, got, want)
		}
	}
	step("broadcast", "a", MAC{255, 255, 255, 255, 255, 255}, hostMAC("a"), [3]int{0, 1, 1})
	step("unknown", "a", stranger, hostMAC("a"), [3]int{0, 1, 1})
	step("learning", "b", hostMAC("a"), stranger, [3]int{1, 0, 0})
	step("learned", "a", stranger, hostMAC("a"), [3]int{0, 1, 0})
	step("to its own port", "b", stranger, hostMAC("b"), [3]int{0, 0, 0})
	step("of the link", "a", MAC{1, 0x80, 0xc2, 0, 0, 0x0e}, hostMAC("a"), [3]int{0, 0, 0})
	step("a known station cannot be taken over", "b", stranger, hostMAC("c"), [3]int{0, 0, 0})
	step("which stays where it is", "a", hostMAC("c"), hostMAC("a"), [3]int{0, 0, 1})
	for i := range 3 * mostLearned {
		b.fabric.switches["s"].learn(MAC{2, 7, byte(i >> 16), byte(i >> 8), byte(i), 0}, 1)
	}
	if n := len(b.fabric.switches["s"].learned); n > mostLearned {
		t.Errorf("a switch has learned %d addresses", n)
	}
}

// Two hosts send faster than the third one's link. The switch asks both to pause, by frames that their adapters obey to the
// quantum and that the hosts get; nothing is lost, and the link is never idle.
func TestFabricPauses(t *testing.T) {
	b := newFabricBench(t, "{size: 1MiB, xoff: 32KiB}", "")
	const n, size = 40, 1000
	for _, from := range []string{"b", "c"} {
		for i := range 5 {
			b.arrive(t, from, toMAC(from, hostMAC("a"), 26<<2, n, size), time.Duration(i)*us)
		}
	}
	b.advance(100 * time.Millisecond)
	left := b.left("a")
	if len(left) != 400 {
		t.Fatalf("%d packets leave, want 400", len(left))
	}
	first := 2*wireTime(size) + 80*us
	if want := first + 399*wireTime(size); left[0] != first || left[399] != want {
		t.Errorf("packets leave from %v to %v, want %v to %v", left[0], left[399], first, want)
	}
	figures := b.fabric.figures()
	for _, buffer := range figures.Buffers {
		for _, p := range buffer.Ports {
			for _, c := range p.Classes {
				if c.Drops() > 0 {
					t.Errorf("%s:%s drops %v", buffer.Node, p.Interface, c.Dropped)
				}
				if sender := buffer.Node == "b" || buffer.Node == "c"; sender && c.Class == 3 && (c.RxTransitions == 0 || c.RxPauseUS < 1000) {
					t.Errorf("%s was paused %d times, for %v us", buffer.Node, c.RxTransitions, c.RxPauseUS)
				}
			}
		}
	}
	pauses := 0
	for _, p := range b.send(t, "b") {
		if pause, ok := pauseIn(p); ok && MAC(p) == flowControl {
			pauses++
			if want := (mmu.PFC{Enabled: 1 << 3, Quanta: pause.Quanta}); pause != want {
				t.Errorf("a pause of %+v", pause)
			}
		}
	}
	if pauses < 2 {
		t.Errorf("b gets %d PFC frames", pauses)
	}
	b.fabric.begin()
	if again := b.fabric.figures().Buffers; len(again[0].Ports[0].Classes) > 0 {
		t.Errorf("after begin: %+v", again[0].Ports[0].Classes)
	}
}

// A PFC frame that comes from a host is for the switch alone: it stops sending to that host for as long as the frame says, at
// the rate of the link.
func TestFabricObeysHosts(t *testing.T) {
	b := newFabricBench(t, "hpcc", "")
	pause := mmu.PFC{Enabled: 1 << 3}
	pause.Quanta[3] = 1000
	raw := append(make([]byte, frame.HeaderLen), flowControl[:]...)
	raw = append(raw, 2, 0, 0, 0, 0, 0, 0x88, 0x08)
	raw = pause.Append(raw)
	b.arrive(t, "a", raw, 0)
	heard := time.Duration(impair.WireBytes(60))*8*time.Nanosecond + 40*us
	b.arrive(t, "b", toMAC("b", hostMAC("a"), 26<<2, 1, 1000), 0)
	b.advance(time.Second)
	want := heard + mmu.QuantaTime(1000, 1e9) + wireTime(1000) + 40*us
	if got := b.left("a"); len(got) != 1 || got[0] != want {
		t.Errorf("a packet leaves at %v, want %v", got, want)
	}
	if n := len(b.left("b")) + len(b.left("c")); n != 0 {
		t.Errorf("%d PFC frames are forwarded", n)
	}
}

// Packets that are ECN-capable are marked as the queue says, each by itself, also where a frame has several.
func TestFabricMarks(t *testing.T) {
	b := newFabricBench(t, "hpcc", "")
	_, err := b.links.set(setParams{"a:eth0", 1, topology.Impairment{Rate: 1e9, Delay: 40 * us, ECN: topology.ECN{Min: 8000, Max: 8001, Probability: 1}}})
	must(t, err)
	b.fabric.advance(max(b.began, b.fabric.clock.Now()))
	const ect = 26<<2 | 2
	for _, from := range []string{"b", "c"} {
		b.arrive(t, from, toMAC(from, hostMAC("a"), ect, 20, 1000), b.fabric.clock.Now()-b.began)
	}
	b.advance(time.Minute)
	marked, headers := 0, 0
	for _, p := range b.send(t, "a") {
		headers++
		if p[15]&3 == 3 {
			marked++
		}
	}
	figures := b.fabric.figures()
	i := slices.IndexFunc(figures.Buffers[0].Ports[0].Classes, func(c bufferstats.Class) bool { return c.Class == 3 })
	if told := figures.Buffers[0].Ports[0].Classes[i].Marked; headers != 40 || marked < 10 || marked > 30 || uint64(marked) != told {
		t.Errorf("%d of %d packets are marked, the figures say %d", marked, headers, told)
	}
}

// A link that is down loses what is on it and what comes; up again, it carries.
func TestFabricLinkDown(t *testing.T) {
	b := newFabricBench(t, "hpcc", "")
	for at, up := range []bool{true, false, true} {
		must(t, b.links.carry(carryParams{"c:eth0", up}))
		begin := time.Duration(at) * time.Second
		b.arrive(t, "a", toMAC("a", hostMAC("c"), 0, 3, 500), begin)
		b.advance(begin + time.Second/2)
		want := 0
		if up {
			want = 3
		}
		if got := len(b.send(t, "c")); got != want {
			t.Errorf("up %v: %d packets arrive, want %d", up, got, want)
		}
	}
	if _, err := b.links.release("c:eth0"); err == nil || !strings.Contains(err.Error(), "link c:eth0 is at a switch with a buffer") {
		t.Errorf("a release: %v", err)
	}
	b.arrive(t, "a", toMAC("a", hostMAC("c"), 0, 3, 500), 3*time.Second)
	b.links.drain(b.links.byName["c:eth0"]) // as detach does
	b.advance(4 * time.Second)
	if got := len(b.send(t, "c")); got != 0 {
		t.Errorf("%d packets arrive at a port that is gone", got)
	}
}

// Nothing that a host sends harms the engine, and all memory comes back.
func TestFabricTakesAnything(t *testing.T) {
	b := newFabricBench(t, "{size: 300KiB}", "")
	r := rand.New(rand.NewPCG(1, 2))
	before := b.egress.memory.left
	at := time.Duration(0)
	for range 3000 {
		raw := toMAC("a", MAC{255, 255, 255, 255, 255, 255}, byte(r.Uint32()), 1+r.IntN(6), 1+r.IntN(1400))
		if r.IntN(2) == 0 {
			raw = raw[:frame.HeaderLen+14+r.IntN(len(raw)-frame.HeaderLen-14)]
		}
		for range r.IntN(8) {
			raw[r.IntN(min(len(raw), 80))] = byte(r.Uint32())
		}
		if r.IntN(20) == 0 {
			copy(raw[frame.HeaderLen+12:], []byte{0x88, 0x08, 1, 1, 0, byte(r.Uint32())})
		}
		if _, err := frame.Parse(raw); err != nil {
			continue
		}
		b.arrive(t, string("abc"[r.IntN(3)]), raw, at)
		at += time.Duration(r.IntN(20)) * us
		if r.IntN(10) == 0 {
			b.advance(at)
			b.send(t, "a")
			b.send(t, "b")
			b.send(t, "c")
		}
	}
	b.advance(at + 10*time.Second)
	for _, host := range []string{"a", "b", "c"} {
		b.send(t, host)
	}
	before -= b.sharedMemory()
	if b.egress.memory.left != before {
		t.Errorf("%d bytes of memory are left, want %d", b.egress.memory.left, before)
	}
}

// Without memory packets are lost and counted, and PFC frames are obeyed all the same.
func TestFabricWithoutMemory(t *testing.T) {
	b := newFabricBench(t, "{size: 1MiB, xoff: 32KiB}", "")
	for _, from := range []string{"b", "c"} {
		b.arrive(t, from, toMAC(from, hostMAC("a"), 26<<2, 60, 1000), 0)
	}
	left := b.egress.memory.left
	b.egress.memory.left = 0
	b.arrive(t, "b", toMAC("b", hostMAC("a"), 26<<2, 4, 1000), us)
	b.advance(50 * time.Millisecond)
	b.egress.memory.left += left
	if lost := b.links.byName["b:eth0"].lines[0].stats.Counts.LostOverrun; lost != 4 {
		t.Errorf("%d packets are counted as lost, want 4", lost)
	}
	if got := len(b.send(t, "a")); got != 120 {
		t.Errorf("%d packets arrive, want 120", got)
	}
}
