package trace

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// The interfaces of the link, and the addresses of their nodes.
const near, far = "a:eth0", "b:eth0"

var addresses = map[string]netip.Addr{near: netip.MustParseAddr("10.0.0.1"), far: netip.MustParseAddr("10.0.0.2")}

// ethernet returns a frame of an EtherType.
func ethernet(kind uint16, payload []byte) []byte {
	b := append(make([]byte, 12, 64), byte(kind>>8), byte(kind))
	return append(b, payload...)
}

// packet returns a RoCEv2 packet with so many bytes of payload, as captures have it.
func packet(t testing.TB, from string, at int64, comment string, h roce.Header, payload int) *Packet {
	t.Helper()
	to := far
	if from == far {
		to = near
	}
	h.PKey = roce.DefaultPKey
	var sealer roce.Sealer
	flow := roce.Flow{Local: addresses[from], Remote: addresses[to], SourcePort: 0xC000}
	ip := sealer.AppendIP(nil, &flow, 0, &roce.Packet{Header: h, Payload: [][]byte{make([]byte, payload)}})
	frame := ethernet(0x0800, ip)
	return &Packet{Stamp: at, From: from, Size: len(frame), Comment: comment, Frame: frame}
}

func number[T any](n T) *T { return &n }

// A ring has the last packets, also after it has gone round more than once, and copies them.
func TestRing(t *testing.T) {
	r := NewRing(3)
	if rows := r.Rows(10, 0); rows == nil || len(rows) > 0 {
		t.Errorf("an empty ring has %#v", rows)
	}
	for added := 1; added <= 8; added++ {
		p := packet(t, near, int64(added)*1e9, "", roce.Header{Opcode: roce.SendOnly, PSN: uint32(added)}, 0)
		r.Add(p)
		clear(p.Frame)
		for _, n := range []int{1, 2, 3, 4} {
			rows := r.Rows(n, 0)
			if len(rows) != min(n, added, 3) {
				t.Fatalf("%d of %d packets, asked for %d", len(rows), added, n)
			}
			for i := range rows {
				if want := uint32(added - len(rows) + 1 + i); *rows[i].PSN != want || rows[i].At != float64(want) {
					t.Errorf("after %d: row %d of %d has PSN %d at %v", added, i, len(rows), *rows[i].PSN, rows[i].At)
				}
			}
		}
	}
}

