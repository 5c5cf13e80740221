package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/provider/clock"
)

// A drivable clock has another one that is driven, and one that is precise.
type drivable struct {
	*clock.Virtual
	driven, precise *clock.Virtual
	advances        int
}

func (c *drivable) Driven() (clock.Clock, func()) { return c.driven, func() { c.advances++ } }

func (c *drivable) Precise() clock.Clock { return c.precise }

// newDrivable starts a device on one.
func newDrivable(algorithm congestion.Algorithm) (*Device, *drivable) {
	c := &drivable{clock.NewVirtual(), clock.NewVirtual(), clock.NewVirtual(), 0}
	return New(Config{Clock: c, Rand: rand.New(rand.NewPCG(1, 2)), Congestion: congestion.Config{Algorithm: algorithm}}), c
}

// TestDrivenTimers: the timers of a device are those that who polls runs, but for those of channels that are to leave packets in
// time.
func TestDrivenTimers(t *testing.T) {
	d, c := newDrivable(congestion.Window)
	if d.timers != clock.Clock(c.driven) {
		t.Error("timers of channels are not driven")
	}
	d.acknowledgeAfter(time.Millisecond)
	if !c.driven.Step() || d.Delivery.wait.Load() > 0 || c.Step() {
		t.Error("acknowledgements are not sent by a timer that is driven")
	}
	if d, c := newDrivable(congestion.WithDCQCN); d.timers != clock.Clock(c.precise) {
		t.Error("timers of channels that send at a rate are not precise")
	}
}

// TestAcknowledgesAtFirst: of two waits that were asked for, the one that ends first does, without a timer for each.
func TestAcknowledgesAtFirst(t *testing.T) {
	for _, test := range []struct {
		first, later, second, want time.Duration
	}{
		{longAckDelay, 10 * time.Microsecond, shortAckDelay, shortAckDelay + 10*time.Microsecond},
		{longAckDelay, longAckDelay - time.Microsecond, shortAckDelay, longAckDelay},
		{shortAckDelay, 10 * time.Microsecond, longAckDelay, shortAckDelay},
		{shortAckDelay, 10 * time.Microsecond, shortAckDelay, shortAckDelay},
	} {
		c := clock.NewVirtual()
		d := New(Config{Clock: c, Rand: rand.New(rand.NewPCG(1, 2))})
		for range 2 { // the timer is set again, too
			begin := c.Now()
			d.acknowledgeAfter(test.first)
			c.Run(test.later)
			d.acknowledgeAfter(test.second)
			if at, ok := c.Next(); !ok || at-begin != test.want {
				t.Errorf("%+v: acknowledged after %v", test, at-begin)
			}
			if !c.Step() || c.Step() {
				t.Errorf("%+v: not acknowledged once", test)
			}
		}
	}
}

// TestPacedPathIsDriven: so are the timers of queue pairs that wait for room at a peer.
func TestPacedPathIsDriven(t *testing.T) {
	d, c := newDrivable(congestion.Window)
	p := d.pacedPathTo(pacedKey{})
	p.sent.Store(p.limit.Load())
	if p.admits(&Unreliable{}) {
		t.Fatal("there is room")
	}
	if _, ok := c.driven.Next(); !ok {
		t.Error("a wait ends by a timer that is not driven")
	}
}

// TestAdvance: who polls runs timers, but does not look at the clock each time.
func TestAdvance(t *testing.T) {
	d, c := newDrivable(congestion.Window)
	for range 3 * advanceInterval {
		d.Advance()
	}
	if c.advances != 3 {
		t.Errorf("%d of %d polls look, want 3", c.advances, 3*advanceInterval)
	}
}
