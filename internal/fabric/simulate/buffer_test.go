package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

// This file tests what a shared buffer, and the pauses that it asks for, do to packets.

// buffered is a switch s, or a router, with a buffer between the hosts a, b and c, at 10 Gb/s and 1 us. Adapters have a packet
// when it arrives.
func buffered(kind, buffer, adapter, rest string) string {
	return fmt.Sprintf(`
name: buffered
seed: 1
topology:
  defaults: {adapter: {turnaround: 0us, dscp: 26, %s}, link: {rate: 10gbit, delay: 1us, mtu: 4600}}
  nodes: {s: {kind: %s, buffer: %s}, a: , b: , c: }
  links: [{endpoints: ["a:eth0", "s:a"]}, {endpoints: ["b:eth0", "s:b"]}, {endpoints: ["c:eth0", "s:c"]}]
`, adapter, kind, buffer) + rest
}

// nothing is a receiver that takes no notice.
type nothing struct{}

func (nothing) Receive([]roce.Received) {}

// arrivalsAt has what is for a host be noted, and returns where.
func arrivalsAt(l *lab, name string) *arrivals {
	got := &arrivals{lab: l}
	l.network.byName[name].life.port.receiver = got
	return got
}

// send has a host send n packets of a class at once, whatever is paused.
func (l *lab) send(t *testing.T, from, to string, n int, class uint8) {
	t.Helper()
	path, _ := l.topo.Path(from, to)
	packet := roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{make([]byte, 1024)}, Class: class}
	flow := roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}
	if err := l.network.byName[from].life.port.Send(flow, slices.Repeat([]roce.Packet{packet}, n)); err != nil {
		t.Fatal(err)
	}
}

// askToPause has a host's neighbour ask it to pause, waits until the host hears of it, and returns when that is.
func (l *lab) askToPause(link int, quanta uint16) time.Duration {
	f := mmu.PFC{Enabled: 1 << 3}
	f.Quanta[3] = quanta
	w := l.network.links[link].wires[1]
	host := l.network.links[link].nodes[0].buffer()
	heard := func() uint64 {
		counted := map[string]uint64{}
		host.CountPauses(counted, 3)
		return counted[topology.RxPause.Of(3)]
	}
	before := heard()
	w.Enter(l.network.shards[0].frames.pause(&f))
	for heard() == before {
		l.clock.Step()
	}
	return l.clock.Now()
}

// Packets wait in the buffer while the wire is busy, to the nanosecond, and not on the wire, where no pause and no schedule would reach
// them.
func TestBusyWire(t *testing.T) {
	const size, takes = 1106, 885 * time.Nanosecond // on the wire, at 10 Gb/s
	l := up(t, buffered("switch", "hpcc", "pfc: [3]", ""))
	l.send(t, "a", "b", 3, data26)
	b := l.network.plane.Buffer("a")
	for _, c := range []struct {
		at    time.Duration
		waits int64
	}{{0, 2}, {takes - 1, 2}, {takes, 1}, {2*takes - 1, 1}, {2 * takes, 0}} {
		l.clock.Run(c.at - l.clock.Now())
		if got := b.Queued(); got != c.waits*size {
			t.Errorf("after %v %d bytes wait, want %d packets of %d", c.at, got, c.waits, size)
		}
	}
}

// A host that is asked to pause holds back packets of that class for the quanta at its link's rate, to the nanosecond, and
// no others. 0 quanta end the pause. One without pfc goes on.
func TestPauseOfHost(t *testing.T) {
	const ofOne = 2*time.Microsecond + 2*885*time.Nanosecond // 1,106 bytes on each of two wires, at 10 Gb/s
	const quanta = 1000
	pause := mmu.QuantaTime(quanta, 10e9)
	if pause != 51200*time.Nanosecond {
		t.Fatalf("%d quanta take %v", quanta, pause)
	}
	for _, c := range []struct {
		name, adapter string
		class         uint8
		ends          time.Duration // when 0 quanta follow; 0: never
		waits         time.Duration
	}{
		{"class 3", "pfc: [3]", data26, 0, pause},
		{"class 3, ended", "pfc: [3]", data26, 20 * time.Microsecond, 20 * time.Microsecond},
		{"class 0", "pfc: [3]", 0, 0, 0},
		{"class 6", "pfc: [3]", 48 << 2, 0, 0},
		{"class 3 without pfc", "", data26, 0, 0},
	} {
		l := up(t, buffered("switch", "hpcc", c.adapter, ""))
		got := arrivalsAt(l, "b")
		heard := l.askToPause(0, quanta)
		l.send(t, "a", "b", 1, c.class)
		if c.ends > 0 {
			l.clock.Run(c.ends - l.clock.Now()) // the first frame began at 0
			l.askToPause(0, 0)
		}
		l.clock.Run(time.Second)
		if want := heard + c.waits + ofOne; len(got.times) != 1 || (got.times[0]-want).Abs() > 2 {
			t.Errorf("%s: arrives at %v, want %v", c.name, got.times, want)
		}
		counted := map[string]uint64{}
		l.network.plane.Buffer("a").CountPauses(counted, 3)
		if counted[topology.RxPause.Of(3)] == 0 {
			t.Errorf("%s: no PFC frame is counted", c.name)
		}
	}
}

