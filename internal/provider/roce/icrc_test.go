package roce

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var flows = []Flow{
	flow("10.0.0.1", "10.0.0.2", 0xC123),
	flow("fd00::1", "fd00::2", 0xC123),
}

func drawPacket(t *rapid.T) (f Flow, p Packet) {
	f = rapid.SampledFrom(flows).Draw(t, "flow")
	f.SourcePort = rapid.Uint16().Draw(t, "source port")
	p.Header = drawHeader(t)
	p.Payload = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 50), 0, 4).Draw(t, "payload")
	p.Class = rapid.Byte().Draw(t, "class")
	return f, p
}

func joined(p Packet) []byte {
	all := []byte{}
	for _, piece := range p.Payload {
		all = append(all, piece...)
	}
	return all
}

// TestSeed is the check of roce.md 18: after the eight bytes of ones the
// register, not inverted, is DEBB20E3; and as many zeros as one likes, then four
// bytes of ones, do the same to a register of zeros.
func TestSeed(t *testing.T) {
	ones := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
	if got := ^crc32.ChecksumIEEE(ones); got != 0xDEBB20E3 {
		t.Errorf("seed %#x", got)
	}
	for n := range 20 {
		if got := ^crc32.Update(^uint32(0), crc32.IEEETable, append(make([]byte, n), ones[:4]...)); got != 0xDEBB20E3 {
			t.Errorf("seed %#x with %d zeros", got, n)
		}
	}
}

// TestEveryLength compares the ICRC of packets of every length, each in a scratch
// that another packet has been in, with that of the bytes as roce.md 4 has them.
func TestEveryLength(t *testing.T) {
	var v Verifier
	longest := MaxHeaderLen + MaxMTU + 3
	random := rand.NewChaCha8([32]byte{})
	packet := make([]byte, ipv6Len+udpLen+longest)
	_, _ = random.Read(packet)
	for i := range flows {
		n := putIP(packet, &flows[i].Local, &flows[i].Remote, 0xC123, 7, 0)
		for length := bthLen; length <= longest; length++ {
			covered := append([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, packet[:n+length]...)
			for at := range n + length {
				if i := at + 8; maskedBits(packet, at) == 0x0F {
					covered[i] |= 0x0F
				} else {
					covered[i] |= maskedBits(packet, at)
				}
			}
			copy(v.buf.ip(), packet[:n])
			if got, want := v.buf.icrc(n, packet[n:n+length]), crc32.ChecksumIEEE(covered); got != want {
				t.Fatalf("%v, %d bytes: %#x, want %#x", flows[i].Local, length, got, want)
			}
		}
	}
}

func TestIPRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, p := drawPacket(t)
		var s Sealer
		var v Verifier
		b := s.AppendIP(nil, &f, rapid.Uint16().Draw(t, "id"), &p)
		want := Received{Flow: sender(f), Header: p.Header, Payload: joined(p), Class: p.Class}
		var got Received
		// Ethernet padding after the packet does no harm.
		if err := v.DecodeIP(append(b, make([]byte, rapid.IntRange(0, 8).Draw(t, "excess"))...), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, compareAddr); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// composed returns what Append makes of a packet, made by one step after the other.
func composed(b []byte, f *Flow, id uint16, p *Packet) []byte {
	start := len(b)
	return new(Sealer).appendTrailer(append(p.Header.Append(b, p.PayloadLen()), joined(*p)...), start, f, id)
}

// TestAppend: a packet behind others has the bytes that AppendIP makes, and that its parts make one after the other.
func TestAppend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, p := drawPacket(t)
		id := rapid.Uint16().Draw(t, "id")
		before := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "before")
		var s Sealer
		whole := s.AppendIP(nil, &f, id, &p)
		want := append(before[:len(before):len(before)], whole[ipHeaderLen(whole)+udpLen:]...)
		if got := s.Append(before, &f, id, &p); string(got) != string(want) {
			t.Fatalf("alone %x, whole %x", got, want)
		}
		if got := composed(before[:len(before):len(before)], &f, id, &p); string(got) != string(want) {
			t.Fatalf("in parts %x, whole %x", got, want)
		}
	})
}

