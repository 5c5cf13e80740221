package congestion

import (
	"math"
	"testing"
	"time"
)

// This file compares DCTCP with the closed forms of its paper (SIGCOMM'10, 3.3): of N flows in step through a port of C
// packets per second, which marks what finds more than K packets waiting.

// A bottleneck is that port with its flows, in virtual time: a packet takes a tick, and what leaves is acknowledged so many
// ticks later, its mark echoed before. Flows send as soon as they may, which is then in the queue at once.
type bottleneck struct {
	flows []*dctcp
	sent  []int64 // packets in flight, of each
	k     int     // packets
	queue []passing
	wire  []passing // those that have left, of each tick of a round trip
}

// A passing is a packet on its way; of flow 0 is none.
type passing struct {
	flow   int // from 1 on
	marked bool
}

func newBottleneck(flows, k, trip int, g float64) *bottleneck {
	p := DCTCP{G: g, RTT: time.Duration(trip/flows) * us} // they share the path at first
	b := &bottleneck{k: k, sent: make([]int64, flows), wire: make([]passing, trip)}
	for range flows {
		b.flows = append(b.flows, newDCTCP(&p, 8e9, 1000)) // a packet of 1,000 bytes takes a tick of a microsecond
	}
	return b
}

// tick has everything happen that does in one.
func (b *bottleneck) tick(now int) {
	due := &b.wire[now%len(b.wire)]
	if due.flow > 0 {
		i := due.flow - 1
		if due.marked {
			b.flows[i].Notified(0)
		}
		b.sent[i]--
		b.flows[i].Acknowledged(0, Ack{Bytes: 1000, InFlight: b.sent[i] * 1000})
	}
	*due = passing{}
	for more := true; more; { // in turn
		more = false
		for i, f := range b.flows {
			if (b.sent[i]+1)*1000 <= f.Window() {
				b.sent[i]++
				b.queue = append(b.queue, passing{i + 1, len(b.queue) > b.k})
				more = true
			}
		}
	}
	if len(b.queue) > 0 {
		*due, b.queue = b.queue[0], b.queue[1:]
	}
}

// An observation is of some time.
type observation struct {
	least, most int     // packets that waited
	busy        float64 // share of the time in which a packet left
	alpha       float64 // mean, of all flows
}

// observe lets the flows settle, and then watches them.
func (b *bottleneck) observe(settling, ticks int) observation {
	o := observation{least: math.MaxInt}
	for now := range settling {
		b.tick(now)
	}
	for now := settling; now < settling+ticks; now++ {
		if b.tick(now); b.wire[now%len(b.wire)].flow > 0 {
			o.busy += 1 / float64(ticks)
		}
		o.least, o.most = min(o.least, len(b.queue)), max(o.most, len(b.queue))
		for _, f := range b.flows {
			o.alpha += f.alpha / float64(ticks*len(b.flows))
		}
	}
	return o
}

// TestSawtooth: the queue reaches K+N packets exactly, and how deep it falls from there, as alpha, is near the closed form, of
// which the paper says that it is for windows of many packets.
func TestSawtooth(t *testing.T) {
	for _, c := range []struct{ flows, k, trip int }{
		{1, 65, 300}, {1, 200, 1000}, {2, 40, 83}, {2, 65, 300}, {3, 100, 500}, {4, 65, 300}, {10, 100, 500},
	} {
		n, k, path := float64(c.flows), float64(c.k), float64(c.trip)
		g := 1.386 / math.Sqrt(2*(path+k)) / 2 // eq. 15, and less by half: alpha is a mean over teeth
		o := newBottleneck(c.flows, c.k, c.trip, g).observe(1_000_000, 500_000)

		amplitude := math.Sqrt(2*n*(path+k)) / 2 // eq. 8
		alpha := math.Sqrt(2 * n / (path + k))   // of eq. 6
		t.Logf("%+v: the queue has %d to %d packets, by the paper %.1f to %.0f; alpha %.3f, by the paper %.3f", c, o.least, o.most, k+n-amplitude, k+n, o.alpha, alpha)
		if o.most != c.k+c.flows { // eq. 10
			t.Errorf("%+v: %d packets waited at most, want K+N = %d", c, o.most, c.k+c.flows)
		}
		if got := float64(o.most - o.least); math.Abs(got-amplitude) > amplitude/5 {
			t.Errorf("%+v: the queue swings by %v packets, want %.1f", c, got, amplitude)
		}
		if math.Abs(o.alpha-alpha) > alpha/8 {
			t.Errorf("%+v: alpha %.3f, want %.3f", c, o.alpha, alpha)
		}
		if o.least == 0 || o.busy < 1-1e-9 {
			t.Errorf("%+v: the line was busy %.3f %% of the time, want all of it", c, 100*o.busy)
		}
	}
}

// TestThresholdForFullThroughput: a K above a seventh of what the path holds keeps the line busy with any number of flows, of
// which an eighth of what path and K hold is the worst (eq. 13); without a K it is not.
func TestThresholdForFullThroughput(t *testing.T) {
	for _, trip := range []int{70, 300} {
		for _, flows := range []int{1, 2, 4, (trip + trip/7) / 8} {
			for _, k := range []int{0, trip/7 + 1} {
				o := newBottleneck(flows, k, trip, 1.0/16).observe(300_000, 300_000)
				t.Logf("%d flows, %d packets, K = %d: busy %.2f %%", flows, trip, k, 100*o.busy)
				if k > 0 && o.busy < 0.98 || k == 0 && o.busy > 0.9 {
					t.Errorf("%d flows, K = %d of %d packets: busy %.2f %% of the time, want 98 %% at least with a K, and 90 at most without", flows, k, trip, 100*o.busy)
				}
			}
		}
	}
}
