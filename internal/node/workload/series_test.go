package workload

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
)

// TestSeries has pieces without gaps, with what was in each, and a last one that ends when
// the workload does.
func TestSeries(t *testing.T) {
	const start = 7 * time.Second
	s := newSeries(&Spec{}, start)
	s.completed(start, 10, time.Millisecond)
	s.completed(start+99*time.Millisecond, 20, time.Millisecond)
	s.failed(start + 99*time.Millisecond)
	s.completed(start+100*time.Millisecond, 30, 2*time.Millisecond)
	s.completed(start+350*time.Millisecond, 40, 90*time.Second) // longer than any that is told apart
	got := s.finish(start + 360*time.Millisecond)
	want := []Sample{
		{At: 0, Seconds: 0.1, Messages: 2, Bytes: 30, Errors: 1, P50: 1e3, P99: 1e3},
		{At: 0.1, Seconds: 0.1, Messages: 1, Bytes: 30, P50: 2e3, P99: 2e3},
		{At: 0.2, Seconds: 0.1},
		{At: 0.3, Seconds: 0.06, Messages: 1, Bytes: 40, P50: 60e6, P99: 60e6},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 0.02*math.Max(math.Abs(a), math.Abs(b)) })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := newSeries(&Spec{}, start).finish(start); len(got) != 0 {
		t.Errorf("of no time at all: %+v", got)
	}
}

// TestLongSeries has one that takes hours stay short, and lose nothing.
func TestLongSeries(t *testing.T) {
	for flows, most := range map[int]int{1: mostPieces, 4032: 1040, 65280: leastPieces} {
		testLongSeries(t, flows, most)
	}
}

func testLongSeries(t *testing.T, flows, most int) {
	s := newSeries(&Spec{Flows: flows}, 0)
	const each = 40 * time.Millisecond
	messages := uint64(0)
	for now := time.Duration(0); now < time.Hour; now += each {
		s.completed(now, 2, time.Millisecond+now/1000)
		s.failed(now)
		messages++
	}
	got := s.finish(time.Hour)
	if len(got) < most/2 || len(got) >= most {
		t.Errorf("%d pieces", len(got))
	}
	var sum Sample
	at := 0.0
	for i, p := range got {
		if math.Abs(p.At-at) > 1e-6 || i > 0 && i < len(got)-1 && p.Seconds != got[0].Seconds {
			t.Fatalf("piece %d is %+v, want one at %v", i, p, at)
		}
		at += p.Seconds
		sum.Messages, sum.Bytes, sum.Errors = sum.Messages+p.Messages, sum.Bytes+p.Bytes, sum.Errors+p.Errors
		// The latency grows by 1 ms each second.
		if want := 1e3 + 1e3*(p.At+p.Seconds/2); math.Abs(p.P50-want) > 0.02*want+1e3*p.Seconds || p.P99 < p.P50 {
			t.Fatalf("piece %+v, want a median of some %v us", p, want)
		}
	}
	if math.Abs(at-3600) > 1e-6 || sum.Messages != messages || sum.Bytes != 2*messages || sum.Errors != messages {
		t.Errorf("%v s, %+v, want %d messages", at, sum, messages)
	}
}

// TestLatencies merges those of clients, which have exact ends.
func TestLatencies(t *testing.T) {
	var clients [2]Latencies
	for us := 1; us <= 10000; us++ {
		clients[us%2].Record(time.Duration(us) * time.Microsecond)
	}
	clients[1].Record(2 * time.Minute)
	var all, none Latencies
	for i := range clients {
		if err := all.Add(clients[i].Encode()); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Add(Latency{}); err != nil {
		t.Fatal(err)
	}
	if all.Count() != 10001 || all.Micros(0) != 1 || all.Micros(100) != 120e6 {
		t.Errorf("%d, %v to %v us", all.Count(), all.Micros(0), all.Micros(100))
	}
	for percentile, want := range map[float64]float64{50: 5e3, 90: 9e3, 99: 9.9e3, 99.9: 9.99e3, 99.99: 10e3} {
		if got := all.Micros(percentile); math.Abs(got-want) > want/500 {
			t.Errorf("percentile %v is %v us, want %v", percentile, got, want)
		}
	}
	if none.Count() != 0 || none.Micros(0) != 0 || none.Micros(50) != 0 {
		t.Error("none has some")
	}
	if encoded := none.Encode(); encoded.Histogram != nil {
		t.Errorf("%+v", encoded)
	}
	for _, wrong := range []string{"no histogram", "\x01\x02", "\x01\xff", "\x01\xff\xff\x3f\x01"} {
		if err := all.Add(Latency{Histogram: []byte(wrong)}); err == nil {
			t.Errorf("%q was added", wrong)
		}
	}
}

// Latencies that leave the process are the same when they have arrived.
func TestEncodeLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent, arrived Latencies
		for _, l := range rapid.SliceOfN(rapid.Int64Range(0, int64(2*longestLatency)), 1, 50).Draw(t, "latencies") {
			sent.Record(time.Duration(l))
		}
		if err := arrived.Add(sent.Encode()); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(arrived.Encode()) != fmt.Sprint(sent.Encode()) || arrived.Count() != sent.Count() || arrived.shortest != sent.shortest || arrived.longest != sent.longest {
			t.Error("they differ")
		}
	})
}