// TestAppendLong: payloads of all lengths and behind all headers are copied along with their ICRC, or after each other.
func TestAppendLong(t *testing.T) {
	payload := make([]byte, 2*MaxMTU+1)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(payload)
	room := make([]byte, 0, 4*MaxMTU)
	for i := range flows {
		for _, op := range []Opcode{SendOnly, WriteMiddle, WriteFirst, WriteOnlyImm, ReadResponseOnly} {
			for _, n := range []int{foldLeast - foldBlock, foldLeast, foldLeast + 1, foldLeast + foldBlock, MaxMTU - 4, MaxMTU, 2 * MaxMTU} {
				for _, pieces := range [][][]byte{{payload[1:][:n]}, {payload[:1], payload[1:n]}} {
					p := Packet{Header: Header{Opcode: op}, Payload: pieces}
					want := composed(nil, &flows[i], 3, &p)
					for _, b := range [][]byte{nil, room} {
						if got := new(Sealer).Append(b, &flows[i], 3, &p); string(got) != string(want) {
							t.Errorf("%v, %d bytes in %d pieces from %v: differs", op, n, len(pieces), flows[i].Local)
						}
					}
				}
			}
		}
	}
}

// TestAppendChanging: the ICRC covers the bytes that are in the packet, also of memory that its owner changes meanwhile.
func TestAppendChanging(t *testing.T) {
	payload := make([]uint64, MaxMTU/8)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := uint64(1); ; n++ {
			for i := range payload {
				atomic.StoreUint64(&payload[i], n)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	p := Packet{Header: Header{Opcode: SendOnly}, Payload: [][]byte{unsafe.Slice((*byte)(unsafe.Pointer(&payload[0])), MaxMTU)}}
	own := sender(flows[0])
	var s Sealer
	var v Verifier
	changes := 0
	for range 20_000 {
		b := s.Append(nil, &flows[0], 3, &p)
		if _, ok := v.Verify(&own, b, 3); !ok {
			t.Fatal("a packet was damaged as it was made")
		}
		if string(b[12:20]) != string(b[len(b)-12:len(b)-4]) {
			changes++
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of 20000 packets are of several times", changes)
}

// maskedBits says which bits of a packet's byte i may change on the way.
func maskedBits(packet []byte, i int) byte {
	udp := ipHeaderLen(packet)
	switch {
	case i == udp+6, i == udp+7: // UDP checksum
		return 0xFF
	case i == udp+udpLen+4: // FECN, BECN, reserved
		return 0xFF
	case udp == ipv4Len && (i == 1 || i == 8 || i == 10 || i == 11): // TOS, TTL, checksum
		return 0xFF
	case udp == ipv6Len && (i == 1 || i == 2 || i == 3 || i == 7): // traffic class, flow label, hop limit
		return 0xFF
	case udp == ipv6Len && i == 0:
		return 0x0F
	}
	return 0
}

// TestBitFlips flips every single bit of a packet: outside the masked fields
// that must not pass, inside it must.
func TestBitFlips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, p := drawPacket(t)
		var s Sealer
		var v Verifier
		packet := s.AppendIP(nil, &f, 0, &p)
		udpPayload := packet[ipHeaderLen(packet)+udpLen:]
		own, ipv4 := sender(f), f.Local.Is4()
		for bit := range len(packet) * 8 {
			i, m := bit/8, byte(1)<<(bit%8)
			packet[i] ^= m
			masked := maskedBits(packet, i)&m != 0
			checksum := ipv4 && (i == 10 || i == 11)
			if ipv4 && i != 0 && !checksum {
				remark(packet, packet[1], packet[8]) // so that it is not the IP checksum that tells
			}
			var r Received
			err := v.DecodeIP(packet, &r)
			if checksum {
				if !errors.Is(err, ErrChecksum) {
					t.Fatalf("bit %d of byte %d, in the IPv4 checksum: %v", bit%8, i, err)
				}
			} else if (err == nil) != masked {
				t.Fatalf("bit %d of byte %d: masked %v, DecodeIP says %v", bit%8, i, masked, err)
			}
			if i >= len(packet)-len(udpPayload) {
				if id, ok := v.Verify(&own, udpPayload, 0); (ok && id == 0) != masked {
					t.Fatalf("bit %d of byte %d: masked %v, Verify says ID %d, %v", bit%8, i, masked, id, ok)
				}
			}
			packet[i] ^= m
			if ipv4 && !checksum {
				remark(packet, packet[1], packet[8])
			}
		}
	})
}

// TestMaskedFieldsAreFree changes all masked fields at once.
func TestMaskedFieldsAreFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, p := drawPacket(t)
		var s Sealer
		var v Verifier
		packet := s.AppendIP(nil, &f, rapid.Uint16().Draw(t, "id"), &p)
		for i := range packet {
			if m := maskedBits(packet, i); m != 0 {
				packet[i] = packet[i]&^m | rapid.Byte().Draw(t, "masked")&m
			}
		}
		remark(packet, packet[1], packet[8])
		var r Received
		if err := v.DecodeIP(packet, &r); err != nil {
			t.Fatal(err)
		}
	})
}

