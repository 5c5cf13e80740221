package linkstats

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// Percentiles are those of the sorted values, to within 1/8192.
func TestHistogramPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt64), 1, 300).Draw(t, "values")
		scale := rapid.IntRange(0, 62).Draw(t, "scale")
		var h durations
		for i := range values {
			values[i] >>= scale
			h.record(values[i], 1)
		}
		slices.Sort(values)
		d := h.distribution()
		if d.Count != uint64(len(values)) || d.Min != values[0] || d.Max != values[len(values)-1] {
			t.Fatalf("%+v of %v", d, values)
		}
		for _, c := range []struct {
			q   float64
			got int64
		}{{0.01, d.P1}, {0.1, d.P10}, {0.5, d.P50}, {0.99, d.P99}, {0.999, d.P999}} {
			want := values[int(math.Ceil(c.q*float64(len(values))))-1]
			if math.Abs(float64(c.got-want)) > float64(want)/8192+0.5 {
				t.Fatalf("percentile %v: %d, want %d", 100*c.q, c.got, want)
			}
		}
	})
}

// Packets that are late are counted beyond a limit, those before their time apart.
func TestLateAndEarly(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	collector, model := Collector{Tolerance: topology.DefaultTolerance}, impair.New(1, "link", 0)
	if got := collector.Statistics(model).Late; got != (Late{}) {
		t.Errorf("of nothing: %+v", got)
	}
	for _, c := range []struct {
		late    time.Duration
		packets uint64
	}{{-1, 1}, {-ms, 2}, {0, 4}, {200 * us, 8}, {201 * us, 16}, {ms, 32}, {ms + us, 64}, {20 * ms, 128}, {20*ms + 10*us, 256}, {time.Hour, 512}} {
		collector.Delivered(0, c.packets, 0, 0, 0, c.late)
	}
	if got, want := collector.Statistics(model), (Late{P10: 1008, P50: 960, P99: 768}); got.Late != want || got.Early != 3 {
		t.Errorf("%+v, %d early, want %+v and 3", got.Late, got.Early, want)
	}
	// Of each period, and of all of them.
	collector.Begin(model, 0, false)
	collector.Delivered(0, 5, 0, 0, 0, time.Second)
	if got, all := collector.StatisticsSince(model), collector.Statistics(model); got.Late != (Late{5, 5, 5}) || got.Early != 0 || all.Late != (Late{1013, 965, 773}) || all.Early != 3 {
		t.Errorf("since: %+v, %d early; in all: %+v, %d early", got.Late, got.Early, all.Late, all.Early)
	}
}

// A histogram to look at has all durations, in not too many bins, and nearly all
// of them where they belong.
func TestHistogramBins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, spread := rapid.Int64Range(0, 1e9).Draw(t, "base"), rapid.Int64Range(1, 1e9).Draw(t, "spread")
		values := rapid.SliceOfN(rapid.Int64Range(0, spread), 1, 300).Draw(t, "values")
		var h durations
		for _, v := range values {
			h.record(base+v, 2)
		}
		d := h.distribution()
		bins := h.bins(&d)
		if len(bins) == 0 || len(bins) > maxBins+2 {
			t.Fatalf("%d bins", len(bins))
		}
		total := uint64(0)
		for i, b := range bins {
			total += b.Count
			if i == 0 {
				continue
			}
			width := b.From - bins[i-1].From
			if width <= 0 || width != bins[1].From-bins[0].From {
				t.Fatalf("bins %+v", bins)
			}
			// The histogram's own buckets are 1/4096 of a value wide.
			inside := 0
			for _, v := range values {
				if v += base; v >= b.From-v/4096 && (v < b.From+width+v/4096 || i == len(bins)-1) {
					inside++
				}
			}
			if b.Count > 2*uint64(inside) {
				t.Fatalf("%d values in bin %d of %+v, at most %d belong there", b.Count, i, bins, 2*inside)
			}
		}
		if total != 2*uint64(len(values)) {
			t.Fatalf("%d values in %+v, want %d", total, bins, 2*len(values))
		}
	})
	var h durations
	if bins := h.bins(&Distribution{}); bins != nil {
		t.Errorf("bins of nothing: %v", bins)
	}
}

func TestHistogramEdges(t *testing.T) {
	var h durations
	if d := h.distribution(); d != (Distribution{}) {
		t.Errorf("empty: %+v", d)
	}
	h.record(-5, 1)
	h.record(math.MaxInt64, 1)
	if d := h.distribution(); d.Min != 0 || d.P1 != 0 || d.Max != math.MaxInt64 || d.P99 < math.MaxInt64/8192*8191 {
		t.Errorf("extremes: %+v", d)
	}
	var weighted durations
	weighted.record(1000, 98)
	weighted.record(5000, 2)
	if d := weighted.distribution(); d != (Distribution{Count: 100, Min: 1000, P1: 1000, P10: 1000, P50: 1000, P99: 5000, P999: 5000, Max: 5000}) {
		t.Errorf("weighted: %+v", d)
	}
}

func TestMeter(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name       string
		add        func(m *meter)
		peak, mean float64
	}{
		{"nothing", func(*meter) {}, 0, 0},
		{"one packet", func(m *meter) { m.add(5*ms, 1000) }, 10_000, 0},
		{"steady for a second", func(m *meter) {
			for i := range 1001 {
				m.add(time.Duration(i)*ms, 1000)
			}
		}, 1e6, 1e6},
		{"a burst, a pause, a smaller burst", func(m *meter) {
			for i := range 200 {
				m.add(time.Duration(i)*ms, 5000)
			}
			for i := range 200 {
				m.add(10*time.Second+time.Duration(i)*ms, 3000)
			}
		}, 5e6, (199*5000 + 200*3000) / 10.199},
		{"the busiest stretch straddles slots", func(m *meter) {
			for i := range 100 {
				m.add(250*ms+time.Duration(i)*ms, 7000)
			}
		}, 7e6, 7e6},
	} {
		var m meter
		c.add(&m)
		peak, mean := m.rates()
		if math.Abs(peak-c.peak) > 1 || math.Abs(mean-c.mean) > 1 {
			t.Errorf("%s: peak %.1f, mean %.1f, want %.1f and %.1f", c.name, peak, mean, c.peak, c.mean)
		}
	}
}

// Idle directions keep no histogram, of which a lab may have thousands.
func TestIdleHistogram(t *testing.T) {
	var h durations
	if d := h.distribution(); h.buckets != nil || d != (Distribution{}) || h.bins(&d) != nil {
		t.Errorf("%+v", d)
	}
}

// Durations that are as long as those before count like others, whenever somebody asks.
func TestDurationsInARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h, singly durations
		for _, ns := range rapid.SliceOf(rapid.Int64Range(-1, 2)).Draw(t, "durations") {
			h.record(ns, 3)
			for range 3 {
				singly.record(ns, 1)
				singly.settle()
			}
			if rapid.Bool().Draw(t, "asked") {
				if got, want := h.distribution(), singly.distribution(); got != want || h.above(0) != singly.above(0) || h.count() != want.Count {
					t.Fatalf("%+v, %d, want %+v", got, h.count(), want)
				}
			}
		}
		var all durations
		all.merge(&h)
		all.merge(&h)
		if want := 2 * h.count(); all.count() != want || all.distribution().Count != want {
			t.Fatalf("%d and %d of twice as many, want %d", all.count(), all.distribution().Count, want)
		}
	})
}
