package lab

import (
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// The period of a watch is the file's, doubled until the machine has time for it.
func TestWatchPeriod(t *testing.T) {
	for _, c := range []struct {
		period   time.Duration
		dilation int
		want     time.Duration
	}{{time.Second, 1, time.Second}, {100 * time.Millisecond, 1, 100 * time.Millisecond}, {time.Millisecond, 1, 128 * time.Millisecond}, {time.Millisecond, 160, time.Millisecond}} {
		if got := watchPeriod(c.period, c.dilation); got != c.want {
			t.Errorf("%v and dilation %d: %v, want %v", c.period, c.dilation, got, c.want)
		}
	}
}

// A run has over time what its links have dropped and its queue pairs have sent again, of that run alone. Where there are buffers
// it is beside the series of queues, which has another period.
func TestRunWatch(t *testing.T) {
	t.Run("no buffer", func(t *testing.T) {
		l := start(t, runnable(t, "delay: 1ms, loss: 1%, overrun: allow", `workloads: [{name: w, from: client, to: server, operation: write, size: 64KiB, duration: 1s}]
series: 100ms`))
		for range 2 {
			r := runLab(t, l)
			checkWatched(t, r, r.Series, 100e3)
			if slices.ContainsFunc(r.Series.Pairs, func(p report.PairSeries) bool { return p.Window == nil }) {
				t.Errorf("a queue pair has no window: %+v", r.Series.Pairs)
			}
		}
	})
	t.Run("buffer", func(t *testing.T) {
		l := start(t, pausing(t, `
series: 1ms
timeline: [{at: 1ms, link: "b:eth0", set: {loss: 5%}}]
`))
		for range 2 {
			r := runLab(t, l)
			if r.Series == nil || r.Series.PeriodUS != 1000 || len(r.Series.Queues) == 0 {
				t.Fatalf("a series of %+v", r.Series)
			}
			checkWatched(t, r, r.Series.Watched, 8000)
		}
	})
}

// checkWatched compares what a run has taken down of queue pairs and links with what it has counted.
func checkWatched(t *testing.T, r *report.Run, s *report.Series, periodUS float64) {
	t.Helper()
	if s == nil || s.PeriodUS != periodUS || s.Points < 2 || len(s.Links) == 0 || len(s.Pairs) == 0 || len(s.Queues) != 0 || s.Watched != nil {
		t.Fatalf("watched is %+v", s)
	}
	sum := func(column []uint64) (n uint64) {
		for _, one := range column {
			n += one
		}
		return n
	}
	dropped, resent := uint64(0), uint64(0)
	for _, d := range s.Links {
		dropped += sum(d.Dropped)
	}
	for _, p := range s.Pairs {
		resent += sum(p.Retransmitted)
	}
	all := uint64(0)
	for _, l := range r.Links {
		all += l.Directions[0].Dropped + l.Directions[1].Dropped
	}
	// The last period is cut short.
	if again, _ := report.Sum(r.Nodes, "retransmitted"); dropped == 0 || dropped > all || resent == 0 || resent > again {
		t.Errorf("%d of %d dropped, %d of %d sent again", dropped, all, resent, again)
	}
}
