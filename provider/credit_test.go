package provider_test

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A creditWorld is a client with several queue pairs connected with one server, which
// WRITE; and what of that is on its way.
type creditWorld struct {
	*world
	client, server *host
	gates          [2]*gate
	qps            []*provider.QP
	numbers        []uint32 // of the server's ends
	capacity       int      // packets that the credit is good for
	sent, arrived  map[uint32]int
	most           int             // packets on their way at once
	deaf           map[uint32]bool // server's ends that nothing reaches
}

const creditPayload = 4096

func newCreditWorld(t *testing.T, n int) *creditWorld {
	t.Helper()
	w, gates := newGatedWorld(t)
	c := &creditWorld{world: w, gates: gates, sent: map[uint32]int{}, arrived: map[uint32]int{}, deaf: map[uint32]bool{}}
	for i := range n {
		if i == 0 {
			w.connect()
		} else {
			w.rejoin()
		}
		c.client, c.server = w.hosts[0], w.hosts[1]
		c.qps = append(c.qps, c.client.qp)
		c.numbers = append(c.numbers, c.server.qp.Number())
	}
	c.capacity = c.client.device.Credit() / (creditPayload + rc.PacketOverhead)
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil {
			t.Fatal(err)
		}
		if p.Header.Opcode.IsWrite() {
			c.sent[p.Header.DestQPN]++
			c.most = max(c.most, sum(c.sent)-sum(c.arrived))
		}
	})
	gates[1].change = func(p *roce.Received) {
		if p.Header.Opcode.IsWrite() {
			c.arrived[p.Header.DestQPN]++
		}
		if c.deaf[p.Header.DestQPN] {
			p.Header.DestQPN = 0
		}
	}
	return c
}

func sum(counts map[uint32]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// write has the i-th queue pair write n bytes.
func (c *creditWorld) write(i, n int) {
	c.t.Helper()
	c.want(c.qps[i].Write(i, c.client.at(0, n), base, c.server.mr.RemoteToken(), 0), success)
}

// allBack fails the test if credit is missing.
func (c *creditWorld) allBack() {
	c.t.Helper()
	c.settle()
	if free, all := c.client.device.FreeCredit(), c.client.device.Credit(); free != all {
		c.t.Errorf("%d of %d bytes of credit are left", free, all)
	}
}

// TestCredit: what all queue pairs of a device may have in flight, on a path of which
// nothing else is known, is what the receive buffer at the other end holds. One alone
// may have all of it; then others wait, until it has no use for it any more.
func TestCredit(t *testing.T) {
	c := newCreditWorld(t, 3)
	if want := c.network.Attach(mtu).ReceiveBuffer() / (creditPayload + rc.PacketOverhead); c.capacity != want {
		t.Fatalf("credit for %d packets, the receive buffer holds %d", c.capacity, want)
	}
	c.write(0, 1<<20)
	if sent := c.sent[c.numbers[0]]; sent != 4 {
		t.Errorf("%d packets sent before a round trip is known, want 4", sent)
	}
	c.client.results(1)
	c.allBack()
	clear(c.sent)
	for _, n := range c.numbers {
		c.deaf[n] = true
	}
	c.write(0, 1<<20)
	c.write(1, 1<<20)
	c.write(2, 1)
	check := func(when string, want ...int) {
		t.Helper()
		for i, n := range c.numbers {
			if c.sent[n] != want[i] {
				t.Errorf("%s: queue pair %d has sent %d packets, want %d", when, i, c.sent[n], want[i])
			}
		}
	}
	check("at first", c.capacity, 0, 0)
	c.qps[0].Flush()
	c.clock.Run(0)
	check("after a flush", c.capacity, c.capacity, 1)
	c.qps[1].Flush()
	c.qps[2].Flush()
	c.client.results(3)
	c.allBack()
}

// TestTurns: queue pairs that want more than there is take turns. The packets in flight
// are never more than the receive buffer holds, no queue pair is more than two turns
// ahead of any other, and each sends enough at a time.
func TestTurns(t *testing.T) {
	const queuePairs, packets = 9, 256
	for _, delay := range []time.Duration{0, 50 * time.Microsecond} {
		c := newCreditWorld(t, queuePairs)
		c.path.Delay = delay
		ahead := 0
		count := c.gates[1].change
		c.gates[1].change = func(p *roce.Received) {
			count(p)
			least, most := packets, 0
			for _, n := range c.numbers {
				least, most = min(least, c.arrived[n]), max(most, c.arrived[n])
			}
			ahead = max(ahead, most-least)
		}
		for i := range c.qps {
			c.write(i, packets*creditPayload)
		}
		c.client.results(queuePairs)
		c.allBack()
		if c.most > c.capacity {
			t.Errorf("%d packets on their way, %d fit", c.most, c.capacity)
		}
		// The first had all of it, as it was alone.
		if most := c.capacity + c.capacity/2; ahead > most {
			t.Errorf("one queue pair was %d packets ahead of another, want no more than %d", ahead, most)
		}
	}
}

// TestCreditOfTheSilent: a queue pair whose peer does not answer keeps others waiting
// for two timeouts, not until it gives up, and not at all once the peer has ended the
// connection.
func TestCreditOfTheSilent(t *testing.T) {
	c := newCreditWorld(t, 2)
	c.deaf[c.numbers[0]] = true
	c.write(0, 1<<20)
	c.write(1, 1<<20)
	before := c.clock.Now()
	if r := c.client.results(1)[0]; r.RequestContext != 1 || r.Status != success {
		t.Errorf("%v completed with %v", r.RequestContext, r.Status)
	}
	if took := c.clock.Now() - before; took > 100*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	c.qps[0].Flush()
	c.client.results(1)
	c.allBack()

	c = newCreditWorld(t, 2)
	c.deaf[c.numbers[1]] = true
	c.write(1, 1<<20)
	c.write(0, 1<<20)
	before = c.clock.Now()
	c.finish(c.server.disconnect()) // the second
	if r := c.client.results(1)[0]; r.RequestContext != 0 || r.Status != success {
		t.Errorf("%v completed with %v", r.RequestContext, r.Status)
	}
	if took := c.clock.Now() - before; took > 5*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}
