package udp

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

var foreign = roce.Flow{
	Local:      netip.MustParseAddr("10.0.0.9"),
	Remote:     netip.MustParseAddr("10.0.0.1"),
	SourcePort: 0xC123,
}

// A sealed makes the bytes that a UDP socket would hand over of packets from foreign.
type sealed struct {
	sealer roce.Sealer
	buf    []byte
}

func (s *sealed) packet(id uint16, p roce.Packet) []byte {
	s.buf = s.sealer.AppendIP(s.buf[:0], &foreign, id, &p)
	return s.buf[20+8:]
}

// A judge is a verifier of packets from foreign, and its clock.
type judge struct {
	verifier
	sealed
	received roce.Flow
	time     time.Duration
}

func newJudge() *judge {
	j := &judge{received: roce.Flow{Local: foreign.Remote, Remote: foreign.Local, SourcePort: foreign.SourcePort}}
	j.verifier = newVerifier(func() time.Duration { return j.time })
	return j
}

// takes reports whether an intact packet passes that arrives just now.
func (j *judge) takes(id, index uint16) bool {
	j.noteEmpty()
	return j.takesLate(id, index)
}

// takesLate is takes of a packet that may have waited.
func (j *judge) takesLate(id, index uint16) bool {
	j.setPeer(j.received.Remote)
	return j.intact(&j.received, j.packet(id, acknowledgement(uint32(id))), index)
}

// TestWaitingPackets has packets wait until the process gets its turn: what the
// peer sent to others between them is believed as if they had been taken at once.
func TestWaitingPackets(t *testing.T) {
	j := newJudge()
	for _, id := range []uint16{20000, 20001} {
		if !j.takes(id, 0) {
			t.Fatalf("%d was dropped", id)
		}
	}
	j.time += 10 * time.Millisecond
	for _, id := range []uint16{20002, 20002 + nearby + 5000, 20002 + 2*nearby + 10_000} {
		if !j.takesLate(id, 0) {
			t.Errorf("%d, which was sent within 10 ms, was dropped", id)
		}
	}
	j.noteEmpty()
	if j.takesLate(20002+2*nearby+10_000+nearby+1+10_000, 0) {
		t.Error("what cannot have been sent within 10 ms was taken")
	}
}

// TestEveryIdentification has one peer count through all identifications, and
// others begin at each, and count on.
func TestEveryIdentification(t *testing.T) {
	counter := newJudge()
	for i := range 1<<16 + 1000 {
		id := uint16(4768 + i)
		if !counter.takes(id, 0) {
			t.Fatalf("the one after %d was dropped", id-1)
		}
		beginner := newJudge()
		if !beginner.takes(id, 0) {
			t.Fatalf("a first packet with %d was dropped", id)
		}
		if id != 0 && !beginner.takes(id+nearby, 0) { // our kind begins with 0
			t.Fatalf("%d after a first packet with %d was dropped", id+nearby, id)
		}
	}
}

