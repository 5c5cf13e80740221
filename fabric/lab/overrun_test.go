package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/fabric/gauge"
	"github.com/ndklab/ndklab/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

func TestOverruns(t *testing.T) {
	tolerance := topology.Tolerance{Delay: time.Millisecond, DelayP99: 20 * time.Millisecond, Rate: 0.1, Loss: 0.001}
	// lasted has packets leave for so many seconds.
	lasted := func(seconds float64, m gauge.Measured) gauge.Measured {
		m.Bytes, m.MeanRate = 1000, 8000/seconds
		return m
	}
	late := func(count uint64, p50, p99 time.Duration) gauge.Distribution {
		return gauge.Distribution{Count: count, P50: int64(p50), P99: int64(p99), Max: int64(p99)}
	}
	const gigabit = 1_000_000_000
	// waited has a packet wait for that long behind others, for a rate of a gigabit.
	waited := func(d time.Duration, m gauge.Measured) gauge.Measured {
		m.Queueing, m.PeakBytes = gauge.Distribution{Count: 1000, Max: int64(d)}, uint64(d.Seconds()*gigabit/8)
		return m
	}
	for _, tt := range []struct {
		name string
		rate uint64
		m    gauge.Measured
		want string // figures
	}{
		{"nothing happened", 0, gauge.Measured{}, ""},
		{"in time", 0, gauge.Measured{Packets: 1000, Lateness: late(1000, time.Millisecond, 20*time.Millisecond)}, ""},
		{"half is late", 0, lasted(1, gauge.Measured{Packets: 1000, Lateness: late(1000, 1100*time.Microsecond, 19*time.Millisecond)}), "median delay"},
		{"some are very late", 0, lasted(1, gauge.Measured{Packets: 1000, Lateness: late(1000, 10*time.Microsecond, 21*time.Millisecond)}), "99th percentile of the delay"},
		{"one pause in a short run", 0, lasted(0.1, gauge.Measured{Packets: 470, Lateness: late(470, 10*time.Microsecond, 39*time.Millisecond)}), ""},
		{"more than one pause", 0, lasted(3, gauge.Measured{Packets: 470, Lateness: late(470, 10*time.Microsecond, 39*time.Millisecond)}), "99th percentile of the delay"},
		{"a short run in one pause", 0, lasted(0.1, gauge.Measured{Packets: 470, Lateness: late(470, 60*time.Millisecond, 90*time.Millisecond)}), ""},
		{"late for longer than a pause", 0, lasted(1, gauge.Measured{Packets: 470, Lateness: late(470, 600*time.Millisecond, time.Second)}), "median delay"},
		{"all are", 0, lasted(20, gauge.Measured{Packets: 1000, Lateness: late(1000, time.Second, time.Second)}), "median delay, 99th percentile of the delay"},
		{"too few to tell", 0, gauge.Measured{Packets: 99, LostOverrun: 50, Lateness: late(99, time.Second, time.Second)}, ""},
		{"few lost", 0, gauge.Measured{Packets: 1000, LostOverrun: 1}, ""},
		{"more lost", 0, gauge.Measured{Packets: 1000, LostOverrun: 2}, "packets"},
		{"lost as the link is to", 0, gauge.Measured{Packets: 1000, Dropped: 100, LostQueue: 100, LostDown: 100, LostCut: 100, LostFault: 100}, ""},

		{"rate reached", gigabit, waited(time.Second, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.91 * gigabit}), ""},
		{"rate missed", gigabit, waited(time.Second, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.89 * gigabit}), "rate"},
		{"nothing waited for it", gigabit, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakRate: 1000}, ""},
		{"waited for a moment", gigabit, waited(peakTime/2, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.46 * gigabit}), ""},
		{"missed in a moment", gigabit, waited(peakTime/2, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakRate: 0.44 * gigabit}), "rate"},
		{"half is lost behind the queue", gigabit, waited(time.Second, gauge.Measured{Asked: impair.Asked{Rate: gigabit, Loss: 0.5}, PeakRate: 0.46 * gigabit}), ""},
		{"came before the rate was set", gigabit, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, PeakBytes: 194, PeakRate: 15520,
			Queueing: gauge.Distribution{Count: 1, Max: int64(time.Millisecond)}}, ""},
		{"another rate before", gigabit, waited(time.Second, gauge.Measured{Asked: impair.Asked{Rate: gigabit / 2}, PeakRate: 1000}), ""},
		{"cut meanwhile", gigabit, waited(time.Second, gauge.Measured{Asked: impair.Asked{Rate: gigabit}, LostCut: 1, PeakRate: 1000}), ""},
	} {
		for _, allow := range []bool{false, true} {
			var figures []string
			// A lab that allows it is root's here.
			for _, o := range overruns(&topology.Link{Tolerance: tolerance, AllowOverrun: allow}, tt.rate, &tt.m, allow) {
				figures = append(figures, o.Figure)
				if o.Tolerated == "" || o.Got == "" || o.Reason != "the host could not keep up" || o.Remedy == "" || o.Allowed != allow || strings.Contains(o.Remedy, "root") == allow {
					t.Errorf("%s: %+v", tt.name, o)
				}
			}
			if got := strings.Join(figures, ", "); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// A link that no file was read for has the tolerance of one whose file has none.
func TestDefaultTolerance(t *testing.T) {
	m := gauge.Measured{Packets: 1000, Bytes: 1000, MeanRate: 8000, Lateness: gauge.Distribution{Count: 1000, P50: int64(2 * topology.DefaultTolerance.Delay)}}
	got, want := overruns(&topology.Link{}, 0, &m, true), overruns(&topology.Link{Tolerance: topology.DefaultTolerance}, 0, &m, true)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 1 {
		t.Errorf("-want +got:\n%s", diff)
	}
}