// TestVerifyFindsID sends with one ID and verifies with another as the hint.
func TestVerifyFindsID(t *testing.T) {
	var v Verifier // one for all, so that its cache fills and collides
	rapid.Check(t, func(t *rapid.T) {
		f, p := drawPacket(t)
		id, hint := rapid.Uint16().Draw(t, "id"), rapid.Uint16().Draw(t, "hint")
		var s Sealer
		packet := s.AppendIP(nil, &f, id, &p)
		own, udpPayload := sender(f), packet[ipHeaderLen(packet)+udpLen:]
		if f.Local.Is6() {
			if got, ok := v.Verify(&own, udpPayload, hint); !ok || got != 0 {
				t.Fatalf("over IPv6: ID %d, %v", got, ok)
			}
			return
		}
		if got, ok := v.Verify(&own, udpPayload, hint); !ok || got != id {
			t.Fatalf("sent with ID %d, found %d, %v", id, got, ok)
		}
	})
}

// TestVerifySegments finds each of the IDs of a super-packet from each hint
// that the receiver of a re-split one could have.
func TestVerifySegments(t *testing.T) {
	var s Sealer
	var v Verifier
	f := flows[0]
	own := sender(f)
	for _, size := range []int{0, 1, 1024, 4095, 4096} {
		p := Packet{Header: Header{Opcode: WriteMiddle}, Payload: [][]byte{make([]byte, size)}}
		for id := range uint16(128) {
			packet := s.AppendIP(nil, &f, id, &p)
			for _, hint := range []uint16{0, id / 2, id, 127} {
				if got, ok := v.Verify(&own, packet[ipv4Len+udpLen:], hint); !ok || got != id {
					t.Fatalf("%d bytes, ID %d, hint %d: found %d, %v", size, id, hint, got, ok)
				}
			}
		}
	}
}

// TestVerifyEveryID finds every ID there is.
func TestVerifyEveryID(t *testing.T) {
	var s Sealer
	var v Verifier
	p := Packet{Header: Header{Opcode: SendOnly}, Payload: [][]byte{make([]byte, 16)}}
	own := sender(flows[0])
	var packet []byte
	for id := range 1 << 16 {
		packet = s.AppendIP(packet[:0], &flows[0], uint16(id), &p)
		if got, ok := v.Verify(&own, packet[ipv4Len+udpLen:], uint16(id*7)); !ok || got != uint16(id) {
			t.Fatalf("sent with ID %d, found %d, %v", id, got, ok)
		}
	}
}

