package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unhex reads bytes written in hexadecimal with spaces and line ends.
func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// virtio is a virtio header in this machine's byte order.
func virtio(flags, gso byte, headers, size, start, offset uint16) []byte {
	h := make([]byte, HeaderLen)
	h[0], h[1] = flags, gso
	for i, v := range []uint16{headers, size, start, offset} {
		binary.NativeEndian.PutUint16(h[2+2*i:], v)
	}
	return h
}

const ethernet4 = "020000000002 020000000001 0800"
const ethernet6 = "020000000002 020000000001 86dd"

// A UDP super-packet of 5 bytes in segments of 2. Lengths, identification and
// checksums below were worked out by hand (RFC 791, RFC 768).
var (
	udp4 = ethernet4 + `
		4500 0021 fffe 4000 4011 0000  0a000001 0a000002
		c000 12b7 000d 0000  6162636465`
	udp4Packets = []string{
		ethernet4 + `
		4500 001e fffe 4000 4011 26ce  0a000001 0a000002
		c000 12b7 000a b7bd  6162`,
		ethernet4 + `
		4500 001e ffff 4000 4011 26cd  0a000001 0a000002
		c000 12b7 000a b5bb  6364`,
		ethernet4 + `
		4500 001d 0000 4000 4011 26ce  0a000001 0a000002
		c000 12b7 0009 b421  65`,
	}
)

func superUDP4() []byte {
	return append(virtio(needsCsum, gsoUDP, 42, 2, 34, 6), unhex(udp4)...)
}

func TestUDPSuperPacket(t *testing.T) {
	f, err := Parse(superUDP4())
	if err != nil {
		t.Fatal(err)
	}
	if f.Segments() != 3 {
		t.Fatalf("%d segments, want 3", f.Segments())
	}
	for i, want := range udp4Packets {
		got := f.AppendPacket([]byte("before"), i)[6:]
		if diff := cmp.Diff(hex.Dump(unhex(want)), hex.Dump(got)); diff != "" {
			t.Errorf("packet %d (-want +got):\n%s", i, diff)
		}
		if f.Size(i) != len(got) {
			t.Errorf("packet %d: size %d, has %d bytes", i, f.Size(i), len(got))
		}
	}
}

func TestHeadersOfRuns(t *testing.T) {
	f, err := Parse(superUDP4())
	if err != nil {
		t.Fatal(err)
	}
	// Packets 1 and 2 as a super-packet: identification of the first, pseudo-header
	// sum (0a000001 + 0a000002 + 17 + 11 = 141f) in the checksum.
	want := append(virtio(needsCsum, gsoUDP, 42, 2, 34, 6), unhex(ethernet4+`
		4500 001f ffff 4000 4011 26cc  0a000001 0a000002
		c000 12b7 000b 141f`)...)
	if diff := cmp.Diff(hex.Dump(want), hex.Dump(f.AppendHeaders(nil, 1, 2))); diff != "" {
		t.Errorf("packets 1 and 2 (-want +got):\n%s", diff)
	}
	if got := f.Payload(1, 2); string(got) != "cde" {
		t.Errorf("payload of packets 1 and 2: %q", got)
	}
	// Packet 2 alone: no super-packet any more.
	want = append(virtio(needsCsum, gsoNone, 42, 0, 34, 6), unhex(ethernet4+`
		4500 001d 0000 4000 4011 26ce  0a000001 0a000002
		c000 12b7 0009 141d`)...)
	if diff := cmp.Diff(hex.Dump(want), hex.Dump(f.AppendHeaders(nil, 2, 1))); diff != "" {
		t.Errorf("packet 2 (-want +got):\n%s", diff)
	}
}