// TestBelieve gives the identifications of packets that are intact, and whether
// they are believed.
func TestBelieve(t *testing.T) {
	type step struct {
		id, index uint16
		after     time.Duration
		want      bool
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"our own", []step{{id: 0, want: true}, {id: 5, want: true}, {id: 127, want: true}, {id: 3, index: 3, want: true}}},
		{"our own, then what only corruption explains", []step{
			{id: 0, want: true}, {id: 128}, {id: 0, want: true}, {id: 128}, {id: 9, want: true}, {id: 129}, {id: 0xFFFF, want: true},
		}},
		{"our own do not count", []step{{id: 0, want: true}, {id: 127, want: true}, {id: 128}}},
		{"begins anywhere", []step{{id: 48000, want: true}, {id: 48001, want: true}}},
		{"a super-packet", []step{{id: 48000, want: true}, {id: 48001, index: 1, want: true}, {id: 48002, index: 2, want: true}}},
		{"some were lost", []step{{id: 48000, want: true}, {id: 48512, want: true}, {id: 49024, want: true}}},
		{"too many were lost", []step{{id: 48000, want: true}, {id: 48001, want: true}, {id: 48514}, {id: 48515, want: true}, {id: 48516, want: true}, {id: 60000}}},
		{"some were overtaken", []step{{id: 48512, want: true}, {id: 48000, want: true}, {id: 48001, want: true}, {id: 49024, want: true}}},
		{"overtaken by too many", []step{{id: 48513, want: true}, {id: 48514, want: true}, {id: 48001}, {id: 48515, want: true}}},
		{"wraps", []step{{id: 0xFFFF, want: true}, {id: 0, want: true}, {id: 1, want: true}, {id: 0xFFFE, want: true}, {id: 300, want: true}}},
		{"wraps with the identification that is tried first", []step{
			{id: 0xFFFF, want: true}, {id: 0, want: true}, {id: 300, want: true},
		}},
		{"wraps to the identification that is tried first", []step{
			{id: 0xFFFF - 1000, want: true}, {id: 0, after: time.Millisecond, want: true}, {id: 512, want: true},
		}},
		{"sends to others meanwhile", []step{
			{id: 48000, want: true}, {id: 48001, want: true},
			{id: 48001 + 512 + 1000, after: time.Millisecond, want: true}, {id: 48001 + 512 + 2001 + 512, after: time.Millisecond},
		}},
		{"can be anywhere after 66 ms", []step{
			{id: 48000, want: true}, {id: 48001, want: true}, {id: 47000, after: 66 * time.Millisecond, want: true}, {id: 20000},
		}},
		{"what may be overtaken after 65 ms was sent later", []step{
			{id: 48000, want: true}, {id: 48001, want: true}, {id: 47489, after: 65 * time.Millisecond, want: true},
			{id: 47100, want: true}, {id: 48001, want: true},
		}},
		{"jumps", []step{
			{id: 48000, want: true}, {id: 48001, want: true}, {id: 20000}, {id: 20001, want: true}, {id: 20002, want: true},
		}},
		{"goes on after what was corrupted", []step{
			{id: 48000, want: true}, {id: 48001, want: true}, {id: 20000}, {id: 48002, want: true}, {id: 20001}, {id: 48003, want: true},
		}},
		{"no order", []step{
			{id: 48000, want: true}, {id: 20000, want: true}, {id: 10000, want: true}, {id: 50000, want: true},
		}},
		{"small ones amid others", []step{
			{id: 48000, want: true}, {id: 48001, want: true}, {id: 100, want: true}, {id: 48002, want: true}, {id: 48003, want: true},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJudge()
			for i, s := range test.steps {
				j.time += s.after
				if got := j.takes(s.id, s.index); got != s.want {
					t.Errorf("step %d: identification %d: %v", i, s.id, got)
				}
			}
		})
	}
}

// TestCountingPeer draws what a Linux peer may send and the network do to it:
// nothing intact is lost.
func TestCountingPeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJudge()
		id := rapid.Uint16Min(1).Draw(t, "first") // with 0 it would be taken for one of our kind
		for range rapid.IntRange(1, 50).Draw(t, "packets") {
			if !j.takes(id, 0) {
				t.Fatalf("%d was dropped", id)
			}
			if behind := rapid.Uint16Range(0, nearby).Draw(t, "behind"); !j.takes(id-behind, 0) {
				t.Fatalf("%d, %d behind, was dropped", id-behind, behind)
			}
			idle := rapid.IntRange(0, 100_000).Draw(t, "idle us")
			j.time += time.Duration(idle) * time.Microsecond
			id += uint16(rapid.IntRange(0, idle).Draw(t, "to others")) + rapid.Uint16Range(1, nearby).Draw(t, "lost")
		}
	})
}

// corrupt changes what an ICRC covers, as links do: single bits, a burst, or all
// of what follows.
func corrupt(b []byte, random *rand.Rand) {
	switch random.IntN(3) {
	case 0:
		for range 1 + random.IntN(4) {
			b[12+random.IntN(len(b)-12)] ^= 1 << random.IntN(8)
		}
	case 1:
		at := 12 + random.IntN(len(b)-12-8)
		for i := range 8 {
			b[at+i] ^= byte(random.Uint32())
		}
	case 2:
		for i := 12 + random.IntN(len(b)-12-4); i < len(b); i++ {
			b[i] = byte(random.Uint32())
		}
	}
}

