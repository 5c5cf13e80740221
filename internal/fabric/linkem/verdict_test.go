package linkem

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// roceSuperPacket is a super-packet of n WRITE Middle to QP 17 of size bytes from
// their BTH on, with PSNs from 0 and a type of service.
func roceSuperPacket(n, size int, tos byte) []byte {
	b := superPacket(n, size)
	eth := b[frame.HeaderLen:]
	eth[15] = tos
	binary.BigEndian.PutUint16(eth[36:], roce.Port)
	for i := range n {
		bth := eth[42+i*size:]
		clear(bth[:12])
		bth[0], bth[7], bth[11] = byte(roce.WriteMiddle), 17, byte(i)
	}
	return b
}

// packets are the wire packets of a frame.
func packets(tb testing.TB, raw []byte) (all [][]byte) {
	tb.Helper()
	f, err := frame.Parse(bytes.Clone(raw))
	must(tb, err)
	for i := range f.Segments() {
		all = append(all, f.AppendPacket(nil, i))
	}
	return all
}

// verdicts returns the verdicts of the model of the bench's first direction on the
// packets of a super-packet.
func verdicts(tb testing.TB, settings topology.Impairment, raw []byte) (all []impair.Verdict) {
	tb.Helper()
	model := impair.New(1, "x", 0)
	model.Set(settings, 0)
	f, err := frame.Parse(raw)
	must(tb, err)
	at := f.Layers()
	for i := range f.Segments() {
		p := impair.Packet{Frame: f.Size(i), Payload: at.Payload, ECT: at.ECT}
		if at.RoCE {
			id, _ := impair.Identify(f.Message(i, at))
			p.RoCE = &id
		}
		all = append(all, model.Packet(&p, 0))
	}
	return all
}

// pass has a frame cross the bench and says what left.
func (b *bench) pass(t *testing.T, raw []byte) [][]byte {
	t.Helper()
	b.arrive(t, raw)
	b.shift(time.Minute)
	for n := b.k.lines[0]; !n.queue.empty(); {
		b.egress.send(n)
	}
	return b.wire(t)
}

func TestDuplicatesFollowTheirPackets(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Second, Duplicate: 1})
	raw := superPacket(5, 100)
	var want [][]byte
	for _, p := range packets(t, raw) {
		want = append(want, p, p)
	}
	if diff := cmp.Diff(want, b.pass(t, raw)); diff != "" {
		t.Errorf("what left (-want +got):\n%s", diff)
	}
	if m := b.k.lines[0].measure(false); m.Packets != 5 || m.Duplicated != 5 || m.Delivered != 10 {
		t.Errorf("measured %+v", m)
	}
}

// A packet that overtakes leaves its super-packet before those ahead of it.
func TestReorderedPacketsOvertake(t *testing.T) {
	settings := topology.Impairment{Delay: time.Second, Reorder: topology.Reorder{Probability: 0.3, Depth: 3}}
	b := newBench(t, settings)
	raw := superPacket(15, 100)
	order := numbers(0, 15)
	said := verdicts(t, settings, raw)
	slices.SortStableFunc(order, func(i, j byte) int { return int(said[i].Departs - said[j].Departs) })
	all := packets(t, raw)
	var want [][]byte
	early := uint64(0)
	for _, i := range order {
		want = append(want, all[i])
		if said[i].Overtakes > 0 {
			early++
		}
	}
	if diff := cmp.Diff(want, b.pass(t, raw)); diff != "" {
		t.Errorf("what left (-want +got):\n%s", diff)
	}
	if m := b.k.lines[0].measure(false); m.Reordered != early || early == 0 {
		t.Errorf("measured %+v, want %d reordered", m, early)
	}
}