// A TCP super-packet: sequence numbers count bytes and wrap, FIN and PSH are on
// the last segment only, CWR and the mark for it on the first.
func TestTCPSuperPacket(t *testing.T) {
	for _, c := range []struct {
		name   string
		gso    byte
		header string
		l4     int
	}{
		{"IPv4", gsoTCPv4, ethernet4 + "4500 0000 0007 4000 4006 0000  0a000001 0a000002", 34},
		{"IPv6", gsoTCPv6, ethernet6 + "6000 0000 0000 06 40 fd000000000000000000000000000001 fd000000000000000000000000000002", 54},
		{"IPv6 with options", gsoTCPv6, ethernet6 + "6000 0000 0000 00 40 fd000000000000000000000000000001 fd000000000000000000000000000002 06 00 010400000000", 62},
	} {
		t.Run(c.name, func(t *testing.T) {
			const flags = tcpFIN | tcpPSH | tcpCWR | 0x10
			tcp := unhex("1000 2000 fffffffe 00000009 8000 ffff 0000 0000 01010101 01010101 01010101")
			tcp[tcpFlags] = flags
			b := append(virtio(needsCsum, c.gso|gsoECN, uint16(c.l4+32), 4, uint16(c.l4), tcpCsum), unhex(c.header)...)
			b = append(append(b, tcp...), "0123456789"...)
			f, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if f.Segments() != 3 {
				t.Fatalf("%d segments, want 3", f.Segments())
			}
			for i, want := range []struct {
				seq     uint32
				flags   byte
				payload string
			}{{0xfffffffe, tcpCWR | 0x10, "0123"}, {2, 0x10, "4567"}, {6, tcpFIN | tcpPSH | 0x10, "89"}} {
				p := f.AppendPacket(nil, i)
				got := p[c.l4:]
				if seq := binary.BigEndian.Uint32(got[4:]); seq != want.seq {
					t.Errorf("segment %d: sequence number %#x, want %#x", i, seq, want.seq)
				}
				if got[tcpFlags] != want.flags {
					t.Errorf("segment %d: flags %#x, want %#x", i, got[tcpFlags], want.flags)
				}
				if string(got[32:]) != want.payload {
					t.Errorf("segment %d: payload %q, want %q", i, got[32:], want.payload)
				}
				checkPacket(t, p)
			}
			if h := f.AppendHeaders(nil, 0, 2); h[offGSO] != c.gso|gsoECN {
				t.Errorf("first run: offload %#x", h[offGSO])
			}
			if h := f.AppendHeaders(nil, 1, 2); h[offGSO] != c.gso {
				t.Errorf("later run: offload %#x", h[offGSO])
			}
		})
	}
}

// checkPacket verifies the lengths and checksums of a TCP or UDP packet, adding
// up byte by byte.
func checkPacket(t *testing.T, p []byte) {
	t.Helper()
	l4, proto, ipv6, ok := networkHeader(p, ethernetLen)
	if !ok {
		t.Fatalf("no IP packet:\n%s", hex.Dump(p))
	}
	pseudo := p[ethernetLen+12 : ethernetLen+20]
	if ipv6 {
		pseudo = p[ethernetLen+8 : ethernetLen+40]
		if n := int(binary.BigEndian.Uint16(p[ethernetLen+4:])); n != len(p)-ethernetLen-ipv6Len {
			t.Errorf("IPv6 length %d of a packet of %d bytes", n, len(p))
		}
	} else {
		if n := int(binary.BigEndian.Uint16(p[ethernetLen+2:])); n != len(p)-ethernetLen {
			t.Errorf("IPv4 length %d of a packet of %d bytes", n, len(p))
		}
		if s := slowSum(p[ethernetLen:l4]); s != 0xffff {
			t.Errorf("IPv4 header adds up to %#x", s)
		}
	}
	all := append(bytes.Clone(pseudo), 0, proto, byte((len(p)-l4)>>8), byte(len(p)-l4))
	if s := slowSum(append(all, p[l4:]...)); s != 0xffff {
		t.Errorf("protocol %d with its pseudo-header adds up to %#x", proto, s)
	}
}

func slowSum(b []byte) uint32 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i%2))
		s = s>>16 + s&0xffff
	}
	return s
}

