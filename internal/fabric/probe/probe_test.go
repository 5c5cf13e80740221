package probe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// A probe says which it is, also when a few bits of it were flipped, and shows that
// they were.
func TestProbesTellTheirNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flight, number := rapid.Uint32().Draw(t, "flight"), rapid.Uint32().Draw(t, "number")
		b := make([]byte, rapid.IntRange(MinSize, 9000).Draw(t, "size"))
		compose(b, flight, number)
		if !isProbe(b) || marked(b) || !intact(b, flight, number) {
			t.Fatal("a probe that was not changed is not seen as one")
		}
		b[etherLen+1] |= experienced
		b[etherLen+10], b[etherLen+11] = 0, 0
		sum := checksum(b[etherLen : etherLen+ipLen])
		b[etherLen+10], b[etherLen+11] = byte(sum>>8), byte(sum)
		if !marked(b) || !intact(b, flight, number) {
			t.Fatal("a mark counts as a corruption")
		}
		bit := rapid.IntRange(8*(etherLen+ipLen), 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 0x80 >> (bit % 8)
		if f, n := decompose(b); f != flight || n != number {
			t.Fatalf("with bit %d flipped it says %x, %d, and was %x, %d", bit, f, n, flight, number)
		}
		if intact(b, flight, number) {
			t.Fatalf("bit %d is flipped, and it is said to be as it was", bit)
		}
	})
}

// evenly is a flight of n probes, a millisecond apart, that takes each so long.
func evenly(n int, delay time.Duration) *Flight {
	f := &Flight{Size: 1000}
	for i := range n {
		at := time.Second + time.Duration(i)*time.Millisecond
		f.Sent = append(f.Sent, at)
		f.Arrivals = append(f.Arrivals, Arrival{Probe: i, At: at + delay})
	}
	return f
}

func TestFigures(t *testing.T) {
	whole := evenly(100, 5*time.Millisecond)
	want := Figures{
		Sent: 100, Received: 100, DelayMin: 5 * time.Millisecond, DelayP50: 5 * time.Millisecond, DelayP99: 5 * time.Millisecond,
		DelayMax: 5 * time.Millisecond, Rate: 1024 * 8 * 1000,
	}
	if diff := cmp.Diff(want, whole.Figures(0)); diff != "" {
		t.Errorf("all arrived (-want +got):\n%s", diff)
	}

	bad := evenly(10, time.Millisecond)
	a := bad.Arrivals
	a[2], a[3] = a[3], a[2]                                     // overtaken
	a[5].Corrupted, a[6].Probe, a[6].Corrupted = true, -1, true // one of which its number is gone
	a[7].Marked = true
	bad.Arrivals = append(a[:8:8], a[7], a[9]) // one twice, one not at all
	got := bad.Figures(0)
	if got.Sent != 10 || got.Received != 9 || got.Lost != 1 || got.Duplicated != 1 || got.Reordered != 1 || got.Corrupted != 2 || got.Marked != 2 {
		t.Errorf("%+v", got)
	}

	late := evenly(3, time.Millisecond)
	late.SentLate = []bool{true, false, false}
	late.Sent[0] += 2 * time.Millisecond // as if it had arrived before it was sent
	late.Arrivals[2].At, late.Arrivals[2].Late = late.Arrivals[2].At+time.Second, true
	if got := late.Figures(0); got.Received != 3 || got.DelayMin != time.Millisecond || got.DelayMax != time.Millisecond {
		t.Errorf("two of three were not stamped: %+v", got)
	}
	late.SentLate[1] = true
	if got := late.Figures(0); got.Received != 3 || got.DelayMin != -time.Millisecond || got.DelayMax != time.Second+time.Millisecond {
		t.Errorf("none was stamped at both ends: %+v", got)
	}

	none := Flight{Size: 100, Sent: []time.Duration{1, 2}}
	if diff := cmp.Diff(Figures{Sent: 2, Lost: 2}, none.Figures(0)); diff != "" {
		t.Errorf("nothing arrived (-want +got):\n%s", diff)
	}
}