// A packet that a fault postpones is overtaken, however many there are.
func TestPostponedPacketsLeaveLater(t *testing.T) {
	psn := topology.PSNs{First: 3, Last: 4}
	b := newBench(t, topology.Impairment{Faults: []topology.Fault{{Match: topology.Match{PSN: &psn}, Action: topology.Postpone, Delay: time.Hour}}})
	raw := roceSuperPacket(15, 100, 0)
	b.arrive(t, raw)
	n := b.k.lines[0]
	b.egress.send(n)
	all := packets(t, raw)
	if diff := cmp.Diff(append(all[:3:3], all[5:]...), b.wire(t)); diff != "" {
		t.Errorf("what left at once (-want +got):\n%s", diff)
	}
	b.shift(time.Hour)
	b.egress.send(n)
	if diff := cmp.Diff(all[3:5], b.wire(t)); diff != "" {
		t.Errorf("what left later (-want +got):\n%s", diff)
	}
	if m := n.measure(false); m.Faulted != 2 || m.Delivered != 15 {
		t.Errorf("measured %+v", m)
	}
}

// A packet whose bits flip leaves its super-packet, and is changed in these bits
// alone. Its checksum shows the change, unless it is a RoCEv2 packet: there only the
// ICRC shows it.
func TestCorruptedPackets(t *testing.T) {
	ipv6 := ipv6SuperPacket(15, 100)
	for _, c := range []struct {
		name  string
		raw   []byte
		tells bool
	}{
		{"UDP", superPacket(15, 100), true},
		{"RoCEv2", roceSuperPacket(15, 100, 0), false},
		{"RoCEv2 over IPv6", ipv6, false},
		{"a single packet", superPacket(1, 100), true},
		{"a single packet of RoCEv2", roceSuperPacket(1, 100, 0), false},
	} {
		settings := topology.Impairment{Corrupt: topology.Corrupt{Probability: 0.4, Bits: 3}}
		if len(packets(t, c.raw)) == 1 {
			settings.Corrupt.Probability = 1
		}
		b := newBench(t, settings)
		said, want := verdicts(t, settings, c.raw), packets(t, c.raw)
		got := b.pass(t, c.raw)
		if len(got) != len(want) {
			t.Fatalf("%s: %d packets left, want %d", c.name, len(got), len(want))
		}
		corrupted := uint64(0)
		for i := range want {
			if !said[i].Flip.Any() {
				if !bytes.Equal(want[i], got[i]) {
					t.Errorf("%s: packet %d was altered", c.name, i)
				}
				continue
			}
			corrupted++
			l4 := 34
			if want[i][12] == 0x86 {
				l4 = 54
			}
			said[i].Flip.Apply(want[i])
			if right := udpChecksum(got[i], l4) == 0; right == c.tells {
				t.Errorf("%s: packet %d is corrupted; its checksum is right: %v", c.name, i, right)
			}
			if !c.tells {
				copy(want[i][l4+6:l4+8], got[i][l4+6:]) // was made right
			}
			if diff := cmp.Diff(hex.Dump(want[i]), hex.Dump(got[i])); diff != "" {
				t.Errorf("%s: packet %d (-want +got):\n%s", c.name, i, diff)
			}
		}
		if m := b.k.lines[0].measure(false); m.Corrupted != corrupted || corrupted == 0 {
			t.Errorf("%s: measured %+v, want %d corrupted", c.name, m, corrupted)
		}
	}
}

// ipv6SuperPacket is a super-packet of RoCEv2 over IPv6.
func ipv6SuperPacket(n, size int) []byte {
	four := roceSuperPacket(n, size, 0)
	b := bytes.Clone(four[:frame.HeaderLen+14])
	binary.NativeEndian.PutUint16(b[6:], 54)
	b[frame.HeaderLen+12], b[frame.HeaderLen+13] = 0x86, 0xdd
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7], ip[8], ip[24] = 0x60, 17, 64, 0xfd, 0xfd
	return append(append(b, ip...), four[frame.HeaderLen+34:]...)
}