func TestSum(t *testing.T) {
	b := make([]byte, 100)
	for i := range b {
		b[i] = byte(255 - i)
	}
	for n := range b {
		if got, want := uint32(fold(sum(b[:n]))), slowSum(b[:n]); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	ones := bytes.Repeat([]byte{0xff}, 65535)
	if got, want := uint32(fold(sum(ones))), slowSum(ones); got != want {
		t.Errorf("ones: %#x, want %#x", got, want)
	}
}

// A single packet whose checksum the sender left open is completed.
func TestSinglePacketIsCompleted(t *testing.T) {
	b := append(virtio(needsCsum, gsoNone, 0, 0, 34, udpCsum), unhex(ethernet4+`
		4500 001e fffe 4000 4011 26ce  0a000001 0a000002
		c000 12b7 000a 141e  6162`)...)
	f, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Segments() != 1 || f.Size(0) != len(b)-HeaderLen {
		t.Fatalf("%d segments, the first of %d bytes", f.Segments(), f.Size(0))
	}
	if diff := cmp.Diff(hex.Dump(unhex(udp4Packets[0])), hex.Dump(f.AppendPacket(nil, 0))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsNotSplit(t *testing.T) {
	change := func(f func(b []byte)) []byte {
		b := superUDP4()
		f(b)
		return b
	}
	for name, b := range map[string][]byte{
		"checksum done":      change(func(b []byte) { b[offFlags] = 0 }),
		"no size":            change(func(b []byte) { binary.NativeEndian.PutUint16(b[offGSOSize:], 0) }),
		"checksum elsewhere": change(func(b []byte) { binary.NativeEndian.PutUint16(b[offCsumStart:], 84) }),
		"other checksum":     change(func(b []byte) { binary.NativeEndian.PutUint16(b[offCsumOffset:], 16) }),
		"unknown offload":    change(func(b []byte) { b[offGSO] = 3 }),
		"TCP that is UDP":    change(func(b []byte) { b[offGSO] = gsoTCPv4 }),
		"fragment":           change(func(b []byte) { b[HeaderLen+ethernetLen+6] = 0x20 }),
		"other protocol":     change(func(b []byte) { b[HeaderLen+12] = 0x88 }),
		"no payload":         superUDP4()[:HeaderLen+42],
		"cut header":         superUDP4()[:HeaderLen+30],
	} {
		f, err := Parse(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if f.Segments() != 1 || f.Size(0) != len(b)-HeaderLen || !bytes.Equal(f.Bytes(), b) {
			t.Errorf("%s: %d segments", name, f.Segments())
		}
	}
	if _, err := Parse(make([]byte, HeaderLen+ethernetLen-1)); !errors.Is(err, ErrShort) {
		t.Errorf("too short: %v", err)
	}
}

func TestMove(t *testing.T) {
	b := superUDP4()
	f, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	f.Move(make([]byte, len(b)))
	clear(b)
	if got := f.AppendPacket(nil, 2); !bytes.Equal(got, unhex(udp4Packets[2])) {
		t.Errorf("after the move:\n%s", hex.Dump(got))
	}
}

// The parts of any frame that comes in make up the whole, and splitting a run
// gives the same packets as splitting the frame.
func FuzzFrame(f *testing.F) {
	f.Add(superUDP4(), 1, 2)
	f.Add(append(virtio(needsCsum, gsoTCPv4, 54, 4, 34, 16), unhex(ethernet4+`4500 0000 0007 4000 4006 0000  0a000001 0a000002
		1000 2000 fffffffe 00000009 5099 ffff 0000 0000 00112233445566778899`)...), 0, 1)
	f.Add(append(virtio(needsCsum, gsoUDP, 62, 3, 54, 6), unhex(ethernet6+`6000 0000 0000 11 40 fd000000000000000000000000000001 fd000000000000000000000000000002
		1000 12b7 0000 0000 001122334455667788`)...), 1, 1)
	f.Fuzz(func(t *testing.T, b []byte, first, count int) {
		if len(b) > MaxLen {
			return
		}
		whole, err := Parse(b)
		if err != nil {
			return
		}
		n := whole.Segments()
		if n == 1 {
			if got := whole.AppendPacket(nil, 0); len(got) != whole.Size(0) {
				t.Fatalf("packet of %d bytes, size %d", len(got), whole.Size(0))
			}
			return
		}
		if first < 0 || count < 1 || first >= n || count > n-first {
			return
		}
		payload := 0
		for i := range n {
			payload += len(whole.Payload(i, 1))
		}
		if payload != len(whole.Payload(0, n)) {
			t.Fatalf("%d bytes of payload in parts, %d in whole", payload, len(whole.Payload(0, n)))
		}
		headers := whole.AppendHeaders(nil, first, count)
		if len(headers) > MaxHeaders {
			t.Fatalf("headers of %d bytes", len(headers))
		}
		run, err := Parse(append(headers, whole.Payload(first, count)...))
		if err != nil || run.Segments() != count {
			t.Fatalf("run of %d packets: %d segments, %v", count, run.Segments(), err)
		}
		if len(b) > 10_000 {
			return // what follows takes long
		}
		for i := range count {
			want, got := whole.AppendPacket(nil, first+i), run.AppendPacket(nil, i)
			if !bytes.Equal(want, got) {
				t.Fatalf("packet %d by way of run %d+%d:\n%swant\n%s", first+i, first, count, hex.Dump(got), hex.Dump(want))
			}
			if len(want) != whole.Size(first+i) {
				t.Fatalf("packet %d of %d bytes, size %d", first+i, len(want), whole.Size(first+i))
			}
		}
	})
}

func TestSplittingDoesNotAllocate(t *testing.T) {
	b := append(superUDP4()[:HeaderLen+42], make([]byte, 15*4096)...)
	binary.NativeEndian.PutUint16(b[offGSOSize:], 4096)
	headers := make([]byte, 0, MaxHeaders)
	n := testing.AllocsPerRun(100, func() {
		f, err := Parse(b)
		if err != nil || f.Segments() != 15 {
			t.Fatalf("%d segments, %v", f.Segments(), err)
		}
		for i := range f.Segments() {
			headers = f.AppendHeaders(headers[:0], i, 1)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHeaders(b *testing.B) {
	super := append(superUDP4()[:HeaderLen+42], make([]byte, 15*4096)...)
	binary.NativeEndian.PutUint16(super[offGSOSize:], 4096)
	headers := make([]byte, 0, MaxHeaders)
	f, err := Parse(super)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		headers = f.AppendHeaders(headers[:0], 3, 1)
	}
}