// The model's own results with other seeds are as expected, and those with other
// settings are not.
func TestExpect(t *testing.T) {
	sent := evenly(1000, 0)
	for _, tt := range []struct {
		name           string
		asked, another topology.Impairment
	}{
		{"delay", topology.Impairment{Delay: time.Millisecond}, topology.Impairment{Delay: 2 * time.Millisecond}},
		{"jitter", topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 500 * time.Microsecond}}, topology.Impairment{Delay: time.Millisecond}},
		{"loss", topology.Impairment{Loss: topology.Loss{Rate: 0.1}}, topology.Impairment{Loss: topology.Loss{Rate: 0.3}}},
		{"burst", topology.Impairment{Loss: topology.Loss{Rate: 0.1, Burst: 5}}, topology.Impairment{Loss: topology.Loss{Rate: 0.5, Burst: 5}}},
		{"every", topology.Impairment{Loss: topology.Loss{Every: 10}}, topology.Impairment{Loss: topology.Loss{Every: 5}}},
		{"duplicate", topology.Impairment{Duplicate: 0.1}, topology.Impairment{}},
		{"corrupt", topology.Impairment{Corrupt: topology.Corrupt{Probability: 0.1}}, topology.Impairment{}},
		{"rate", topology.Impairment{Rate: 1_000_000}, topology.Impairment{Rate: 2_000_000}},
		{"flap", topology.Impairment{Flap: topology.Flap{Period: 100 * time.Millisecond, Down: 50 * time.Millisecond}}, topology.Impairment{}},
		{"cut", topology.Impairment{Cut: true}, topology.Impairment{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expected := Expect(sent, tt.asked, 0)
			const others = 1 << 30 // seeds that Expect does not use
			for seed := range 20 {
				if figure := expected.unexpected(simulate(sent, tt.asked, others+seed, mostRuns)); figure != "" {
					t.Errorf("%s is not as expected of the very settings", figure)
				}
				if expected.unexpected(simulate(sent, tt.another, others+seed, mostRuns)) == "" {
					t.Error("other settings pass for these")
				}
			}
		})
	}
}

// Few runs of the model, which is what there is time for with many probes, do for
// ranges as well.
func TestExpectOfFewRuns(t *testing.T) {
	sent := evenly(400, 0)
	outside, flights := 0, 0
	for percent := 5; percent < 50; percent++ {
		settings := topology.Impairment{Loss: topology.Loss{Rate: float64(percent) / 100}}
		expected := expect(sent, settings, 0, leastRuns)
		for seed := range 200 {
			flights++
			if n := float64(simulate(sent, settings, 1<<30+seed, mostRuns).Figures(0).Lost); n < expected.Lost.Low || n > expected.Lost.High {
				outside++
			}
		}
	}
	if outside > 2 {
		t.Errorf("%d of %d flights are outside of their ranges", outside, flights)
	}
}

// unexpected is a figure of a flight that is not as expected, or "".
func (e *Expected) unexpected(f *Flight) string {
	got := f.Figures(0)
	for name, c := range map[string]struct {
		in  Range
		got float64
	}{
		"lost": {e.Lost, float64(got.Lost)}, "duplicated": {e.Duplicated, float64(got.Duplicated)}, "reordered": {e.Reordered, float64(got.Reordered)},
		"corrupted": {e.Corrupted, float64(got.Corrupted)}, "marked": {e.Marked, float64(got.Marked)},
		"p50": {e.DelayP50, float64(got.DelayP50)}, "p99": {e.DelayP99, float64(got.DelayP99)}, "rate": {e.Rate, got.Rate},
	} {
		if c.got < c.in.Low || c.got > c.in.High {
			return name
		}
	}
	return ""
}
