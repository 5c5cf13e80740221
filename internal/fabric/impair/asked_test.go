package impair

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
)

func TestAskedIsTheMeanOverPackets(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: time.Millisecond, Loss: topology.Loss{Rate: 0.5}})
	if a := d.Asked(); a != (Asked{Delay: time.Millisecond, Loss: 0.5}) {
		t.Errorf("before any packet: %+v", a)
	}
	for range 30 {
		d.Packet(packet(100), 0)
	}
	d.Set(topology.Impairment{
		Delay: 5 * time.Millisecond, Jitter: topology.Jitter{Spread: 4 * time.Microsecond}, Loss: topology.Loss{Rate: 0.1, Burst: 2, Packets: []uint64{10}}, Rate: 1000_000_000,
		Duplicate: 0.4, Reorder: topology.Reorder{Probability: 0.8}, Corrupt: topology.Corrupt{Probability: 0.2},
	}, 0)
	for range 10 {
		d.Packet(packet(100), 0)
	}
	want := Asked{
		Packets: 40, Delay: 2 * time.Millisecond, Jitter: time.Microsecond, Reach: 980, Loss: (30*0.5 + 9*0.1 + 1) / 40, Burst: 2, Rate: 1000_000_000,
		Duplicate: 0.1, Reorder: 0.2, Corrupt: 0.05,
	}
	got := d.Asked()
	for _, p := range []*float64{&got.Loss, &got.Duplicate, &got.Reorder, &got.Corrupt} {
		*p = math.Round(*p*1e9) / 1e9
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}

	for kind, want := range map[topology.Distribution]time.Duration{
		topology.Uniform: 9800, topology.Normal: 23263, // the quantiles of these are in any table
		topology.Pareto: time.Duration(10000 * (1/math.Cbrt(0.01) - 1/math.Cbrt(0.99)) / 2 / math.Sqrt(0.75)),
	} {
		d = direction(1, "link", 0, topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Distribution: kind, Spread: 10 * time.Microsecond}})
		if a := d.Asked(); (a.Reach-want).Abs() > 1 || a.Jitter != 10*time.Microsecond {
			t.Errorf("%s: asked of jitter: %+v, want a reach of %v", kind, a, want)
		}
	}
	samples := []time.Duration{60, 0, 20, 40}
	d = direction(1, "link", 0, topology.Impairment{Delay: 100, Jitter: topology.Jitter{Distribution: topology.Sampled, Samples: samples}})
	if a := d.Asked(); a.Delay != 130 || a.Jitter != 22 || a.Reach != 30 {
		t.Errorf("asked of samples: %+v, want their mean more, their deviation, 22.4 ns, and half of their range", a)
	}
}

// Losses that came each for itself shorten the mean row of those in bursts.
func TestAskedBurst(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 0.1, Burst: 5}})
	if a := d.Asked(); a.Burst != 5 {
		t.Errorf("%v packets in a row before any packet, want 5", a.Burst)
	}
	for range 100 {
		d.Packet(packet(100), 0)
	}
	d.Set(topology.Impairment{Loss: topology.Loss{Rate: 0.1}}, 0)
	for range 100 {
		d.Packet(packet(100), 0)
	}
	// 10 in 2 rows, and 10 in 9.
	if a := d.Asked(); math.Abs(a.Burst-20.0/11) > 1e-9 {
		t.Errorf("%v packets in a row, want %v", a.Burst, 20.0/11)
	}
}
