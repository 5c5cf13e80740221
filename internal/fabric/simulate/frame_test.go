package simulate

import (
	"math/bits"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

// A copy of a frame has nothing in common with it that changes, and it may be another by
// the time that the copy arrives.
func TestCopiesAreApart(t *testing.T) {
	var s frames
	memory := []byte("abc")
	f := s.get([][]byte{memory[:1], memory[1:]}, false)
	f.whole = []byte("abc")
	c := s.copy(f)
	memory[0], f.payload[1], f.whole[0] = 'x', 'x', 'x'
	if string(c.payload) != "abc" || string(c.whole) != "abc" {
		t.Errorf("the copy has become %s and %s", c.payload, c.whole)
	}
	constant := s.get([][]byte{memory}, true)
	if c := s.copy(constant); &constant.payload[0] != &memory[0] || &c.payload[0] != &memory[0] {
		t.Error("what does not change was copied")
	}
}

// Bits flip in a packet, and not in the memory that it was sent from, of which other packets
// are: neither in the first that has one flipped nor in a copy of it.
func TestFlipsAreOfPackets(t *testing.T) {
	l := up(t, pair("mtu: 4200"))
	path, _ := l.topo.Path("a", "b")
	flow := roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}
	damage := impair.New(1, "a link", 0)
	damage.Set(topology.Impairment{Corrupt: topology.Corrupt{Probability: 1, Bits: 1}}, 0)
	var s frames
	for _, constant := range []bool{false, true} {
		memory := []byte("payload!")
		f := s.get([][]byte{memory}, constant)
		f.way, f.header = &way{flow: flow}, roce.Header{Opcode: roce.SendOnly}
		for flips := range 2 {
			at := ethernetLen + f.ip() + f.header.Opcode.HeaderLen()
			v := damage.Packet(&impair.Packet{Frame: at + len(memory), Payload: at}, 0)
			f.flip(&l.network.shards[0].sealer, &v.Flip)
			flipped := 0
			for i, b := range f.whole[at:][:len(memory)] {
				flipped += bits.OnesCount8(b ^ "payload!"[i])
			}
			if flipped != flips+1 || string(memory) != "payload!" {
				t.Errorf("constant %v: %d bits have flipped in %q, want %d, and %q is in memory", constant, flipped, f.whole[at:], flips+1, memory)
			}
			c := s.copy(f)
			s.put(f)
			f = c
		}
	}
}

// The memory of frames is used again, for payloads of about the same length.
func TestFramesAreUsedAgain(t *testing.T) {
	var s frames
	for _, n := range []int{0, 1, 256, 257, 4096, 5096} {
		payload := [][]byte{make([]byte, n)}
		f := s.get(payload, false)
		room := f.payload
		s.put(f)
		again := s.get(payload, false)
		if again != f || n > 0 && &again.payload[0] != &room[0] {
			t.Errorf("a frame for %d bytes is not used again", n)
		}
		if cap(room) > 2*n {
			t.Errorf("%d bytes take %d", n, cap(room))
		}
		s.put(again)
		s.put(s.get(payload, true)) // whose memory is not ours to use again
		if next := s.get(payload, false); n > 0 && &next.payload[0] == &payload[0][0] {
			t.Errorf("%d bytes of a sender's memory are used for another payload", n)
		}
	}
}

// A packet some bits of which have flipped is treated as a kernel and a carrier on sockets
// treat it.
func TestDamagedPackets(t *testing.T) {
	l := up(t, pair("mtu: 4200"))
	path, _ := l.topo.Path("a", "b")
	p := l.network.byName["b"].life.port
	for _, c := range []struct {
		name      string
		damage    func(whole []byte)
		ok        bool
		wrong     uint64
		malformed uint64
	}{
		{"none", func([]byte) {}, true, 0, 0},
		{"the address of the interface", func(w []byte) { w[3] ^= 1 }, false, 0, 0},
		{"the checksum of the IP header", func(w []byte) { w[ethernetLen+8] ^= 1 }, false, 0, 0},
		{"payload", func(w []byte) { w[len(w)-8] ^= 1 }, false, 1, 0},
		{"the length in UDP's header", func(w []byte) { w[ethernetLen+ipv4Len+5] ^= 1 }, false, 0, 1},
	} {
		f := &frame{way: &way{flow: roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}}, header: roce.Header{Opcode: roce.SendOnly}, payload: []byte("payload!")}
		packet := roce.Packet{Header: f.header, Payload: [][]byte{f.payload}}
		f.whole = l.network.shards[0].sealer.AppendIP(make([]byte, ethernetLen), &f.way.flow, 0, &packet)
		c.damage(f.whole)
		wrong, malformed := p.wrong, p.malformed
		var r roce.Received
		if ok := p.decode(f, &r); ok != c.ok || p.wrong-wrong != c.wrong || p.malformed-malformed != c.malformed {
			t.Errorf("%s: arrives %v; %d wrong, %d malformed", c.name, ok, p.wrong-wrong, p.malformed-malformed)
		}
	}
}
