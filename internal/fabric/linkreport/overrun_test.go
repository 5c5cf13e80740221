package linkreport

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

func TestOverruns(t *testing.T) {
	tolerance := topology.DefaultTolerance
	// late has so many packets leave, of which some leave later than the tolerance's limits.
	late := func(count, p10, p50, p99 uint64) linkstats.Statistics {
		return linkstats.Statistics{Packets: count, Lateness: linkstats.Distribution{Count: count}, Late: linkstats.Late{P10: p10, P50: p50, P99: p99}}
	}
	const (
		tenth   = "packets more than 200 us late"
		half    = "packets more than 1 ms late"
		percent = "packets more than 20 ms late"
	)
	const gigabit = 1_000_000_000
	// waited has a packet wait for that long behind others, for a rate of a gigabit.
	waited := func(d time.Duration, m linkstats.Statistics) linkstats.Statistics {
		m.Queueing, m.PeakBytes = linkstats.Distribution{Count: 1000, Max: int64(d)}, uint64(d.Seconds()*gigabit/8)
		return m
	}
	for _, tt := range []struct {
		name string
		rate uint64
		m    linkstats.Statistics
		want string // figures
	}{
		{"nothing happened", 0, linkstats.Statistics{}, ""},
		{"in time", 0, late(1000, 0, 0, 0), ""},
		{"nine of ten are late", 0, late(1000, 900, 0, 0), ""},
		{"more are", 0, late(1000, 901, 0, 0), tenth},
		{"half is late", 0, late(1001, 500, 500, 0), ""},
		{"more is", 0, late(1001, 501, 501, 0), half},
		{"one in a hundred is very late", 0, late(2900, 29, 29, 29), ""},
		{"one more is", 0, late(2900, 30, 30, 30), percent},
		{"all are", 0, late(1000, 1000, 1000, 1000), tenth + ", " + half + ", " + percent},
		{"a pause of 120 ms in a run of 2 s", 0, late(2000, 120, 120, 100), percent},
		{"one of ten", 0, late(10, 1, 1, 1), ""},
		{"two of ten", 0, late(10, 2, 2, 2), percent},
		{"ten of ten by little", 0, late(10, 10, 0, 0), tenth},
		{"a single one", 0, late(1, 1, 1, 1), ""},
		{"both of two", 0, late(2, 2, 2, 2), tenth + ", " + half + ", " + percent},

		{"left early", 0, linkstats.Statistics{Packets: 1000, Early: 1, Lateness: linkstats.Distribution{Count: 1000}}, "packets that left before their time"},

		{"few lost", 0, linkstats.Statistics{Packets: 1000, LostOverrun: 1}, ""},
		{"more lost", 0, linkstats.Statistics{Packets: 1000, LostOverrun: 2}, "packets"},
		{"one of 999", 0, linkstats.Statistics{Packets: 999, LostOverrun: 1}, "packets"},
		{"99 of 99", 0, linkstats.Statistics{Packets: 99, LostOverrun: 99}, "packets"},
		{"the only one", 0, linkstats.Statistics{Packets: 1, LostOverrun: 1}, "packets"},
		{"lost as the link is to", 0, linkstats.Statistics{Packets: 1000, Dropped: 100, LostQueue: 100, LostDown: 100, LostCut: 100, LostFault: 100}, ""},

		{"rate reached", gigabit, waited(time.Second, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.91 * gigabit}), ""},
		{"rate missed", gigabit, waited(time.Second, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.89 * gigabit}), "rate"},
		{"nothing waited for it", gigabit, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakRate: 1000}, ""},
		{"waited for a moment", gigabit, waited(peakTime/2, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.46 * gigabit}), ""},
		{"missed in a moment", gigabit, waited(peakTime/2, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.44 * gigabit}), "rate"},
		{"half is lost behind the queue", gigabit, waited(time.Second, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit, Loss: 0.5}, PeakRate: 0.46 * gigabit}), ""},
		{"came before the rate was set", gigabit, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, PeakBytes: 194, PeakRate: 15520,
			Queueing: linkstats.Distribution{Count: 1, Max: int64(time.Millisecond)}}, ""},
		{"another rate before", gigabit, waited(time.Second, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit / 2}, PeakRate: 1000}), ""},
		{"cut meanwhile", gigabit, waited(time.Second, linkstats.Statistics{Asked: impair.Asked{Rate: gigabit}, LostCut: 1, PeakRate: 1000}), ""},
	} {
		for _, allow := range []bool{false, true} {
			var figures []string
			// A lab that allows it is root's here.
			for _, o := range overruns(&tt.m, &topology.Link{Tolerance: tolerance, AllowOverrun: allow}, tt.rate, allow) {
				figures = append(figures, o.Figure)
				if o.Tolerated == "" || o.Got == "" || o.Reason == "" || o.Remedy == "" || o.Allowed != allow || strings.Contains(o.Remedy, "root") == (allow || tt.m.Early > 0) {
					t.Errorf("%s: %+v", tt.name, o)
				}
			}
			if got := strings.Join(figures, ", "); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// A report says which share of the packets was late, and which share may be.
func TestJudged(t *testing.T) {
	m := linkstats.Statistics{Packets: 12345, Lateness: linkstats.Distribution{Count: 12345, Min: 800, P10: 3000, P50: 15000, P99: 2e6}, Late: linkstats.Late{P10: 9999, P50: 7000, P99: 99}}
	// A link that no file was read for has the tolerance of one whose file has none.
	d := Judged(&m, &topology.Link{}, 0, true)
	lateness := &report.Lateness{Min: 0.8, P10: 3, P50: 15, P99: 2000, Packets: 12345, Late: []report.Late{
		{LimitUS: 200, Packets: 9999, Tolerated: 0.9}, {LimitUS: 1000, Packets: 7000, Tolerated: 0.5}, {LimitUS: 20000, Packets: 99, Tolerated: 0.01}}}
	if diff := cmp.Diff(lateness, d.Lateness); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const want = "packets more than 1 ms late: tolerated up to 50%, got 56.7 % (7000 of 12345); the host could not keep up: " +
		"fewer links or slower traffic, more processors; else a wider tolerance"
	if len(d.Overruns) != 1 || words.Overrun(&d.Overruns[0]) != want {
		t.Errorf("%v, want %s", d.Overruns, want)
	}
	if d := Judged(&m, &topology.Link{Tolerance: topology.DefaultTolerance}, 0, true); len(d.Overruns) != 1 {
		t.Errorf("%v", d.Overruns)
	}
}
