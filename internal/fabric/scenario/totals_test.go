package scenario

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"pgregory.net/rapid"
)

// latencies is the form in which a client tells how long messages took.
func latencies(t testing.TB, all ...time.Duration) workload.Latency {
	t.Helper()
	var took workload.Latencies
	for _, d := range all {
		took.Record(d)
	}
	return took.Encode()
}

// Flows that run side by side take as long as the longest of them, rounds one after the
// other as long as all together.
func TestTotalsOfFlowsAndRounds(t *testing.T) {
	var total totals
	ms := time.Millisecond
	step := func(size, n uint64, seconds float64) workload.Step {
		return workload.Step{Size: size, Messages: n, Seconds: seconds, Latency: latencies(t, ms)}
	}
	for range 2 {
		total.add(&workload.Result{Messages: 100, Bytes: 1e9, Seconds: 1, Recovered: 0.5, Connections: 1, Latency: latencies(t, ms, 2*ms), Steps: []workload.Step{step(64, 10, 0.5), step(4096, 5, 0.25)}}, 0)
		total.add(&workload.Result{Messages: 50, Bytes: 5e8, Seconds: 2, Recovered: 0.1, Reconnects: 1, Retried: 3, Latency: latencies(t, 3*ms, 100*ms), Steps: []workload.Step{step(64, 10, 1)}}, 0)
		total.endRound()
	}
	var r report.Workload
	r.CDF = distribution(total.result(&r))
	if r.Messages != 300 || r.Seconds != 4 || r.Gbps != 6 || r.Recovered != 0.5 || r.Connections != 2 || r.Reconnects != 2 || r.Retried != 6 {
		t.Errorf("%+v", r)
	}
	if r.Latency.Min != 1000 || r.Latency.Max != 100000 || math.Abs(r.Latency.P50-2000) > 10 {
		t.Errorf("%+v", r.Latency)
	}
	if s := r.Steps; len(s) != 2 || s[0].Messages != 40 || s[0].Seconds != 2 || s[0].Gbps != 40*64*8/2/1e9 || s[1].Size != 4096 || s[1].Seconds != 0.5 || s[1].Latency.P99 == 0 {
		t.Errorf("%+v", s)
	}
	last := r.CDF[len(r.CDF)-1]
	if len(r.CDF) > 101 || r.CDF[0].Micros != 1000 || last.Fraction != 1 || last.Micros != 100000 || !slices.IsSortedFunc(r.CDF, func(a, b report.Quantile) int {
		return cmp.Or(cmp.Compare(a.Micros, b.Micros), cmp.Compare(a.Fraction, b.Fraction))
	}) {
		t.Errorf("%+v", r.CDF)
	}
}

func TestFairness(t *testing.T) {
	of := func(bytes ...uint64) float64 {
		var flows []*flow
		for _, n := range bytes {
			flows = append(flows, &flow{totals: totals{bytes: n, seconds: 1}})
		}
		return fairness(flows)
	}
	for _, tt := range []struct{ got, want float64 }{{of(5, 5, 5), 1}, {of(9, 0, 0), 1. / 3}, {of(0, 0), 0}, {of(1, 3), 0.8}} {
		if math.Abs(tt.got-tt.want) > 1e-9 {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

// The series has all that clients did, whatever it was and when, in order, in pieces that do
// not overlap.
func TestSeriesHasEverything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var clients []clientSeries
		var messages, bytes uint64
		var end float64
		for range rapid.IntRange(1, 5).Draw(r, "clients") {
			c := clientSeries{began: time.Duration(rapid.IntRange(0, 20000).Draw(r, "ms")) * time.Millisecond}
			piece := 0.1 * float64(int(1)<<rapid.IntRange(0, 3).Draw(r, "doubled"))
			for i := range rapid.IntRange(1, 30).Draw(r, "pieces") {
				n := uint64(rapid.IntRange(0, 100).Draw(r, "messages"))
				c.samples = append(c.samples, workload.Sample{At: float64(i) * piece, Seconds: piece, Messages: n, Bytes: 7 * n, P50: 10, P99: 20})
				messages, bytes = messages+n, bytes+7*n
			}
			end = max(end, c.began.Seconds()+float64(len(c.samples))*piece)
			clients = append(clients, c)
		}
		before := math.Inf(-1)
		for _, s := range series(clients) {
			if s.At < before-1e-5 || s.Seconds <= 0 || s.P50 > 10 || s.P99 > 20 {
				r.Errorf("%+v, the piece before ended at %v", s, before)
			}
			before = s.At + s.Seconds
			messages -= s.Messages
			bytes -= s.Bytes
		}
		if messages != 0 || bytes != 0 || before > end+1e-5 {
			r.Errorf("%d messages and %d bytes are missing, it ends at %v instead of %v", messages, bytes, before, end)
		}
	})
	if len(series(nil)) != 0 {
		t.Error("nothing has a series")
	}
}