// A row has all fields, of a packet that is cut off behind its headers.
func TestRow(t *testing.T) {
	r := NewRing(1)
	r.Add(packet(t, near, 2_500_000_000, "marked, delayed 1.002ms", roce.Header{
		Opcode: roce.WriteFirst, PSN: 0xfffffe, DestQPN: 17, VA: 0x1000, RKey: 0xab, DMALength: 8192,
	}, 4096))
	want := []Row{{
		At: 1.5, From: near, Source: "10.0.0.1", Destination: "10.0.0.2", Size: 14 + 20 + 8 + 12 + 16 + 4096 + 4,
		Fate: Delivered, Done: []string{"marked"}, Delay: number(1002.0), Opcode: "RC RDMA WRITE First", PSN: number[uint32](0xfffffe), QP: number[uint32](17),
		Text: "4096 bytes of 8192 to 0x1000, key 0xab",
	}}
	if diff := cmp.Diff(want, r.Rows(1, 1_000_000_000)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFates(t *testing.T) {
	for comment, want := range map[string]Row{
		"":                                    {},
		"delayed 1.002ms":                     {Fate: Delivered, Delay: number(1002.0)},
		"delayed 7us; node b killed":          {Fate: Delivered, Delay: number(7.0)},
		"dropped: loss":                       {Fate: Dropped, Cause: "loss"},
		"dropped: loss (burst); link cut, no": {Fate: Dropped, Cause: "loss (burst)"},
		"dropped: queue full":                 {Fate: Dropped, Cause: "queue full"},
		"dropped: cut":                        {Fate: Dropped, Cause: "cut"},
		"dropped: fault 2":                    {Fate: Dropped, Cause: "fault 2"},
		"lost: overrun, no memory left":       {Fate: Dropped, Cause: "overrun, no memory left"},
		"corrupted, duplicated, reordered, marked, postponed by 5ms, fault 1, delayed 6ms": {
			Fate: Delivered, Delay: number(6000.0), Done: []string{"corrupted", "duplicated", "reordered", "marked", "postponed by 5ms", "fault 1"},
		},
		"node b is down":        {},
		"delayed by nobody":     {},
		"the link a:eth0, done": {},
	} {
		var got Row
		got.Fate, got.Cause, got.Done, got.Delay = parseComment(&Packet{Comment: comment})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", comment, diff)
		}
	}
	if fate, _, _, _ := parseComment(&Packet{Arrived: true}); fate != Delivered {
		t.Errorf("one that has arrived is %q", fate)
	}
}

// Each kind of RoCEv2 packet has its description.
func TestDescriptions(t *testing.T) {
	for want, p := range map[string]struct {
		header  roce.Header
		payload int
	}{
		"1 byte":   {roce.Header{Opcode: roce.SendOnly}, 1},
		"0 bytes":  {roce.Header{Opcode: roce.SendLast}, 0},
		"64 bytes": {roce.Header{Opcode: roce.WriteMiddle}, 64},
		"3 bytes, immediate 0x5, solicited, asks for an acknowledgement": {roce.Header{Opcode: roce.SendOnlyImm, Immediate: 5, Solicited: true, AckReq: true}, 3},
		"3 bytes, invalidates key 0x7":                                   {roce.Header{Opcode: roce.SendOnlyInv, InvalidateKey: 7}, 3},
		"asks for 65536 bytes at 0x2000, key 0x9":                        {roce.Header{Opcode: roce.ReadRequest, VA: 0x2000, RKey: 9, DMALength: 65536}, 0},
		"1024 bytes, ACK, MSN 3":                                         {roce.Header{Opcode: roce.ReadResponseOnly, Syndrome: roce.SyndromeACK, MSN: 3}, 1024},
		"1024 bytes":                                                     {roce.Header{Opcode: roce.ReadResponseMiddle}, 1024},
		"ACK, MSN 4":                                                     {roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeACK, MSN: 4}, 0},
		"NAK PSN sequence error, MSN 4":                                  {roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromePSNSequence, MSN: 4}, 0},
		"RNR NAK 81.92ms, MSN 4":                                         {roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeRNR + 26, MSN: 4}, 0},
		"NAK: the PSN is missing, PSN 9 has arrived":                     {roce.Header{Opcode: roce.SelectiveAcknowledge, Syndrome: roce.SyndromePSNSequence, MSN: 9}, 0},
		"NAK: the PSN is missing, PSN 9 and 2 before it have arrived":    {roce.Header{Opcode: roce.SelectiveAcknowledge, Syndrome: roce.SyndromePSNSequence, MSN: 9, Original: 5}, 0},
		"at 0x8, key 0x1: 3 takes the place of 2":                        {roce.Header{Opcode: roce.CompareSwap, VA: 8, RKey: 1, SwapAdd: 3, Compare: 2}, 0},
		"at 0x8, key 0x1: adds 3":                                        {roce.Header{Opcode: roce.FetchAdd, VA: 8, RKey: 1, SwapAdd: 3}, 0},
		"ACK, MSN 4, it was 12":                                          {roce.Header{Opcode: roce.AtomicAcknowledge, Syndrome: roce.SyndromeACK, MSN: 4, Original: 12}, 0},
		"congestion was met by packets from the QP":                      {roce.Header{Opcode: roce.CNP}, 0},
		"100 bytes from QP 6":                                            {roce.Header{Opcode: roce.UDSendOnly, DestQPN: 5, SourceQPN: 6}, 100},
	} {
		r := NewRing(1)
		r.Add(packet(t, near, 0, "", p.header, p.payload))
		if got := r.Rows(1, 0)[0]; got.Text != want || got.Opcode != p.header.Opcode.String() {
			t.Errorf("%v: %q, want %q", got.Opcode, got.Text, want)
		}
	}
}

