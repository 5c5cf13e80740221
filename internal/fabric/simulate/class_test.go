package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

// arrivals are the classes of packets that arrive, and when.
type arrivals struct {
	lab     *lab
	classes []uint8
	times   []time.Duration
}

func (a *arrivals) Receive(packets []roce.Received) {
	for i := range packets {
		a.classes = append(a.classes, packets[i].Class)
		a.times = append(a.times, a.lab.clock.Now())
	}
}

// burst sends n packets of a class at once, from a to b of a lab, and returns what arrives.
func burst(t *testing.T, l *lab, n int, class uint8) *arrivals {
	t.Helper()
	path, _ := l.topo.Path("a", "b")
	got := &arrivals{lab: l}
	l.network.byName["b"].life.port.receiver = got
	packet := roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{make([]byte, 1024)}, Class: class}
	flow := roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}
	if err := l.network.byName["a"].life.port.Send(flow, slices.Repeat([]roce.Packet{packet}, n)); err != nil {
		t.Fatal(err)
	}
	l.clock.Run(time.Second)
	return got
}

const data26 = 26<<2 | roce.ECT0

// A link marks packets that may be marked as its model says, counts them, and a packet that may
// not is treated as if the link marked none.
func TestMarks(t *testing.T) {
	const n = 100
	settings := topology.Impairment{Rate: 1e9, ECN: topology.ECN{Min: 16 << 10, Max: 64 << 10}}
	l := up(t, pair("rate: 1gbit, ecn: {min: 16KiB, max: 64KiB}"))
	got := burst(t, l, n, data26)
	model := impair.New(l.topo.Seed, "a:eth0", 0)
	model.Set(settings, 0)
	var want []uint8
	marked := uint64(0)
	for range n {
		class := uint8(data26)
		size := ethernetLen + ipv4Len + udpLen + roce.SendOnly.HeaderLen() + 1024 + icrcLen
		if v := model.Packet(&impair.Packet{Frame: size, ECT: true}, 0); v.Mark {
			class |= roce.CE
			marked++
		}
		want = append(want, class)
	}
	// The first 15 find too little in the queue, from the 61st on all are marked.
	if diff := cmp.Diff(want, got.classes); diff != "" || slices.Index(want, 26<<2|roce.CE) < 15 || marked < 40 || marked > 85 {
		t.Errorf("%d of %d marked, classes (-want +got):\n%s", marked, n, diff)
	}
	if counted := l.network.links[0].wires[0].Statistics().Marked; counted != marked {
		t.Errorf("%d packets are counted as marked, %d are", counted, marked)
	}

	for _, class := range []uint8{0, 26 << 2, roce.CE} {
		marks, plain := up(t, pair("rate: 1gbit, ecn: {min: 16KiB, max: 64KiB}")), up(t, pair("rate: 1gbit"))
		a, b := burst(t, marks, n, class), burst(t, plain, n, class)
		if !slices.Equal(a.classes, slices.Repeat([]uint8{class}, n)) || !slices.Equal(a.times, b.times) {
			t.Errorf("class %#x arrives as %#x at %v, without ecn at %v", class, a.classes, a.times, b.times)
		}
		if diff := cmp.Diff(plain.network.links[0].wires[0].Statistics(), marks.network.links[0].wires[0].Statistics()); diff != "" {
			t.Errorf("class %#x: counts (-without ecn +with):\n%s", class, diff)
		}
	}
}

// A copy of a packet has its class, and a packet some bits of which have flipped has it in its
// bytes, where it is marked.
func TestClassesOfFrames(t *testing.T) {
	for _, file := range []string{pair("mtu: 1500"), ipv6Pair} {
		l := up(t, file)
		path, _ := l.topo.Path("a", "b")
		var s frames
		f := s.get([][]byte{[]byte("payload!")}, true)
		f.way = &way{flow: roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}}
		f.header, f.class = roce.Header{Opcode: roce.SendOnly}, data26
		c := s.copy(f)
		if c.class != data26 {
			t.Errorf("the copy has class %#x", c.class)
		}
		f.flip(&l.network.shards[0].sealer, &impair.Flip{})
		f.class = 0 // it means nothing any more
		if !f.mayBeMarked() {
			t.Error("the bytes may not be marked")
		}
		f.mark()
		var r roce.Received
		if ok := l.network.byName["b"].life.port.decode(f, &r); !ok || r.Class != 26<<2|roce.CE || f.mayBeMarked() {
			t.Errorf("from %v: arrives %v as %#x", path.From.Address, ok, r.Class)
		}
	}
}