// TestVerifyStrength counts how often noise looks intact: with n IDs that are
// believed, n in 2^32 on average; so with all 65536 of them one in 65536.
func TestVerifyStrength(t *testing.T) {
	var s Sealer
	var v Verifier
	f := flows[0]
	own := sender(f)
	udpPayload := s.AppendIP(nil, &f, 0, &Packet{Header: Header{Opcode: SendOnly}})[ipv4Len+udpLen:]
	icrc := udpPayload[len(udpPayload)-icrcLen:]
	const tries = 1 << 20
	all, few := 0, 0
	noise := uint32(1)
	for range tries {
		noise = noise*1664525 + 1013904223
		icrc[0], icrc[1], icrc[2], icrc[3] = byte(noise), byte(noise>>8), byte(noise>>16), byte(noise>>24)
		if id, ok := v.Verify(&own, udpPayload, 0); ok {
			all++
			if id <= 127 {
				few++
			}
		}
	}
	if all < tries>>18 || all > 4*tries>>16 || few > 1 {
		t.Errorf("of %d corrupted packets %d passed with all IDs, about %d expected, and %d with 128", tries, all, tries>>16, few)
	}
}

func TestDecodeIPErrors(t *testing.T) {
	var s Sealer
	p := Packet{Header: Header{Opcode: SendOnly, PKey: DefaultPKey}, Payload: [][]byte{[]byte("hello")}}
	for _, test := range []struct {
		name   string
		family int // 0: IPv4, 1: IPv6
		edit   func(b []byte) []byte
		want   error
	}{
		{"empty", 0, func(b []byte) []byte { return nil }, ErrNotRoCE},
		{"cut in the IPv6 header", 1, func(b []byte) []byte { return b[:47] }, ErrNotRoCE},
		{"version 5", 0, func(b []byte) []byte { b[0] = 0x55; return b }, ErrNotRoCE},
		{"IP options", 0, func(b []byte) []byte { b[0] = 0x46; return b }, ErrNotRoCE},
		{"more fragments", 0, func(b []byte) []byte { b[6] = 0x20; return b }, ErrNotRoCE},
		{"TCP", 0, func(b []byte) []byte { b[9] = 6; return b }, ErrNotRoCE},
		{"hop-by-hop options", 1, func(b []byte) []byte { b[6] = 0; return b }, ErrNotRoCE},
		{"another port", 0, func(b []byte) []byte { b[23]--; return b }, ErrNotRoCE},
		{"packet cut", 0, func(b []byte) []byte { return b[:len(b)-1] }, ErrTruncated},
		{"packet cut, IPv6", 1, func(b []byte) []byte { return b[:len(b)-1] }, ErrTruncated},
		{"UDP shorter than IP", 0, func(b []byte) []byte { b[25] -= 4; return b }, ErrLength},
		{"IP total length short of UDP", 0, func(b []byte) []byte { b[3], b[24], b[25] = 20, 0, 0; return b }, ErrLength},
		{"no room for a BTH", 1, func(b []byte) []byte { b[5], b[45] = 12, 12; return b }, ErrTruncated},
		{"unknown opcode", 0, func(b []byte) []byte { b[28] = 0x15; return b }, ErrOpcode},
		{"payload", 0, func(b []byte) []byte { b[40]++; return b }, ErrICRC},
		{"identification", 0, func(b []byte) []byte { b[5]++; return b }, ErrICRC},
		{"don't-fragment flag", 0, func(b []byte) []byte { b[6] = 0; return b }, ErrICRC},
		{"address", 1, func(b []byte) []byte { b[39]++; return b }, ErrICRC},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := test.edit(s.AppendIP(nil, &flows[test.family], 0, &p))
			if len(b) >= ipv4Len {
				remark(b, 0, 64)
			}
			var v Verifier
			var r Received
			if err := v.DecodeIP(b, &r); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
	b := s.AppendIP(nil, &flows[0], 0, &p)
	b[11]++
	if err := new(Verifier).DecodeIP(b, new(Received)); !errors.Is(err, ErrChecksum) {
		t.Errorf("wrong checksum: error %v", err)
	}
}

// TestNoAllocation covers what runs per packet.
func TestNoAllocation(t *testing.T) {
	var s Sealer
	var v Verifier
	var h Header
	var r Received
	p := Packet{Header: Header{Opcode: WriteOnlyImm}, Payload: [][]byte{make([]byte, 1000), make([]byte, 3095)}}
	header, ip := make([]byte, 0, 64), make([]byte, 0, 8192)
	for i := range flows {
		own := sender(flows[i])
		packet := s.AppendIP(nil, &flows[i], 5, &p)
		udpPayload := packet[ipHeaderLen(packet)+udpLen:]
		for name, run := range map[string]func(){
			"Header.Append": func() { header = p.Header.Append(header[:0], 4095) },
			"Append":        func() { ip = s.Append(ip[:0], &flows[i], 5, &p) },
			"AppendIP":      func() { ip = s.AppendIP(ip[:0], &flows[i], 5, &p) },
			"Decode": func() {
				if _, err := Decode(udpPayload, &h); err != nil {
					t.Error(err)
				}
			},
			"Verify": func() {
				if _, ok := v.Verify(&own, udpPayload, 7); !ok {
					t.Error("not verified")
				}
			},
			"DecodeIP": func() {
				if err := v.DecodeIP(packet, &r); err != nil {
					t.Error(err)
				}
			},
			"PSNDiff, RNRCode": func() { _, _ = PSNDiff(1, 2), RNRCode(1000) },
		} {
			if n := testing.AllocsPerRun(100, run); n != 0 {
				t.Errorf("%s over %v: %v allocations", name, flows[i].Local, n)
			}
		}
	}
}

func BenchmarkHeaderAppend(b *testing.B) {
	for _, h := range []Header{{Opcode: WriteMiddle}, {Opcode: WriteFirst}, {Opcode: Acknowledge}} {
		b.Run(h.Opcode.String(), func(b *testing.B) {
			buf := make([]byte, 0, MaxHeaderLen)
			b.ReportAllocs()
			for b.Loop() {
				buf = h.Append(buf[:0], 4096)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, h := range []Header{{Opcode: WriteMiddle}, {Opcode: WriteFirst}, {Opcode: Acknowledge}} {
		b.Run(h.Opcode.String(), func(b *testing.B) {
			packet := datagram(&h, make([]byte, 4096))
			var got Header
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(packet, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{0, 64, 1024, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var s Sealer
			p := Packet{Header: Header{Opcode: WriteOnly}, Payload: [][]byte{make([]byte, size)}}
			packet := make([]byte, 0, MaxMTU+100)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				s.Append(packet, &flows[0], 3, &p)
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{0, 64, 1024, 4096} {
		for _, hint := range []uint16{3, 4} {
			name := map[uint16]string{3: "right hint", 4: "wrong hint"}[hint]
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				var s Sealer
				var v Verifier
				p := Packet{Header: Header{Opcode: WriteOnly}, Payload: [][]byte{make([]byte, size)}}
				udpPayload := s.AppendIP(nil, &flows[0], 3, &p)[ipv4Len+udpLen:]
				own := sender(flows[0])
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, ok := v.Verify(&own, udpPayload, hint); !ok {
						b.Fatal("not verified")
					}
				}
			})
		}
	}
}

func BenchmarkDecodeIP(b *testing.B) {
	var s Sealer
	var v Verifier
	var r Received
	p := Packet{Header: Header{Opcode: WriteOnly}, Payload: [][]byte{make([]byte, 4096)}}
	packet := s.AppendIP(nil, &flows[0], 3, &p)
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.DecodeIP(packet, &r); err != nil {
			b.Fatal(err)
		}
	}
}
