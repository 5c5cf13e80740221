package impair

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/topology"
)

// dropped is which of the packets, from 1, a fault with a match drops.
func dropped(m topology.Match, packets ...*Identity) (places []int) {
	d := direction(6, "link", 0, topology.Impairment{Faults: []topology.Fault{{Match: m, Action: topology.Drop}}})
	for i, id := range packets {
		if v := d.Packet(&Packet{Frame: 100, RoCE: id}, 0); v.Fate == Lost && v.Cause == Fault && v.Fault == 1 {
			places = append(places, i+1)
		}
	}
	return places
}

func TestMatchDescribesPackets(t *testing.T) {
	qp := uint32(17)
	packets := []*Identity{
		nil, // 1: not RoCEv2
		{Opcode: roce.WriteFirst, QP: 17, PSN: 0xfffffe},
		{Opcode: roce.WriteMiddle, QP: 17, PSN: 0xffffff},
		{Opcode: roce.WriteLast, QP: 18, PSN: 0},
		{Opcode: roce.SelectiveAcknowledge, Syndrome: roce.SyndromePSNSequence, QP: 17, PSN: 1}, // 5
		{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeACK, QP: 17, PSN: 2},
		{Opcode: roce.Acknowledge, Syndrome: roce.SyndromePSNSequence, QP: 17, PSN: 3},
		{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeRNR + 5, QP: 17, PSN: 4},
		{Opcode: roce.ReadResponseOnly, Syndrome: roce.SyndromeACK, QP: 17, PSN: 5},
		{Opcode: roce.UDSendOnly, CM: mad.AttributeREQ, QP: 1}, // 10
		{Opcode: roce.UDSendOnly, CM: mad.AttributeREP, QP: 1},
	}
	all := []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for _, c := range []struct {
		name  string
		match topology.Match
		want  []int
	}{
		{"any", topology.Match{}, all},
		{"opcodes", topology.Match{Opcodes: []uint8{uint8(roce.WriteMiddle), uint8(roce.SelectiveAcknowledge)}}, []int{3, 5}},
		{"ack", topology.Match{Syndromes: []string{"ack"}}, []int{6}},
		{"nak", topology.Match{Syndromes: []string{"nak"}}, []int{5, 7}},
		{"rnr or ack", topology.Match{Syndromes: []string{"rnr", "ack"}}, []int{6, 8}},
		{"nak and opcode", topology.Match{Syndromes: []string{"nak"}, Opcodes: []uint8{uint8(roce.Acknowledge)}}, []int{7}},
		{"cm", topology.Match{CM: []uint16{uint16(mad.AttributeREP), uint16(mad.AttributeRTU)}}, []int{11}},
		{"qp", topology.Match{QP: &qp}, []int{2, 3, 5, 6, 7, 8, 9}},
		{"psn", topology.Match{PSN: &topology.PSNs{First: 2, Last: 4}}, []int{6, 7, 8}},
		{"psn around 0", topology.Match{PSN: &topology.PSNs{First: 0xffffff, Last: 1}, QP: &qp}, []int{3, 5}},
		{"all psn but one", topology.Match{PSN: &topology.PSNs{First: 4, Last: 2}, QP: &qp}, []int{2, 3, 5, 6, 8, 9}},
		{"places", topology.Match{Packets: []uint64{1, 3, 20}}, []int{2, 4}},
		{"places of writes", topology.Match{Packets: []uint64{3}, Opcodes: []uint8{6, 7, 8}}, []int{4}},
		{"every", topology.Match{Every: 3}, []int{4, 7, 10}},
		{"every and places", topology.Match{Every: 3, Packets: []uint64{2, 6}}, []int{7}},
		{"count", topology.Match{Count: 2}, []int{2, 3}},
		{"every and count", topology.Match{Every: 4, Count: 1}, []int{5}},
		{"certain", topology.Match{Probability: 1}, all},
	} {
		if diff := cmp.Diff(c.want, dropped(c.match, packets...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestMatchAtRandom(t *testing.T) {
	packets := slices.Repeat([]*Identity{{}}, 100_000)
	some := dropped(topology.Match{Probability: 0.3}, packets...)
	within(t, "matched", len(some), len(packets), 0.3)
	// With a limit it is the first of the same packets.
	if diff := cmp.Diff(some[:50], dropped(topology.Match{Probability: 0.3, Count: 50}, packets...)); diff != "" {
		t.Errorf("with a limit (-want +got):\n%s", diff)
	}
	// Two faults draw apart.
	d := direction(6, "link", 0, topology.Impairment{Faults: []topology.Fault{
		{Match: topology.Match{Probability: 0.3}, Action: topology.Drop}, {Match: topology.Match{Probability: 0.3}, Action: topology.Double},
	}})
	counts := [3]int{}
	for _, id := range packets {
		counts[d.Packet(&Packet{Frame: 100, RoCE: id}, 0).Fault]++
	}
	within(t, "met by the second alone", counts[2], len(packets), 0.7*0.3)
}

func TestFaultsAct(t *testing.T) {
	match := func(place uint64) topology.Match { return topology.Match{Packets: []uint64{place}} }
	d := direction(1, "link", 0, topology.Impairment{
		Delay: 100,
		Loss:  topology.Loss{Packets: []uint64{6}},
		Faults: []topology.Fault{
			{Match: match(1), Action: topology.Drop},
			{Match: match(2), Action: topology.Postpone, Delay: 1000},
			{Match: match(3), Action: topology.Double},
			{Match: match(4), Action: topology.Corrode},
			{Match: match(4), Action: topology.Drop}, // too late
			{Match: match(6), Action: topology.Double},
		},
	})
	var got []Verdict
	var flip Flip
	for i := range 6 {
		v := d.Packet(&Packet{Frame: 100, Payload: 42, RoCE: &Identity{}}, time.Duration(i))
		if v.Flip.Any() {
			flip, v.Flip = v.Flip, Flip{}
		}
		got = append(got, v)
	}
	want := []Verdict{
		{Fate: Lost, Cause: Fault, Fault: 1},
		{Fault: 2, Postponed: 1000, Departs: 1101},
		{Fault: 3, Twice: true, Departs: 102}, // overtakes what is postponed
		{Fault: 4, Departs: 103},
		{Departs: 104},
		{Fate: Lost, Cause: Place, Fault: 6}, // by the loss first, so that a loss is as likely with faults
	}
	if diff := cmp.Diff(want, got, compareVerdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if bit := int(flip.bits[0]) - 1; bit < 8*54 || bit >= 8*100 || flip.bits[1] != 0 {
		t.Errorf("corrupted: %v", flip)
	}
}

// A postponed packet keeps its place behind those before it, plus the fault's delay.
func TestPostponedPacketWasInOrder(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: 1000})
	d.Packet(packet(100), 0)
	d.Set(topology.Impairment{Faults: []topology.Fault{{Action: topology.Postpone, Delay: 50}}}, 10)
	if v := d.Packet(&Packet{Frame: 100, RoCE: &Identity{}}, 10); v.Departs != 1050 {
		t.Errorf("departs at %d, want 50 after the one before", v.Departs)
	}
}

func TestIdentifies(t *testing.T) {
	d := New(1, "link", 0)
	if d.Identifies() {
		t.Error("nothing asks for identities")
	}
	for _, i := range []topology.Impairment{{Faults: []topology.Fault{{Action: topology.Drop}}}, {Corrupt: topology.Corrupt{Probability: 0.1}}} {
		if d.Set(i, 0); !d.Identifies() {
			t.Errorf("%+v does not ask for identities", i)
		}
	}
	d.Set(topology.Impairment{}, 0)
	if d.Replay(&Sequence{}); !d.Identifies() {
		t.Error("a replay does not ask for identities")
	}
}
