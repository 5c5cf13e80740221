package linkstats

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
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

// Observe counts as Statistics does, over both periods.
func TestObserve(t *testing.T) {
	c, model := new(Collector), impair.New(42, "link", 0)
	bounds := []int64{int64(time.Microsecond), int64(time.Millisecond), int64(time.Hour)}
	if m := c.Observe(bounds); m.Packets != 0 || m.DelayBars.Count != 0 || m.DelayBars.UpTo != nil {
		t.Errorf("of nothing: %+v", m)
	}
	model.Set(impairment, 0)
	pass(c, model, 0)
	c.Begin(model, time.Second, false)
	model.Set(topology.Impairment{Delay: time.Minute}, time.Second)
	pass(c, model, time.Second)
	all, got := c.Statistics(model), c.Observe(bounds)
	bars := got.DelayBars
	if bars.Count != all.Delay.Count || bars.UpTo[0] != 0 || bars.UpTo[1] == 0 || bars.UpTo[1] >= bars.Count-500 || bars.UpTo[2] != bars.Count {
		t.Errorf("delays %+v of %d", bars, all.Delay.Count)
	}
	want := Statistics{
		Packets: all.Packets, Bytes: all.Bytes, Delivered: all.Delivered, Dropped: all.Dropped, Bursts: all.Bursts,
		LostFault: all.LostFault, LostQueue: all.LostQueue, LostCut: all.LostCut, LostDown: all.LostDown, LostOverrun: all.LostOverrun,
		Duplicated: all.Duplicated, Reordered: all.Reordered, Corrupted: all.Corrupted, Marked: all.Marked, Faulted: all.Faulted,
		PeakPackets: all.PeakPackets, PeakBytes: all.PeakBytes, Early: all.Early, DelayBars: bars,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Packets != 1000 {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// To observe again when nothing has passed takes no time for the histogram, and returns the same. More packets, another period and
// other bounds show.
func TestObserveAgain(t *testing.T) {
	c, model := new(Collector), impair.New(42, "link", 0)
	bounds := []int64{int64(time.Microsecond), int64(time.Hour)}
	model.Set(impairment, 0)
	pass(c, model, 0)
	first := c.Observe(bounds)
	if n := testing.AllocsPerRun(10, func() { c.Observe(bounds) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if diff := cmp.Diff(first, c.Observe(bounds)); diff != "" {
		t.Errorf("-first +again:\n%s", diff)
	}
	c.Begin(model, time.Second, false)
	if got := c.Observe(bounds).DelayBars; !cmp.Equal(first.DelayBars, got) {
		t.Errorf("in another period %+v, want %+v", got, first.DelayBars)
	}
	pass(c, model, time.Second)
	if got := c.Observe(bounds).DelayBars; got.Count <= first.DelayBars.Count || got.UpTo[1] != got.Count {
		t.Errorf("after more packets %+v", got)
	}
	if got := c.Observe(bounds[1:]).DelayBars; len(got.UpTo) != 1 || got.UpTo[0] != got.Count {
		t.Errorf("by one bound %+v", got)
	}
}

// Two hosts that have a part each of a direction have together what one has that has all of it.
func TestJoin(t *testing.T) {
	model := impair.New(42, "link", 0)
	model.Set(impairment, 0)
	farModel := impair.New(42, "link", 0)
	farModel.Set(topology.Impairment{Delay: time.Hour}, 0) // of no packet
	one, here, far := new(Collector), new(Collector), new(Collector)
	for i := range 500 {
		at := time.Duration(i) * 50 * time.Microsecond
		p := impair.Packet{Frame: 1000, Payload: 42}
		v := model.Packet(&p, at)
		for _, c := range []*Collector{one, here} {
			c.Entered(p.Frame)
			c.Decided(model, &v)
		}
		if v.Fate == impair.Passes {
			for _, c := range []*Collector{one, far} {
				c.Delivered(v.Departs, 1, uint64(impair.WireBytes(p.Frame)), v.Departs-at-v.Queued, v.Queued, time.Duration(i)*time.Microsecond)
			}
		}
	}
	want, entered, left := one.Statistics(model), here.Statistics(model), far.Statistics(farModel)
	if entered.Delivered != 0 || left.Packets != 0 || want.Lateness.P99 == 0 {
		t.Fatalf("entered %+v, left %+v, all %+v", entered, left, want)
	}
	for _, got := range []Statistics{Join(&entered, &left), Join(&left, &entered)} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of two hosts (-one host +two hosts):\n%s", diff)
		}
	}
}

// A look that finds what Observe returns changed is that of the change, also in another period; others are not.
func TestChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, model := new(Collector), impair.New(42, "link", 0)
		bounds := []int64{int64(time.Microsecond), int64(time.Second)}
		var last Statistics
		changed := uint64(0)
		for look := uint64(1); look < 20; look++ {
			n := rapid.Uint64Range(0, 2).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				c.Entered(int(n))
			case 1:
				c.Counts.LostOverrun += n
			case 2:
				c.Begin(model, time.Duration(look), false)
			case 3:
				c.Delivered(time.Duration(look), 1, 1, time.Duration(n)*time.Millisecond, 0, 0)
			case 4:
				c.Counts.PeakBytes = max(c.Counts.PeakBytes, n) // as Decided has it, but for its packet
			}
			now := c.Observe(bounds)
			if look == 1 || !cmp.Equal(last, now) {
				changed = look
			}
			if got := c.Changed(look); got != changed {
				t.Fatalf("at look %d the last change is that of look %d, want %d: %+v after %+v", look, got, changed, now, last)
			}
			last = now
		}
	})
}
