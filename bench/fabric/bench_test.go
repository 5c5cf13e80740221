package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
)

// made is a frame of UDP or TCP over IPv4 as a packet socket gives it, of which
// gso bytes of payload go into each packet.
func made(protocol byte, payload, gso int) []byte {
	l4 := map[byte]int{17: 8, 6: 32}[protocol]
	b := make([]byte, frame.HeaderLen+14+20+l4+payload)
	if gso > 0 {
		b[1] = map[byte]byte{17: 5, 6: 1}[protocol]
		binary.NativeEndian.PutUint16(b[4:], uint16(gso))
	}
	eth := b[frame.HeaderLen:]
	binary.BigEndian.PutUint16(eth[12:], 0x0800)
	ip := eth[14:]
	ip[0], ip[9] = 0x45, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(20+l4+payload))
	if protocol == 6 {
		ip[20+12] = 8 << 4
	} else {
		binary.BigEndian.PutUint16(ip[20+2:], probePort)
	}
	return b
}

func TestLook(t *testing.T) {
	for _, c := range []struct {
		name    string
		frame   []byte
		packets int
		wire    uint64
		port    uint16
	}{
		{"padded", made(17, 1, 0), 1, 60 + 24, probePort},
		{"a datagram", made(17, 1000, 0), 1, 42 + 1000 + 24, probePort},
		{"a super-packet with a short last packet", made(17, 2*1000+1, 1000), 3, 2*(42+1000+24) + 60 + 24, probePort},
		{"a super-packet of whole packets", made(17, 3*1000, 1000), 3, 3 * (42 + 1000 + 24), probePort},
		{"TCP", made(6, 2900, 1450), 2, 2 * (66 + 1450 + 24), 0},
		{"TCP without payload", made(6, 0, 0), 1, 66 + 24, 0},
	} {
		// The headers tell as much as the whole frame.
		for _, b := range [][]byte{c.frame, c.frame[:min(tapHeaders, len(c.frame))]} {
			if s := look(b); s.packets != c.packets || s.wire != c.wire || s.udpPort != c.port {
				t.Errorf("%s, %d bytes of it: %d packets, %d bytes, port %d", c.name, len(b), s.packets, s.wire, s.udpPort)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	b := made(17, 3*100, 100)
	for i := range 3 {
		binary.BigEndian.PutUint64(b[frame.HeaderLen+42+i*100:], uint64(7+i))
	}
	s := look(b)
	var got []uint64
	s.numbers(func(n uint64) { got = append(got, n) })
	if len(got) != 3 || got[0] != 7 || got[2] != 9 {
		t.Error(got)
	}
}

func TestLostAndTwice(t *testing.T) {
	l := &Lost{times: make([]uint8, 4)}
	see := l.see(probePort)
	for _, n := range []uint64{0, 2, 2, 99} {
		b := made(17, 64, 0)
		binary.BigEndian.PutUint64(b[frame.HeaderLen+42:], n)
		see(0, b)
	}
	if err := l.finish(); err != nil {
		t.Fatal(err)
	}
	if len(l.Lost) != 2 || l.Lost[0] != 1 || l.Lost[1] != 3 || len(l.Twice) != 1 || l.Twice[0] != 2 {
		t.Errorf("%+v", l)
	}
}

// A rate is that of a stretch between two frames, whatever was before and after.
func TestWireRate(t *testing.T) {
	w, err := newWire("100ms", "1s")
	if err != nil {
		t.Fatal(err)
	}
	frame := made(17, 4096, 0) // 4162 bytes on a wire
	w.see(-5e6, made(17, 10, 0))
	for i := range 50 { // a burst to begin with
		w.see(int64(i), frame)
	}
	for ms := int64(1); ms < 2000; ms++ {
		w.see(ms*1e6, frame)
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	if want := 4162.0 * 8 * 1000; w.Rate < want*0.9999 || w.Rate > want*1.0001 {
		t.Errorf("%.0f b/s, want %.0f", w.Rate, want)
	}
	w, err = newWire("100ms", "1s")
	if err != nil {
		t.Fatal(err)
	}
	w.see(0, frame)
	w.see(int64(time.Second), frame)
	if w.finish() == nil {
		t.Error("a rate of two frames")
	}
}

func TestCompare(t *testing.T) {
	r := Results{Engines: []string{"linkem", "netem"}, Rows: []Row{
		{Part: "loss", What: "w", Asked: "1%", Engine: "linkem", Got: "1.0", OK: true},
		{Part: "loss", What: "w", Asked: "1%", Engine: "netem", Got: "3.0", Limit: "2"},
		{Part: "idle", What: "w", Engine: "linkem", Got: "0", OK: true},
		{Part: "tcp", What: "w", Engine: "linkem", Got: "not measured", Error: "no way"},
	}}
	r.lack("idle", "netem", "for a reason")
	var b strings.Builder
	r.compare(&b)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "1.0  ok") || !strings.HasSuffix(lines[1], "3.0  MISSED") ||
		!strings.HasSuffix(lines[2], "-  for a reason") || !strings.HasSuffix(lines[3], "-") {
		t.Error(b.String())
	}
	const want = "missed:\n  loss, netem: w, 1%: got 3.0, limit 2\n  tcp, linkem: w, : not measured: no way"
	if err := r.missed(); err == nil || err.Error() != want {
		t.Error(err)
	}
	r.Rows = r.Rows[:1]
	if err := r.missed(); err != nil {
		t.Error(err)
	}
}
