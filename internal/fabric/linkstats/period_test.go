package linkstats

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// impairment has all that a direction remembers from packet to packet.
var impairment = topology.Impairment{
	Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 100 * time.Microsecond}, Rate: 100_000_000, Queue: topology.Queue{Bytes: 20_000},
	Loss: topology.Loss{Rate: 0.02, Burst: 2, Packets: []uint64{7, 100}}, Duplicate: 0.01, Corrupt: topology.Corrupt{Probability: 0.01},
	Flap: topology.Flap{Period: 20 * time.Millisecond, Down: time.Millisecond},
}

// pass has packets go through a direction from an instant on.
func pass(c *Collector, model *impair.Direction, from time.Duration) {
	for i := range 500 {
		at := from + time.Duration(i)*50*time.Microsecond
		p := impair.Packet{Frame: 1000, Payload: 42}
		c.Entered(p.Frame)
		v := model.Packet(&p, at)
		c.Decided(model, &v)
		if v.Fate == impair.Passes {
			c.Delivered(v.Departs, 1, uint64(impair.WireBytes(p.Frame)), v.Departs-at-v.Queued, v.Queued, 0)
		}
	}
}

// The figures since Begin, fates of packets included, are those that a new direction
// measures; the figures in all are those of both periods.
func TestPeriods(t *testing.T) {
	fresh := func() (*Collector, *impair.Direction) {
		model := impair.New(42, "link", 0)
		model.Set(impairment, 0)
		return new(Collector), model
	}
	alone, model := fresh()
	pass(alone, model, 0)
	want := alone.Statistics(model)
	if want.Dropped == 0 || want.LostQueue == 0 || want.LostCut == 0 || want.Duplicated+want.Corrupted == 0 {
		t.Fatalf("not all happens that is to be compared: %+v", want)
	}

	c, model := fresh()
	pass(c, model, 0)
	// Other settings are left as the first ones were.
	model.Set(topology.Impairment{Delay: time.Hour}, time.Second)
	pass(c, model, time.Second)
	model.Set(impairment, 2*time.Hour)
	c.Begin(model, 3*time.Hour, false)
	if m := c.StatisticsSince(model); m.Packets+m.PeakBytes+m.Delay.Count != 0 || m.PeakRate != 0 {
		t.Errorf("before any packet: %+v", m)
	}
	pass(c, model, 3*time.Hour)
	if diff := cmp.Diff(want, c.StatisticsSince(model)); diff != "" {
		t.Errorf("since Begin (-want +got):\n%s", diff)
	}

	all := c.Statistics(model)
	if all.Packets != 1500 || all.Dropped != 2*want.Dropped || all.LostQueue != 2*want.LostQueue || all.Asked.Packets != 2*want.Asked.Packets+500 ||
		all.Delay.Count != 2*want.Delay.Count+500 || all.Delay.Max < int64(time.Hour) || all.PeakBytes != want.PeakBytes {
		t.Errorf("in all: %+v, of which the period has %+v", all, want)
	}
}