// classAt returns what befell a class at an interface.
func classAt(r *report.Run, node, face string, class int) (found report.BufferClass) {
	for _, b := range r.Buffers {
		for _, p := range b.Ports {
			for _, c := range p.Classes {
				if b.Node == node && p.Interface == face && c.Class == class {
					found = c
				}
			}
		}
	}
	return found
}

// dropped counts, by their reasons, packets that found no room in a node.
func dropped(r *report.Run, node string) map[string]uint64 {
	sum := map[string]uint64{}
	for _, b := range r.Buffers {
		if b.Node != node {
			continue
		}
		for _, p := range b.Ports {
			for _, c := range p.Classes {
				for reason, n := range c.Dropped {
					sum[reason] += n
				}
			}
		}
	}
	return sum
}

const twoToOne = `
workloads:
  - {name: ab, from: a, to: b, operation: write, size: 1MiB, depth: 8, count: 32}
  - {name: cb, from: c, to: b, operation: write, size: 1MiB, depth: 8, count: 32}
`

// Two hosts that send to one lose nothing where they obey pauses, in a switch as in a router, and share its line. Where they do
// not, what does not fit the headroom is dropped.
func TestPausesOfBuffer(t *testing.T) {
	const small = "{size: 512KiB, xoff: 64KiB}"
	for _, kind := range []string{"switch", "router"} {
		r := run(t, parsed(t, buffered(kind, small, "congestion: none, pfc: [3]", twoToOne)))
		if got := dropped(r, "s"); len(got) > 0 {
			t.Errorf("%s: dropped %v", kind, got)
		}
		rate, jain, _ := judgeIncast(r)
		if rate < 0.98*ideal || jain < 0.999 {
			t.Errorf("%s: %.2f %% of the ideal, Jain %.4f", kind, 100*rate/ideal, jain)
		}
		for _, from := range []string{"a", "c"} {
			asked, heard := classAt(r, "s", from, 3), classAt(r, from, "eth0", 3)
			if asked.TxPauses == 0 || heard.RxPauses != asked.TxPauses || heard.RxPauseUS < asked.TxPauseUS/2 || asked.HeadroomPeak == 0 {
				t.Errorf("%s: %s was to pause %d times for %v us, and did %d times for %v us, with %d bytes of headroom in use",
					kind, from, asked.TxPauses, asked.TxPauseUS, heard.RxPauses, heard.RxPauseUS, asked.HeadroomPeak)
			}
		}
		r = run(t, parsed(t, buffered(kind, small, "congestion: none", twoToOne)))
		if got := dropped(r, "s"); got["headroom"] == 0 || len(got) != 1 {
			t.Errorf("%s without pfc: dropped %v, want some for want of headroom", kind, got)
		}
	}
}

// An adapter that takes packets at a rate less than that of its line has its switch pause, and that the sender, so that nothing
// is lost and the throughput is that rate. Without pfc it drops what does not fit its receive buffer.
func TestReceiveRate(t *testing.T) {
	file := buffered("switch", "{size: 1MiB, xoff: 64KiB}", "congestion: none, pfc: [3]", `
workloads: [{name: ab, from: a, to: b, operation: write, size: 1MiB, depth: 8, count: 64}]
`)
	slow := strings.Replace(file, "b: ,", "b: {adapter: {receive_rate: 4gbit, receive_buffer: 256KiB}},", 1)
	r := run(t, parsed(t, slow))
	for _, node := range []string{"a", "b", "s"} {
		if got := dropped(r, node); len(got) > 0 {
			t.Errorf("%s dropped %v", node, got)
		}
	}
	want := 4 * 4096 / 4178.0
	if got := r.Workloads[0].Gbps; got < 0.99*want || got > 1.01*want {
		t.Errorf("%.4f Gb/s, want %.4f", got, want)
	}
	if asked, heard := classAt(r, "b", "eth0", 3), classAt(r, "s", "b", 3); asked.TxPauses == 0 || heard.RxPauses != asked.TxPauses {
		t.Errorf("b asked for %d pauses, its switch heard %d", asked.TxPauses, heard.RxPauses)
	}
	if asked, heard := classAt(r, "s", "a", 3), classAt(r, "a", "eth0", 3); asked.TxPauses == 0 || heard.RxPauses != asked.TxPauses {
		t.Errorf("the switch asked a for %d pauses, which heard %d", asked.TxPauses, heard.RxPauses)
	}
	r = run(t, parsed(t, strings.Replace(slow, "receive_buffer: 256KiB", "receive_buffer: 256KiB, pfc: []", 1)))
	for _, n := range r.Nodes {
		if lost := n.Transport["receive_overflow"]; (lost > 0) != (n.Name == "b") {
			t.Errorf("without pfc: the adapter of %s dropped %d packets", n.Name, lost)
		}
	}
	if w, pauses := r.Workloads[0], classAt(r, "b", "eth0", 3).TxPauses; w.Messages != 64 || w.Gbps > want || pauses > 0 {
		t.Errorf("without pfc: %d messages at %.4f Gb/s, %d PFC frames", w.Messages, w.Gbps, pauses)
	}
}