// TestCorruption corrupts a million packets amid intact ones, none of which may be
// lost. Of a peer that counts some 1200 identifications are believed while it is
// busy, so that 0.3 corrupted packets of a million are expected to pass; of ours,
// 0.03. After corruptions that happen to cancel out nothing is corrupt.
func TestCorruption(t *testing.T) {
	const million = 1 << 20
	for _, test := range []struct {
		name  string
		first uint16
		step  uint16
		most  int
	}{
		{"a peer of our kind", 0, 0, 1},
		{"a peer that counts", 48000, 1, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			j := newJudge()
			random := rand.New(rand.NewPCG(4, 4791))
			payload := make([]byte, 64)
			for i := range payload {
				payload[i] = byte(random.Uint32())
			}
			id, passed, solved := test.first, 0, 0
			for i := range million {
				if i%10 == 0 && !j.takes(id, 0) {
					t.Fatalf("after %d corrupted packets an intact one was dropped", i)
				}
				j.time += 10 * time.Microsecond
				id += test.step
				packet := acknowledgement(uint32(i))
				packet.Header.Opcode, packet.Payload = roce.SendOnly, [][]byte{payload}
				b := j.packet(id, packet)
				intact := string(b)
				if corrupt(b, random); string(b) == intact {
					continue
				}
				if j.intact(&j.received, b, 0) {
					passed++
				}
				if _, ok := j.icrc.Verify(&j.received, b, 0); ok {
					solved++
				}
			}
			t.Logf("%d passed, %d have a solution", passed, solved)
			if passed > test.most || solved < 4 || solved > 64 {
				t.Errorf("of a million corrupted packets %d passed; %d have a solution, where 16 are expected", passed, solved)
			}
		})
	}
}

// TestPeersAreApart has one peer count, and another be of our kind.
func TestPeersAreApart(t *testing.T) {
	j := newJudge()
	counting, own := j.received.Remote, netip.MustParseAddr("10.0.0.8")
	if !j.takes(48000, 0) || !j.takes(48001, 0) {
		t.Fatal("a peer that counts is not believed")
	}
	j.setPeer(own)
	if !j.peer.accept(7, 0, 0) || j.peer.accept(48002, 0, 0) {
		t.Error("a peer of our kind is believed what another counts")
	}
	j.setPeer(counting)
	if !j.peer.accept(48002, 0, 0) || j.peer.accept(128, 0, 0) {
		t.Error("a peer that counts is forgotten")
	}
}

// TestStrangers bounds what addresses that somebody makes up cost.
func TestStrangers(t *testing.T) {
	j := newJudge()
	a := netip.MustParseAddr("10.0.0.0")
	for range 3 * maxPeers {
		j.setPeer(a)
		a = a.Next()
	}
	if n := len(j.peers); n == 0 || n > maxPeers {
		t.Errorf("%d addresses are remembered", n)
	}
	if !j.takes(48000, 0) || !j.takes(48001, 0) {
		t.Error("a peer is not believed after many others")
	}
}

func TestInspectionDoesNotAllocate(t *testing.T) {
	j := newJudge()
	id := uint16(48000)
	if n := testing.AllocsPerRun(100, func() {
		id++
		if !j.takes(id, 0) || !j.takes(id, id) {
			t.Error("dropped")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkInspection is of a packet of 64 bytes from a peer of our kind, from
// the same one after it was cut out of a super-packet, and from one that counts.
func BenchmarkInspection(b *testing.B) {
	for _, test := range []struct {
		name      string
		id, index uint16
	}{{"known", 5, 5}, {"cut out", 5, 0}, {"counted", 48000, 0}} {
		b.Run(test.name, func(b *testing.B) {
			j := newJudge()
			start := time.Now()
			j.now = func() time.Duration { return time.Since(start) }
			if test.id <= maxID && !j.takes(0, 0) {
				b.Fatal("the first was dropped")
			}
			packet := j.packet(test.id, roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{make([]byte, 64)}})
			b.ReportAllocs()
			for b.Loop() {
				j.setPeer(j.received.Remote)
				if !j.intact(&j.received, packet, test.index) {
					b.Fatal("dropped")
				}
			}
		})
	}
}
