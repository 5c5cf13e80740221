package transport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

const creditPacket = 4096 + rc.PacketOverhead

// A poolTest is a pool of so many full packets, of which nothing is free as yet, and who
// has been given credit from it.
type poolTest struct {
	*testing.T
	pool    creditPool
	started int
	names   map[*Channel]string
}

func newPoolTest(t *testing.T, packets int) *poolTest {
	p := &poolTest{T: t, names: map[*Channel]string{}}
	p.pool.init(packets*creditPacket, func(func()) { p.started++ })
	p.pool.take(p.pool.size)
	return p
}

// wait has somebody wait for so many full packets.
func (p *poolTest) wait(name string, packets int64) {
	c := &Channel{}
	p.names[c] = name
	p.pool.wait(c, packets*creditPacket)
}

// given fails the test unless just these have been given credit since, for as many packets.
func (p *poolTest) given(want ...any) {
	p.Helper()
	var got []any
	for p.pool.resumable.n > 0 {
		r := p.pool.resumable.pop()
		p.pool.resumableCount.Add(-1)
		got = append(got, p.names[r.channel], int(r.bytes/creditPacket))
	}
	if d := cmp.Diff(want, got); d != "" {
		p.Errorf("given (-want +got):\n%s", d)
	}
}

func TestCreditPoolSize(t *testing.T) {
	for _, test := range []struct{ packets, size, turn int64 }{
		{0, 2, 1}, {1, 2, 1}, {10, 10, 5}, {64, 64, turnPackets}, {1000, 1000, turnPackets},
	} {
		var p creditPool
		p.init(int(test.packets)*creditPacket, nil)
		if p.size != test.size*creditPacket || p.turn != test.turn*creditPacket {
			t.Errorf("of %d packets: %d, in turns of %d, want %d and %d", test.packets,
				p.size/creditPacket, p.turn/creditPacket, test.size, test.turn)
		}
	}
}

// TestCreditPoolLine: whoever wants more than there is waits in line, and gets a turn as
// soon as there is one; those who want less than a turn need not wait for one; the last gets
// all that there is; and nobody passes the line.
func TestCreditPoolLine(t *testing.T) {
	p := newPoolTest(t, 1000)
	p.wait("greedy", 500)
	p.wait("modest", 2)
	p.wait("last", 300)
	p.pool.put((turnPackets - 1) * creditPacket)
	p.given()
	if n := p.pool.take(creditPacket); n > 0 {
		t.Errorf("somebody who does not wait gets %d bytes", n)
	}
	p.pool.put(creditPacket)
	p.given("greedy", turnPackets)
	p.pool.put(2 * creditPacket)
	p.given("modest", 2)
	p.pool.put((turnPackets - 1) * creditPacket)
	p.given()
	p.pool.put(100 * creditPacket)
	p.given("last", turnPackets+99)
	if n := p.pool.take(creditPacket); n > 0 {
		t.Errorf("%d bytes are left", n)
	}
	p.pool.put(10 * creditPacket)
	if n := p.pool.take(creditPacket); n != creditPacket {
		t.Errorf("%d bytes can be taken when nobody waits", n)
	}
}

// TestCreditPoolInTime: what was given back just before somebody got in line is not missed.
func TestCreditPoolInTime(t *testing.T) {
	p := newPoolTest(t, 1000)
	p.pool.put(10 * creditPacket)
	p.wait("modest", 5)
	p.given("modest", 5)
}

func TestCreditPoolIsAll(t *testing.T) {
	p := newPoolTest(t, 1000)
	if !p.pool.isWholePool(p.pool.size) || p.pool.isWholePool(p.pool.size-1) {
		t.Error("who has all has not, or who has less has")
	}
	p.wait("somebody", 1)
	if p.pool.isWholePool(p.pool.size) {
		t.Error("nobody should want any, but somebody waits")
	}
}

// TestCreditPoolResumes those who have been given credit when the goroutine that handles
// packets is through with them, or at once where there is none.
func TestCreditPoolResumes(t *testing.T) {
	p := newPoolTest(t, 1000)
	p.wait("first", 1)
	p.pool.receiving.Add(1)
	p.pool.put(creditPacket)
	if p.started != 0 {
		t.Error("a goroutine was started though one is at work")
	}
	p.pool.receiving.Add(-1)
	p.wait("second", 1)
	p.pool.put(creditPacket)
	if p.started != 1 {
		t.Errorf("%d goroutines were started, want 1", p.started)
	}
	p.given("first", 1, "second", 1)
}