// A port marks by what the timeline sets, and by the preset once nothing is set.
func TestMarksChange(t *testing.T) {
	far := "{min: 1MiB, max: 2MiB}"
	for set, want := range map[string]bool{far: false, "{min: 10KiB, max: 20KiB}": true} {
		text := strings.Replace(incast(4, "congestion: dcqcn, pfc: [3]", "ecn: "+far, "operation: write, size: 1MiB, depth: 8, count: 8"),
			"{kind: switch, port: {queue: 512KiB,", "{kind: switch, buffer: {size: 2MiB, xoff: 200KiB}, port: {", 1) +
			"timeline: [{at: 1ms, link: \"s:r\", from: s, set: {ecn: " + set + "}}]\n"
		if marked := classAt(run(t, parsed(t, text)), "s", "r", 3).Marked > 0; marked != want {
			t.Errorf("%s: marked %v, want %v", set, marked, want)
		}
	}
}

// It needs no buffer beside the host, no pfc, and no rate of its link.
func TestReceiveRateAlone(t *testing.T) {
	file := strings.Replace(pair("mtu: 4200"), "b: {}", "b: {adapter: {receive_rate: 1gbit}}", 1) +
		"workloads: [{name: ab, from: a, to: b, operation: write, size: 64KiB, depth: 4, count: 200}]\n"
	w := run(t, parsed(t, file)).Workloads[0]
	if most := 4096 / 4178.0; w.Errors > 0 || w.Gbps > most || w.Gbps < 0.97*most {
		t.Errorf("%d errors, %.4f Gb/s, want %.4f or a little less", w.Errors, w.Gbps, most)
	}
}

