package roce

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func flow(local, remote string, port uint16) Flow {
	return Flow{Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(remote), SourcePort: port}
}

// A vector is a packet of roce.md 18, as received.
type vector struct {
	name string
	id   uint16
	ttl  byte // 0: 64
	wire string
	want Received
}

// The REQ and REP of roce.md 18 begin with the headers given and the MAD is
// filled up with zeros to 256 bytes.
const (
	reqWire = `45000134000040004011 25b7 0a000001 0a000002 c7ca12b701200000
		6400ffff0000000100000000 8001000000000001` + reqMAD + `21a239bb`
	reqMAD = `01070203000000000000000187654321 0010 0000 00000000
		87654321 00000000 0000000001061c06 020000fffe000001 00000000 00000000
		00001101 00000001 000000a0 123456a7 ffff 37 f0 ffff ffff
		00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 307c6000 00 40 00 88
		00000000000000000000000000000000000000000000 00000000000000000000000000000000000000000000
		00 40 9c40 0000000000000000000000000a000001 0000000000000000000000000a000002` + zeros56
	zeros56 = `0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000`
	// The REP's headers are not printed there: those of the REQ with the
	// attribute 0x0013, the addresses exchanged and source port 0xC001.
	repWire = `45000134000040004011 25b7 0a000002 0a000001 c00112b701200000
		6400ffff0000000100000000 8001000000000001` + repMAD + `a3dd81d1`
	repMAD = `01070203000000000000000187654321 0013 0000 00000000
		abcdef01 87654321 00000000 00001200 00000000 65432100 01 01 78 e0 020000fffe000002` +
		zeros56 + zeros56 + zeros56 + `00000000000000000000000000000000000000000000000000000000`
)

func vectors(t testing.TB) []vector {
	aToB := flow("10.0.0.2", "10.0.0.1", 0xC000)
	bToA := flow("10.0.0.1", "10.0.0.2", 0xC001)
	return []vector{
		{
			name: "A SEND Only",
			wire: `4500003400004000401126b70a0000010a000002c00012b7002000000430ffff000000118000010068656c6c6f000000382ed499`,
			want: Received{
				Flow:    aToB,
				Header:  Header{Opcode: SendOnly, PKey: 0xFFFF, DestQPN: 0x11, AckReq: true, PSN: 0x100},
				Payload: []byte("hello"),
			},
		}, {
			name: "B ACK",
			wire: `4500003000004000401126bb0a0000020a000001c00112b7001c00001100ffff00000012000001001f0000011cd419c9`,
			want: Received{
				Flow:    bToA,
				Header:  Header{Opcode: Acknowledge, PKey: 0xFFFF, DestQPN: 0x12, PSN: 0x100, Syndrome: SyndromeACK, MSN: 1},
				Payload: []byte{},
			},
		}, {
			name: "C WRITE Only", id: 0x1234, ttl: 63,
			wire: `45020040123440003f1115750a0000010a000002c00012b7002c00000a00ffff0000001180000101112233445566778800000a0100000004deadbeef8bf2475a`,
			want: Received{
				Flow: aToB,
				Header: Header{Opcode: WriteOnly, PKey: 0xFFFF, DestQPN: 0x11, AckReq: true, PSN: 0x101,
					VA: 0x1122334455667788, RKey: 0xA01, DMALength: 4},
				Payload: []byte{0xDE, 0xAD, 0xBE, 0xEF},
				Class:   ECT0,
			},
		}, {
			name: "D READ Request over IPv6",
			wire: `6000000000281140fd000000000000000000000000000001fd000000000000000000000000000002c00012b7002800000c00ffff0000001180000102000000000000100000000a0100001000547a2978`,
			want: Received{
				Flow: flow("fd00::2", "fd00::1", 0xC000),
				Header: Header{Opcode: ReadRequest, PKey: 0xFFFF, DestQPN: 0x11, AckReq: true, PSN: 0x102,
					VA: 0x1000, RKey: 0xA01, DMALength: 4096},
				Payload: []byte{},
			},
		}, {
			name: "E ACK over IPv6",
			wire: `60000000001c1140fd000000000000000000000000000002fd000000000000000000000000000001c00112b7001c00001100ffff00000012000001021f000003a9fffdbc`,
			want: Received{
				Flow:    flow("fd00::1", "fd00::2", 0xC001),
				Header:  Header{Opcode: Acknowledge, PKey: 0xFFFF, DestQPN: 0x12, PSN: 0x102, Syndrome: SyndromeACK, MSN: 3},
				Payload: []byte{},
			},
		}, {
			name: "F CNP of a NIC", id: 0x718C,
			wire: `45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118 00000000000000000000000000000000 00000000 82fd002a`,
			want: Received{
				Flow:    flow("10.0.18.1", "10.0.17.1", 0),
				Header:  Header{Opcode: CNP, PKey: 0xFFFF, BECN: true, DestQPN: 0x118},
				Payload: []byte{},
				Class:   48<<2 | ECT0,
			},
		}, {
			name: "REQ",
			wire: reqWire,
			want: Received{
				Flow:    flow("10.0.0.2", "10.0.0.1", 0xC7CA),
				Header:  Header{Opcode: UDSendOnly, PKey: 0xFFFF, DestQPN: 1, QKey: 0x80010000, SourceQPN: 1},
				Payload: unhex(t, reqMAD),
			},
		}, {
			name: "REP",
			wire: repWire,
			want: Received{
				Flow:    bToA,
				Header:  Header{Opcode: UDSendOnly, PKey: 0xFFFF, DestQPN: 1, QKey: 0x80010000, SourceQPN: 1},
				Payload: unhex(t, repMAD),
			},
		},
	}
}