// udpChecksum is 0 if the checksum of the UDP packet at offset l4 is right.
func udpChecksum(packet []byte, l4 int) uint16 {
	from := 26 // of the addresses
	if l4 == 54 {
		from = 22
	}
	s := uint32(17) + uint32(len(packet)-l4)
	covered := append(bytes.Clone(packet[from:l4]), packet[l4:]...)
	for i, v := range covered {
		s += uint32(v) << (8 * (1 - i%2))
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// Packets that may be marked are, also within a super-packet, and nothing else of
// them changes; others never are.
func TestMarkedPackets(t *testing.T) {
	// 10 packets a second; from the sixth on more than 500 wire bytes wait.
	settings := topology.Impairment{Rate: 8 * 10 * uint64(impair.WireBytes(142)), ECN: topology.ECN{Min: 5*166 - 1, Max: 5 * 166}}
	for _, c := range []struct {
		name string
		raw  []byte
		may  bool
	}{
		{"ECT(0)", roceSuperPacket(15, 100, 2), true},
		{"ECT(1)", roceSuperPacket(15, 100, 1), true},
		{"not ECT", roceSuperPacket(15, 100, 0), false},
	} {
		b := newBench(t, settings)
		got := b.pass(t, c.raw)
		want := packets(t, c.raw)
		marked := uint64(0)
		for i := range want {
			if c.may && i >= 5 {
				frame.Mark(want[i])
				marked++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: what left (-want +got):\n%s", c.name, diff)
		}
		m := b.k.lines[0].measure(false)
		if m.Marked != marked || m.PeakPackets != 15 || m.PeakBytes != 15*166 {
			t.Errorf("%s: measured %+v, want %d marked", c.name, m, marked)
		}
	}
	// 20 s each, which is more than any pause of the machine.
	b := newBench(t, topology.Impairment{Rate: 8 * uint64(impair.WireBytes(142)) / 20, ECN: topology.ECN{Max: 1}})
	single := roceSuperPacket(1, 100, 2)
	b.arrive(t, single) // finds nothing waiting
	got := b.pass(t, single)
	want := append(packets(t, single), packets(t, single)...)
	frame.Mark(want[1])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("single packets (-want +got):\n%s", diff)
	}
}

// sealedSuperPacket is a super-packet of n RoCEv2 packets, as a carrier on sockets sends them with a
// traffic class.
func sealedSuperPacket(n int, flow roce.Flow, class uint8) []byte {
	var sealer roce.Sealer
	var b []byte
	payload := 0
	for i := range n {
		p := roce.Packet{Header: roce.Header{Opcode: roce.SendMiddle, PSN: uint32(i)}, Payload: [][]byte{make([]byte, 100)}, Class: class}
		whole := sealer.AppendIP(nil, &flow, uint16(i), &p) // segments have counted identifications
		l4 := 40
		if flow.Local.Is4() {
			l4 = 20
		}
		if i == 0 {
			b = append(make([]byte, frame.HeaderLen+14), whole[:l4+8]...)
			payload = len(whole) - l4 - 8
			b[0], b[1] = 1, 5 // checksum needed, UDP
			binary.NativeEndian.PutUint16(b[4:], uint16(payload))
			binary.NativeEndian.PutUint16(b[6:], uint16(14+l4))
			binary.NativeEndian.PutUint16(b[8:], 6)
			binary.BigEndian.PutUint16(b[frame.HeaderLen+12:], map[int]uint16{20: 0x0800, 40: 0x86DD}[l4])
		}
		b = append(b, whole[l4+8:]...)
	}
	return b
}

// Packets of RoCEv2 that are marked in a super-packet leave it, together or one alone, and arrive with
// their class, their header checksum and ICRC right, and in order.
func TestMarkedRoCE(t *testing.T) {
	for _, flow := range []roce.Flow{
		{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2"), SourcePort: 0xC000},
		{Local: netip.MustParseAddr("fd00::1"), Remote: netip.MustParseAddr("fd00::2"), SourcePort: 0xC000},
	} {
		checkMarks(t, flow, 5)
		checkMarks(t, flow, 14)
	}
}

// checkMarks has a super-packet of 15 cross a link that marks those that find so many waiting.
func checkMarks(t *testing.T, flow roce.Flow, waiting uint32) {
	t.Helper()
	const n, dscp = 15, 26 << 2
	raw := sealedSuperPacket(n, flow, dscp|roce.ECT0)
	wire := uint64(impair.WireBytes(len(packets(t, raw)[0])))
	most := uint64(waiting) * wire
	// 10 packets a second.
	b := newBench(t, topology.Impairment{Rate: 8 * 10 * wire, ECN: topology.ECN{Min: most - 1, Max: most}})
	var verifier roce.Verifier
	var psn []byte
	for _, p := range b.pass(t, raw) {
		var r roce.Received
		if err := verifier.DecodeIP(p[14:], &r); err != nil {
			t.Fatalf("%v: packet %d: %v", flow.Local, len(psn), err)
		}
		want := uint8(dscp | roce.ECT0)
		if r.Header.PSN >= waiting {
			want = dscp | roce.CE
		}
		if r.Class != want {
			t.Errorf("%v: packet %d arrives with class %#x, want %#x", flow.Local, r.Header.PSN, r.Class, want)
		}
		psn = append(psn, byte(r.Header.PSN))
	}
	if !slices.Equal(psn, numbers(0, n)) {
		t.Errorf("%v: packets %v arrive", flow.Local, psn)
	}
	if m := b.k.lines[0].measure(false); m.Marked != uint64(n-waiting) {
		t.Errorf("%v: measured %+v, want %d marked", flow.Local, m, n-waiting)
	}
}

// Packets that are not corrupted leave as parts of the super-packet, with as few
// sends as before; a corrupted one leaves on its own, with nothing left to compute.
func TestCorruptedPacketsLeaveAlone(t *testing.T) {
	psn := topology.PSNs{First: 4, Last: 4}
	b := newBench(t, topology.Impairment{Faults: []topology.Fault{{Match: topology.Match{PSN: &psn}, Action: topology.Corrode}}})
	b.arrive(t, roceSuperPacket(15, 100, 0))
	b.egress.send(b.k.lines[0])
	var segments []int
	buf := make([]byte, frame.MaxLen)
	for {
		n, err := unix.Read(b.ends[1], buf)
		if err == unix.EAGAIN {
			break
		}
		must(t, err)
		f, err := frame.Parse(buf[:n])
		must(t, err)
		if segments = append(segments, f.Segments()); f.Segments() == 1 && !bytes.Equal(buf[:frame.HeaderLen], make([]byte, frame.HeaderLen)) {
			t.Errorf("the corrupted packet has the virtio header %x", buf[:frame.HeaderLen])
		}
	}
	if !slices.Equal(segments, []int{4, 1, 10}) {
		t.Errorf("frames of %v packets left, want 4, 1 and 10", segments)
	}
}

// Each cause of a loss has a counter of its own.
func TestLossesAreToldApart(t *testing.T) {
	psn := topology.PSNs{First: 4, Last: 6}
	for _, c := range []struct {
		name     string
		settings topology.Impairment
		want     linkstats.Statistics
	}{
		{"places", topology.Impairment{Loss: topology.Loss{Packets: []uint64{1, 2, 5}}}, linkstats.Statistics{Dropped: 3, Bursts: 2}},
		{"fault", topology.Impairment{Faults: []topology.Fault{{Match: topology.Match{PSN: &psn}, Action: topology.Drop}}}, linkstats.Statistics{LostFault: 3, Faulted: 3}},
		{"cut", topology.Impairment{Cut: true}, linkstats.Statistics{LostCut: 15}},
		{"queue", topology.Impairment{Rate: 1e6, Queue: topology.Queue{Packets: 10}}, linkstats.Statistics{LostQueue: 5, PeakPackets: 10, PeakBytes: 1660}},
	} {
		b := newBench(t, c.settings)
		raw := roceSuperPacket(15, 100, 0)
		got := b.pass(t, raw)
		c.want.Packets, c.want.Bytes = 15, 15*142
		c.want.Delivered = 15 - c.want.Dropped - c.want.LostFault - c.want.LostCut - c.want.LostQueue
		if uint64(len(got)) != c.want.Delivered {
			t.Errorf("%s: %d packets left, want %d", c.name, len(got), c.want.Delivered)
		}
		if diff := cmp.Diff(c.want, b.k.lines[0].stats.Counts); diff != "" {
			t.Errorf("%s: measured (-want +got):\n%s", c.name, diff)
		}
	}
}
