package impair

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
)

// Each probability is met within the 99.9 % interval over a million packets.
func TestLossIsWithinItsInterval(t *testing.T) {
	for _, p := range []float64{0, 0.0001, 0.001, 0.01, 0.1, 0.5, 1} {
		d := direction(42, "a:eth0-b:eth0", 1, topology.Impairment{Loss: topology.Loss{Rate: p}})
		lost := 0
		for i := range million {
			if d.Packet(packet(1000), time.Duration(i)).Fate == Lost {
				lost++
			}
		}
		within(t, "loss", lost, million, p)
		if a := d.Asked(); math.Abs(a.Loss-p) > 1e-12 || a.Packets != million {
			t.Errorf("loss %v: asked %+v", p, a)
		}
	}
}

// Losses are independent: a lost packet's successor is as likely to be lost.
func TestLossesAreIndependent(t *testing.T) {
	d := direction(7, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 0.1}})
	for gap := 1; gap <= 3; gap++ {
		lost, pairs := 0, 0
		var before [3]bool
		for i := range million {
			now := d.Packet(packet(1000), 0).Fate == Lost
			if before[(i+3-gap)%3] {
				lost++
				if now {
					pairs++
				}
			}
			before[i%3] = now
		}
		within(t, "lost after a lost one", pairs, lost, 0.1)
	}
}

// Bursts are as long as asked within 5 %, and the rate is as asked.
func TestBurstsOfLoss(t *testing.T) {
	for _, c := range []topology.Loss{{Rate: 0.01, Burst: 1}, {Rate: 0.01, Burst: 3}, {Rate: 0.1, Burst: 1.5}, {Rate: 0.1, Burst: 10}, {Rate: 0.3, Burst: 40}, {Rate: 0.5, Burst: 1}} {
		d := direction(12, "link", 0, topology.Impairment{Loss: c})
		lost, bursts, previous := 0, 0, false
		lengths := map[int]int{}
		length := 0
		for range million {
			v := d.Packet(packet(1000), 0)
			now := v.Fate == Lost
			if now {
				if v.Cause != Burst {
					t.Fatalf("%+v: cause %v", c, v.Cause)
				}
				lost++
				length++
				if !previous {
					bursts++
				}
			} else if previous {
				lengths[length]++
				length = 0
			}
			previous = now
		}
		if mean := float64(lost) / float64(bursts); math.Abs(mean/c.Burst-1) > 0.05 {
			t.Errorf("%+v: bursts of %.3f packets in the mean", c, mean)
		}
		// Lengths are geometric: one packet alone with probability 1/Burst.
		within(t, "bursts of one packet", lengths[1], bursts, 1/c.Burst)
		// A chain's visits to a state vary more than independent losses do, by
		// (1+a)/(1-a), a = 1-p-r being the correlation of neighbours.
		p, r := gilbert(c.Rate, c.Burst)
		deviation := math.Sqrt(million * c.Rate * (1 - c.Rate) * (2 - p - r) / (p + r))
		if off := math.Abs(float64(lost) - c.Rate*million); off > 3.29*deviation+1 {
			t.Errorf("%+v: %d of %d lost", c, lost, million)
		}
	}
}

func TestEveryNthAndPlaces(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Loss: topology.Loss{Every: 4, Packets: []uint64{1, 2, 8, 13}}})
	var got []Cause
	for range 14 {
		got = append(got, d.Packet(packet(100), 0).Cause)
	}
	want := []Cause{Place, Place, None, Every, None, None, None, Place, None, None, None, Every, Place, None}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	if a := d.Asked(); a.Loss != 6.0/14 {
		t.Errorf("asked for a loss of %v, want 6 of 14", a.Loss)
	}
}
