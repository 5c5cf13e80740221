package simulate

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/allocations"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A decoder is a receiver that holds what it is handed by reference against what a wire
// would have carried.
type decoder struct {
	t *testing.T
	provider.Receiver
	sealer   roce.Sealer
	verifier roce.Verifier
	opcodes  map[roce.Opcode]bool
}

func (d *decoder) Receive(packets []roce.Received) {
	for i := range packets {
		p := &packets[i]
		sent := roce.Flow{Local: p.Flow.Remote, Remote: p.Flow.Local, SourcePort: p.Flow.SourcePort}
		b := d.sealer.AppendIP(nil, &sent, 0, &roce.Packet{Header: p.Header, Payload: [][]byte{p.Payload}, Class: p.Class})
		var got roce.Received
		if err := d.verifier.DecodeIP(b, &got); err != nil {
			d.t.Fatal(err)
		}
		if got.Flow != p.Flow || got.Class != p.Class || string(got.Payload) != string(p.Payload) {
			d.t.Fatalf("another flow, class or payload: %+v, not %+v", p.Flow, got.Flow)
		}
		if diff := cmp.Diff(got.Header, p.Header); diff != "" {
			d.t.Fatalf("header (-decoded +handed over):\n%s", diff)
		}
		d.opcodes[p.Header.Opcode] = true
	}
	d.Receiver.Receive(packets)
}

// Packets that are handed over by reference are those that a wire would have carried,
// whatever they are.
func TestByReference(t *testing.T) {
	l := up(t, pair("delay: 100us, loss: 1%, duplicate: 1%, rate: 10gbit"))
	opcodes := map[roce.Opcode]bool{}
	for _, name := range []string{"a", "b"} {
		p := l.network.byName[name].life.port
		p.receiver = &decoder{t: t, Receiver: p.receiver, opcodes: opcodes}
	}
	for _, operation := range []topology.Operation{topology.Send, topology.Write, topology.Read} {
		for _, size := range []uint64{0, 1, 4096, 100_000} {
			if operation == topology.Read && size == 0 {
				continue
			}
			w := l.begin(t, "a", "b", workload.Spec{Operation: operation, Size: size, Depth: 4, Count: 200, Verify: true})
			if r := w.end(t); w.err != nil || r.Errors > 0 {
				t.Errorf("%s of %d: %+v, %v", operation, size, r, w.err)
			}
			l.Unserve("b", "ab", 0, func(found workload.ServerResult, err error) {
				if err != nil || found.Mismatches > 0 {
					t.Errorf("%s of %d: %+v, %v", operation, size, found, err)
				}
			})
			l.clock.Run(time.Second)
		}
	}
	if len(opcodes) < 14 {
		t.Errorf("%d opcodes: %v", len(opcodes), opcodes)
	}
}

// A packet costs no memory on its way, nor do the adapters' answers to it: what is left
// is for messages, of 16 packets each.
func TestPacketsAllocateNothing(t *testing.T) {
	l := up(t, pair("delay: 100us, rate: 10gbit"))
	l.begin(t, "a", "b", workload.Spec{Operation: topology.Write, Size: 64 << 10, Depth: 16, Duration: time.Hour})
	l.clock.Run(50 * time.Millisecond)
	wire := l.network.links[0].wires[0]
	before := wire.Statistics().Packets
	const runs = 10
	allocated := allocations.PerRun(t, runs, func() { l.clock.Run(10 * time.Millisecond) })
	packets := float64(wire.Statistics().Packets-before) / (runs + 1)
	if perPacket := allocated / packets; packets < 2000 || perPacket > 0.25 {
		t.Errorf("%.3f allocations for each of %.0f packets", perPacket, packets)
	}
}

// A simulated node has the counters of one in a lab, by their names.
func TestCounterNames(t *testing.T) {
	file := strings.Replace(pair("mtu: 4200"), "a: {}", "a: {adapter: {congestion: dcqcn, dcqcn: {slow_restart: true}, pfc: [0, 1, 2, 3, 4, 5, 6, 7]}}", 1) // some are of congestion control and of PFC
	device := up(t, file).device("a")
	got := slices.Concat(slices.Collect(maps.Keys(device.Counters().Map())), slices.Collect(maps.Keys(device.TransportCounters())))
	want := topology.Counters()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
