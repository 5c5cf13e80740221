package impair

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// shifts returns the times, in ns, that jitter adds to the delay of n packets that are far
// apart.
func shifts(t *testing.T, j topology.Jitter, n int) []float64 {
	t.Helper()
	const delay = 100 * time.Millisecond
	d := direction(3, "link", 0, topology.Impairment{Delay: delay, Jitter: j})
	all := make([]float64, n)
	for i := range all {
		at := time.Duration(i) * 100 * time.Second
		all[i] = float64(d.Packet(packet(1000), at).Departs - at - delay)
	}
	return all
}

func TestJitterHasItsDistribution(t *testing.T) {
	const spread = 100 * time.Microsecond
	for _, c := range []struct {
		kind                         topology.Distribution
		mean, deviation              float64 // of the spread
		tolerance                    float64 // of the deviation; the square of Pareto's has no finite variance
		least, median, high, highest float64 // of the spread; high is the 99 % quantile
	}{
		{"", 0, 1 / math.Sqrt(3), 0.002, -1, 0, 0.98, 1},
		{topology.Uniform, 0, 1 / math.Sqrt(3), 0.002, -1, 0, 0.98, 1},
		{topology.Normal, 0, 1, 0.004, -7, 0, 2.326, 7},
		{topology.Pareto, 0, 1, 0.05, -0.5774, (math.Cbrt(2) - 1.5) / math.Sqrt(0.75), (math.Cbrt(100) - 1.5) / math.Sqrt(0.75), 1000},
	} {
		all := shifts(t, topology.Jitter{Spread: spread, Distribution: c.kind}, million)
		mean, deviation := 0.0, 0.0
		for _, s := range all {
			mean += s / million
		}
		for _, s := range all {
			deviation += (s - mean) * (s - mean) / million
		}
		deviation = math.Sqrt(deviation)
		slices.Sort(all)
		check := func(what string, got, want, tolerance float64) {
			if got /= float64(spread); math.Abs(got-want) > tolerance {
				t.Errorf("%q: %s is %.4f of the spread, want %.4f", c.kind, what, got, want)
			}
		}
		check("mean", mean, c.mean, 3.29*c.deviation/1000)
		check("standard deviation", deviation, c.deviation, c.tolerance)
		check("median", all[million/2], c.median, 0.01)
		check("99 % quantile", all[million*99/100], c.high, 0.03)
		if least := all[0] / float64(spread); least < c.least-1e-4 {
			t.Errorf("%q: the least is %.4f of the spread", c.kind, least)
		}
		if highest := all[million-1] / float64(spread); highest > c.highest {
			t.Errorf("%q: the highest is %.4f of the spread", c.kind, highest)
		}
	}
}

func TestJitterIsUniform(t *testing.T) {
	const spread, bins, n = 100 * time.Microsecond, 20, 200_000
	var counts [bins]int
	for _, s := range shifts(t, topology.Jitter{Spread: spread}, n) {
		counts[min(bins-1, int((s+float64(spread))*bins/(2*float64(spread))))]++
	}
	chi := 0.0
	for _, c := range counts {
		chi += math.Pow(float64(c)-n/bins, 2) / (n / bins)
	}
	if chi > 43.8 { // 99.9 % of chi-square with 19 degrees of freedom
		t.Errorf("chi-square %.1f over %v", chi, counts)
	}
}

func TestSamplesAreDrawnEvenly(t *testing.T) {
	samples := []time.Duration{-5, 10, 10, 7000}
	counts := map[float64]int{}
	for _, s := range shifts(t, topology.Jitter{Distribution: topology.Sampled, Samples: samples}, million) {
		counts[s]++
	}
	if len(counts) != 3 {
		t.Errorf("drawn: %v", counts)
	}
	within(t, "-5", counts[-5], million, 0.25)
	within(t, "10", counts[10], million, 0.5)
	within(t, "7000", counts[7000], million, 0.25)
}

// Both ends of the range of draws give delays that can be.
func TestShiftsOfExtremeDraws(t *testing.T) {
	const most = time.Hour
	for _, kind := range []topology.Distribution{topology.Uniform, topology.Normal, topology.Pareto} {
		j := newJitter(topology.Jitter{Spread: most, Distribution: kind})
		low, high := j.shift(0), j.shift(math.MaxUint64)
		if low > 0 || low < -10*most || high < most/2 || high > 300_000*most {
			t.Errorf("%s: %v to %v", kind, low, high)
		}
	}
}

func TestDelayIsNeverNegative(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: 10, Jitter: topology.Jitter{Spread: 1000}})
	zero := 0
	for i := range 10_000 {
		at := time.Duration(i) * 10_000
		v := d.Packet(packet(100), at)
		if v.Departs < at {
			t.Fatalf("left %v before it came", at-v.Departs)
		}
		if v.Departs == at {
			zero++
		}
	}
	within(t, "without delay", zero, 10_000, 0.495)
}