// A setting that makes no sense is told with the node whose it is.
func TestBadBuffer(t *testing.T) {
	_, err := newLab(parsed(t, buffered("switch", "{size: 100KiB, reserve: 64KiB}", "", "")), Options{}, unsharded)
	if want := "node s: buffer: mmu: reserves and headroom need 238332 bytes of a buffer of 102400"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A host with interfaces to two switches pauses each link by itself, and two runs of a seed give the same report.
func TestTwoSwitches(t *testing.T) {
	text := `
name: two
seed: 3
series: 50us
topology:
  defaults: {adapter: {pfc: [3], congestion: dcqcn, turnaround: 500ns}, link: {rate: 10gbit, delay: 1us, mtu: 4600}}
  nodes: {s: {kind: switch, buffer: {size: 512KiB, xoff: 32KiB}}, t: {kind: switch, buffer: hpcc}, h: , a: , b: , c: }
  links:
    - {endpoints: ["h:eth0", "s:h"]}
    - {endpoints: ["h:eth1", "t:h"]}
    - {endpoints: ["a:eth0", "s:a"]}
    - {endpoints: ["b:eth0", "s:b"]}
    - {endpoints: ["c:eth0", "t:c"]}
workloads:
  - {name: ha, from: h, to: a, operation: write, size: 1MiB, depth: 4, count: 16}
  - {name: ba, from: b, to: a, operation: write, size: 1MiB, depth: 4, count: 16}
  - {name: hc, from: h, to: c, operation: write, size: 1MiB, depth: 4, count: 16}
timeline: [{at: 2ms, storm: c, for: 3ms}]
`
	r := run(t, parsed(t, text))
	if diff := cmp.Diff(lines(t, r), lines(t, run(t, parsed(t, text)))); diff != "" {
		t.Errorf("again (-first +second):\n%s", diff)
	}
	for _, w := range r.Workloads {
		if w.Errors > 0 || w.Messages != 16 {
			t.Errorf("%s: %d messages, %d errors", w.Name, w.Messages, w.Errors)
		}
	}
	for face, sw := range map[string]string{"eth0": "s", "eth1": "t"} {
		asked, heard := classAt(r, sw, "h", 3), classAt(r, "h", face, 3)
		if asked.Packets == 0 || heard.Packets == 0 || heard.RxPauses != asked.TxPauses {
			t.Errorf("%s: %s sent %d PFC frames and h heard %d", face, sw, asked.TxPauses, heard.RxPauses)
		}
	}
	if n := classAt(r, "h", "eth0", 3).RxPauses; n == 0 {
		t.Error("nothing paused h's line to s")
	}
}

// idle counts frames that are not in use.
func (l *lab) idle() (n int) {
	for f := l.network.shards[0].frames.idle; f != nil; f = f.next {
		n++
	}
	return n
}

// Frames that wait come back when their link goes down, and those that a node's pause holds when the node starts again:
// nothing hangs, and what follows arrives.
func TestFramesComeBack(t *testing.T) {
	const n = 50
	for _, event := range []string{"none", "link down", "node restarted", "receiver restarted"} {
		l := up(t, buffered("switch", "hpcc", "pfc: [3]", ""))
		for _, name := range []string{"a", "b"} {
			l.network.byName[name].life.port.receiver = nothing{}
		}
		l.send(t, "a", "b", n, data26)
		l.clock.Run(20 * time.Microsecond) // then a has sent half of them
		begun := l.network.links[0].wires[0].Statistics().Packets
		if begun < n/4 || begun > n/2 {
			t.Fatalf("%d of %d packets have left", begun, n)
		}
		switch event {
		case "link down":
			l.connect(l.network.links[1].spec, false)
		case "node restarted", "receiver restarted":
			name := map[string]string{"node restarted": "a", "receiver restarted": "b"}[event]
			l.askToPause(0, 60000) // 3 ms
			l.clock.Run(5 * time.Microsecond)
			node := l.network.byName[name]
			node.end()
			l.clock.Run(time.Microsecond)
			if err := node.start(1); err != nil {
				t.Fatal(err)
			}
		}
		l.clock.Run(time.Second)
		if got := l.idle(); got < n || got > n+1 {
			t.Errorf("%s: %d of %d frames have come back", event, got, n)
		}
		for name, node := range l.network.byName {
			if held := node.buffer().Queued(); held != 0 {
				t.Errorf("%s: %s holds %d bytes", event, name, held)
			}
		}
		l.connect(l.network.links[1].spec, true)
		l.network.changed()
		got := arrivalsAt(l, "b")
		l.send(t, "a", "b", n, data26)
		l.clock.Run(time.Second)
		if len(got.times) != n {
			t.Errorf("%s: %d of %d packets arrive then", event, len(got.times), n)
		}
	}
}

// A packet is with the adapter its turnaround after its arrival, and up to half of that more.
func TestTurnaround(t *testing.T) {
	for _, set := range []time.Duration{0, 500 * time.Nanosecond, 40 * time.Microsecond} {
		file := strings.Replace(buffered("switch", "hpcc", "", ""), "turnaround: 0us", fmt.Sprintf("turnaround: %dns", set), 1)
		l := up(t, file)
		got := arrivalsAt(l, "b")
		const ofOne = 2*time.Microsecond + 2*885*time.Nanosecond
		var least, most time.Duration = time.Hour, 0
		for i := range 100 {
			begun := l.clock.Now()
			l.send(t, "a", "b", 1, data26)
			l.clock.Run(time.Millisecond)
			if len(got.times) != i+1 {
				t.Fatalf("%d of %d packets have arrived", len(got.times), i+1)
			}
			took := got.times[i] - begun - ofOne
			least, most = min(least, took), max(most, took)
		}
		if least < set-2 || most > set+set/2+2 || least > set+set/10+2 || most < set+set*4/10-2 {
			t.Errorf("turnaround %v: takes %v to %v", set, least, most)
		}
	}
}

// TestForwardingAllocatesNothing: neither do packets on wires and in buffers, nor the timers and pauses of ports.
func TestForwardingAllocatesNothing(t *testing.T) {
	l := up(t, buffered("switch", "{size: 12MiB}", "pfc: [3]", ""))
	l.network.byName["c"].life.port.receiver = nothing{}
	path, _ := l.topo.Path("a", "c")
	packets := slices.Repeat([]roce.Packet{{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{make([]byte, 1024)}, Class: 26 << 2}}, 50)
	flow := roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}
	port := l.network.byName["a"].life.port
	run := func() {
		if err := port.Send(flow, packets); err != nil {
			t.Fatal(err)
		}
		l.clock.Run(time.Millisecond)
	}
	run()
	if n := testing.AllocsPerRun(20, run); n > 2 {
		t.Errorf("%v allocations for %d packets", n, len(packets))
	}
}