// Descriptions name messages of connection management, marks and partitions.
func TestDescribeMore(t *testing.T) {
	p := packet(t, near, 0, "", roce.Header{Opcode: roce.UDSendOnly, DestQPN: 1, SourceQPN: 1}, mad.Size)
	body := p.Frame[14+20+8+12+8:]
	binary.BigEndian.PutUint16(body[16:], uint16(mad.AttributeREQ))
	binary.BigEndian.PutUint16(p.Frame[14+20+8+2:], 0x9234)
	roce.Mark(p.Frame[14:])
	r := NewRing(1)
	r.Add(p)
	if got, want := r.Rows(1, 0)[0].Text, "connection management: REQ, 256 bytes from QP 1, partition 0x9234, CE"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Packets of other protocols have one line, too, and broken ones do no harm.
func TestOthers(t *testing.T) {
	bytes := func(text string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ipv4 := func(protocol byte, body string) []byte {
		b := append(bytes("4500 0000 0000 4000 40ff 0000 0a000001 0a000002"), bytes(body)...)
		b[3], b[9] = byte(len(b)), protocol
		return ethernet(0x0800, b)
	}
	pause := mmu.PFC{Enabled: 0b1001_0000}
	pause.Quanta[4] = 65535
	none := mmu.PFC{}
	broken := packet(t, near, 0, "", roce.Header{Opcode: roce.SendOnly}, 4).Frame
	broken[14+20+8] = 0xff // no opcode
	cut := packet(t, near, 0, "", roce.Header{Opcode: roce.WriteOnly}, 4).Frame[:14+20+8+12+15]
	vlan := packet(t, near, 0, "", roce.Header{Opcode: roce.SendOnly}, 4).Frame
	vlan = append(append(append([]byte{}, vlan[:12]...), 0x81, 0, 0, 5), vlan[12:]...)
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{ethernet(0x0806, bytes("0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002")), "ARP: who has 10.0.0.2? Tell 10.0.0.1"},
		{ethernet(0x0806, bytes("0001 0800 06 04 0002 020000000001 0a000001 020000000002 0a000002")), "ARP: 10.0.0.1 is at 02:00:00:00:00:01"},
		{ethernet(0x8808, pause.Append(nil)), "PFC: class 4 pauses for 65535 quanta, class 7 goes on"},
		{ethernet(0x8808, none.Append(nil)), "PFC: no class"},
		{ethernet(0x8808, []byte{0, 1, 0, 9}), "MAC control frame"},
		{ipv4(6, "1f90 0050 00000007 00000009 5012 1000 0000 0000 616263"), "TCP 8080 > 80 [SYN ACK] seq 7 ack 9 window 4096, 3 bytes"},
		{ipv4(17, "0035 d903 000c 0000 00000000"), "UDP 53 > 55555, 4 bytes"},
		{ipv4(1, "0800 0000 0001 0001"), "ICMP EchoRequest"},
		{ipv4(89, "0000"), "IPv4 OSPF"},
		{ethernet(0x86dd, bytes("60000000 0008 3a ff 20010db8000000000000000000000001 20010db8000000000000000000000002 8700 0000 00000000")), "ICMPv6 NeighborSolicitation"},
		{ethernet(0x88cc, nil), "LinkLayerDiscovery"},
		{ethernet(0x1234, nil), "EtherType 0x1234"},
		{ethernet(0x0800, bytes("4500")), "IPv4"},
		{broken, "UDP 49152 > 4791, 20 bytes, which is not RoCEv2 or cut off"},
		{cut, "UDP 49152 > 4791, 36 bytes, which is not RoCEv2 or cut off"},
		{[]byte{1, 2, 3}, "cut off"},
		{nil, "cut off"},
		{vlan, "4 bytes"},
	} {
		r := NewRing(1)
		r.Add(&Packet{From: near, Size: len(c.frame), Frame: c.frame})
		if got := r.Rows(1, 0)[0]; got.Text != c.want || (got.Opcode != "") != (c.want == "4 bytes") {
			t.Errorf("% x: %+v, want %q", c.frame, got, c.want)
		}
	}
}

// Adding a packet does not allocate: captures of busy links have many.
func TestAddDoesNotAllocate(t *testing.T) {
	r := NewRing(100)
	p := packet(t, near, 0, "", roce.Header{Opcode: roce.SendOnly}, 64)
	if n := testing.AllocsPerRun(1000, func() { r.Add(p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Anything can be shown.
func FuzzRows(f *testing.F) {
	for op := range 256 {
		if roce.Opcode(op).Known() {
			f.Add(packet(f, near, 0, "", roce.Header{Opcode: roce.Opcode(op), DestQPN: 1}, 40).Frame, "delayed 1us")
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, comment string) {
		r := NewRing(2)
		r.Add(&Packet{From: near, Size: len(frame), Frame: frame, Comment: comment})
		r.Add(&Packet{From: far, Size: len(frame), Frame: frame, Comment: comment})
		if rows := r.Rows(5, 0); len(rows) != 2 {
			t.Errorf("%d rows", len(rows))
		}
		r.Sequence(QueuePair{Endpoint: near, QPN: 1}, 0)
	})
}