// sender is the flow as the sender of a received packet has it.
func sender(f Flow) Flow {
	return Flow{Local: f.Remote, Remote: f.Local, SourcePort: f.SourcePort}
}

// remark sets the TOS and TTL of an IPv4 packet as a router would.
func remark(packet []byte, tos, ttl byte) {
	if packet[0]>>4 != 4 {
		return
	}
	packet[1], packet[8], packet[10], packet[11] = tos, ttl, 0, 0
	binary.BigEndian.PutUint16(packet[10:], ipv4Checksum(packet))
}

func TestVectors(t *testing.T) {
	for _, vec := range vectors(t) {
		t.Run(vec.name, func(t *testing.T) {
			wire := unhex(t, vec.wire)
			var v Verifier
			var got Received
			if err := v.DecodeIP(wire, &got); err != nil {
				t.Fatalf("DecodeIP: %v", err)
			}
			if diff := cmp.Diff(vec.want, got, compareAddr); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}

			f := sender(got.Flow)
			ttl := vec.ttl
			if ttl == 0 {
				ttl = 64
			}
			var s Sealer
			again := s.AppendIP(nil, &f, vec.id, &Packet{Header: got.Header, Payload: [][]byte{got.Payload}, Class: got.Class})
			remark(again, again[1], ttl)
			if !bytes.Equal(again, wire) {
				t.Errorf("encoded\n got %x\nwant %x", again, wire)
			}

			udpPayload := wire[ipHeaderLen(wire)+udpLen:]
			if id, ok := v.Verify(&got.Flow, udpPayload, vec.id); !ok || id != vec.id {
				t.Errorf("Verify with the ID as hint: %#x, %v", id, ok)
			}
			if id, ok := v.Verify(&got.Flow, udpPayload, 0); !ok || id != vec.id {
				t.Errorf("Verify without the ID: %#x, %v; want %#x", id, ok, vec.id)
			}
		})
	}
}

func ipHeaderLen(packet []byte) int {
	if packet[0]>>4 == 4 {
		return ipv4Len
	}
	return ipv6Len
}
