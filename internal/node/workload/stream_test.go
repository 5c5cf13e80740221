package workload

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// TestEveryKind has flows of any kind exchange all of their messages, each of them right,
// over links that lose and reorder.
func TestEveryKind(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		spec := Spec{
			Name: "w", Operation: rapid.SampledFrom([]topology.Operation{topology.Send, topology.Write, topology.Read}).Draw(r, "operation"),
			Measure: rapid.SampledFrom([]topology.Measure{"", topology.Bandwidth, topology.Latency}).Draw(r, "measure"),
			Depth:   rapid.IntRange(1, 20).Draw(r, "depth"), QPs: rapid.IntRange(0, 5).Draw(r, "QPs"),
			SRQ: rapid.Bool().Draw(r, "SRQ"), Polling: rapid.Bool().Draw(r, "polling"),
			Count: rapid.Uint64Range(1, 60).Draw(r, "count"), Verify: rapid.Bool().Draw(r, "verify"),
			Rate:      rapid.SampledFrom([]uint64{0, 1e6, 1e9}).Draw(r, "rate"),
			Reconnect: rapid.Bool().Draw(r, "reconnect"), Seed: rapid.Uint64().Draw(r, "seed"),
			Sizes: rapid.SliceOfN(rapid.Uint64Range(0, 9000), 0, 4).Draw(r, "sizes"), Mixed: true,
		}
		steps := 1
		switch {
		case len(spec.Sizes) == 0:
			spec.Size, spec.Mixed = rapid.Uint64Range(0, 20000).Draw(r, "size"), false
		case rapid.Bool().Draw(r, "sweep"):
			spec.Mixed, steps = false, len(spec.Sizes)
			fallthrough
		default:
			spec.Size = slices.Max(spec.Sizes)
		}
		spec.Inline = spec.Operation != topology.Read && spec.Size <= 928 && rapid.Bool().Draw(r, "inline")
		l := newLab(t)
		l.path.Loss, l.path.Reorder = rapid.SampledFrom([]float64{0, 0.02}).Draw(r, "loss"), 0.1
		got, found := l.run(spec, nil)
		count := uint64(steps) * spec.Count
		if got.Messages != count || got.Completed != count || got.Errors != 0 || got.Error != "" || found.Error != "" || found.Mismatches != 0 {
			r.Errorf("client %+v, server %+v", got, found)
		}
		if verified := spec.Conclude(&got, found); verified != spec.Verify {
			r.Errorf("verified: %v, %+v, %+v", verified, got, found)
		}
		if got.Connections != uint64(max(1, spec.QPs)) || got.Reconnects != 0 || got.Retried != 0 {
			r.Errorf("%d connections, %d made again, %d messages", got.Connections, got.Reconnects, got.Retried)
		}
		var took Latencies
		if err := took.Add(got.Latency); err != nil || took.Count() != count {
			r.Errorf("%d latencies, %v", took.Count(), err)
		}
		var series, inSteps Sample
		for _, s := range got.Series {
			series.Messages, series.Bytes = series.Messages+s.Messages, series.Bytes+s.Bytes
		}
		if series.Messages != count || series.Bytes != got.Bytes {
			r.Errorf("the series has %+v, the result %+v", series, got)
		}
		for i, s := range got.Steps {
			inSteps.Messages, inSteps.Bytes = inSteps.Messages+s.Messages, inSteps.Bytes+s.Messages*s.Size
			if s.Size != spec.Sizes[i] {
				r.Errorf("step %d is of %d bytes, want %d", i, s.Size, spec.Sizes[i])
			}
		}
		if spec.sweeps() != (len(got.Steps) == steps) || spec.sweeps() && (inSteps.Messages != count || inSteps.Bytes != got.Bytes) {
			r.Errorf("steps %+v of %+v", got.Steps, got)
		}
		if spec.Rate > 0 && float64(got.Bytes)*8/float64(spec.Rate) > got.Seconds+float64(spec.Size)*8/float64(spec.Rate)*float64(steps)+0.01*float64(steps) {
			r.Errorf("%d bytes in %v s at %d bits per second", got.Bytes, got.Seconds, spec.Rate)
		}
	})
}

// TestLatency measures half of a round trip, and a whole one where the other end takes no
// part.
func TestLatency(t *testing.T) {
	for operation, want := range map[topology.Operation]float64{topology.Send: 1000, topology.Write: 1000, topology.Read: 2000} {
		for _, polling := range []bool{false, true} {
			got, _ := newLab(t).run(Spec{
				Operation: operation, Measure: topology.Latency, Size: 8, Depth: 16, Count: 50, Polling: polling, Verify: true,
			}, nil)
			var took Latencies
			if err := took.Add(got.Latency); err != nil {
				t.Fatal(err)
			}
			for _, percentile := range []float64{0, 50, 99.99, 100} {
				if us := took.Micros(percentile); math.Abs(us-want) > 10 {
					t.Errorf("%s, polling %v: percentile %v is %v us, want %v", operation, polling, percentile, us, want)
				}
			}
			// One message is in flight at a time.
			if got.Messages != 50 || math.Abs(got.Seconds-50*0.002) > 0.001 {
				t.Errorf("%s: %d messages in %v s", operation, got.Messages, got.Seconds)
			}
		}
	}
}

// TestRate has flows keep to their rate, and those that are behind it make up for little.
func TestRate(t *testing.T) {
	for _, qps := range []int{1, 7} {
		l := newLab(t)
		got, _ := l.run(Spec{
			Operation: topology.Write, Size: 1000, Depth: 16, QPs: qps, Duration: 2 * time.Second, Rate: 8e6, Seed: 1,
		}, func(*target) {
			l.clock.Run(time.Second)
			l.path.Down = true
			l.clock.Run(100 * time.Millisecond)
			l.path.Down = false
		})
		// A thousand messages each second, but for those that the cut has prevented until
		// what was lost in it was sent again.
		if got.Errors != 0 || got.Messages < 1800 || got.Messages > 1990 {
			t.Errorf("%d QPs: %+v", qps, got)
		}
		for _, s := range got.Series[1:9] {
			if s.Messages < 98 || s.Messages > 102 {
				t.Errorf("%d QPs: %d messages in the 100 ms from %v s on", qps, s.Messages, s.At)
			}
		}
	}
}

// TestIdleIsNotSilent has a client with little to do.
func TestIdleIsNotSilent(t *testing.T) {
	got, _ := newLab(t).run(Spec{Operation: topology.Send, Size: 100, Depth: 4, Count: 20, Rate: 8 * 100 * 10}, nil)
	if got.Messages != 20 || got.Seconds < 1.8 || got.Recovered > 0.01 {
		t.Errorf("%+v", got)
	}
}

// TestSmallSRQ has an adapter whose SRQs have less room than what is in flight needs.
func TestSmallSRQ(t *testing.T) {
	spec := Spec{Operation: topology.Send, Size: 9000, Depth: 2, QPs: 8, Count: 300, SRQ: true, Verify: true}
	narrow := func(depth uint32) *lab {
		return newLabWith(t, func(c *provider.Config) { c.Info.MaxSrqDepth = depth })
	}
	got, found := narrow(4).run(spec, nil)
	if got.Messages != 300 || found != (ServerResult{Verified: 300}) {
		t.Errorf("%+v, %+v", got, found)
	}
	l := narrow(3)
	if _, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress); err == nil || err.Error() != "it needs a MaxSrqDepth of 4, the adapter has 3" {
		t.Errorf("got %v", err)
	}
}

// TestWarmUp does not measure what comes first.
func TestWarmUp(t *testing.T) {
	spec := Spec{Operation: topology.Send, Size: 100, Depth: 1, WarmUp: time.Second, Verify: true}
	for name, test := range map[string]struct {
		limit         func(*Spec)
		messages, all uint64 // at least, and 2 more at most
		seconds       float64
	}{
		"count":    {func(s *Spec) { s.Count = 100 }, 100, 598, 0.2},
		"duration": {func(s *Spec) { s.Duration = time.Second }, 499, 997, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec
			test.limit(&s)
			l := newLab(t)
			got, found := l.run(s, func(*target) {
				// Messages that are slow while warming up do not count.
				l.clock.Run(500 * time.Millisecond)
				l.path.Delay = 100 * time.Millisecond
				l.clock.Run(200 * time.Millisecond)
				l.path.Delay = time.Millisecond
			})
			if got.Messages < test.messages || got.Messages > test.messages+2 || got.Completed != found.Verified ||
				got.Completed < test.all-110 || got.Completed > test.all-90 || got.Bytes != 100*got.Messages {
				t.Errorf("%+v, %+v", got, found)
			}
			if math.Abs(got.Seconds-test.seconds) > 0.01 || got.LatencyMax > 3*time.Millisecond || got.Recovered > 0.003 {
				t.Errorf("%v s, at most %v, silent for %v s", got.Seconds, got.LatencyMax, got.Recovered)
			}
			if !s.Conclude(&got, found) {
				t.Errorf("not verified: %+v", got)
			}
		})
	}
}

// TestSweep has a pause for each size: its own warm-up and duration.
func TestSweep(t *testing.T) {
	spec := Spec{
		Operation: topology.Read, Sizes: []uint64{10, 100000, 1000}, Size: 100000, Depth: 4, Verify: true,
		Duration: 100 * time.Millisecond, WarmUp: 50 * time.Millisecond,
	}
	l := newLab(t)
	got, _ := l.run(spec, nil)
	if len(got.Steps) != 3 || got.Errors != 0 || math.Abs(got.Seconds-0.3) > 0.01 {
		t.Fatalf("%+v", got)
	}
	for i, s := range got.Steps {
		if s.Size != spec.Sizes[i] || s.Messages < 150 || s.Messages > 200 || math.Abs(s.Seconds-0.1) > 0.005 ||
			s.LatencyMin < 2*time.Millisecond || len(s.Histogram) == 0 {
			t.Errorf("%+v", s)
		}
	}
	if a, b := got.Steps[0].LatencyMin, got.Steps[1].LatencyMin; b < a+70*time.Microsecond { // 100,000 bytes at 10 Gb/s
		t.Errorf("%v and %v", a, b)
	}
	t.Run("stopped", func(t *testing.T) {
		l := newLab(t)
		h := NewHost(l.devices[0], l.clock)
		if _, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress); err != nil {
			t.Fatal(err)
		}
		var got *Result
		if err := h.Run(spec, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
			t.Fatal(err)
		}
		l.clock.Run(250 * time.Millisecond)
		h.Stop("", 0)
		l.clock.Run(time.Second)
		if got == nil || got.Error != "" || len(got.Steps) != 2 || math.Abs(got.Seconds-0.15) > 0.01 {
			t.Errorf("%+v", got)
		}
	})
}

// TestStopAtOnce stops clients that are not connected yet.
func TestStopAtOnce(t *testing.T) {
	for _, reconnect := range []bool{false, true} {
		l := newLab(t)
		h := NewHost(l.devices[0], l.clock)
		var got *Result
		spec := Spec{Name: "w", Operation: topology.Send, Size: 1, Depth: 1, Duration: time.Second, Reconnect: reconnect}
		if err := h.Run(spec, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
			t.Fatal(err)
		}
		h.Stop("w", 0)
		l.clock.Run(time.Second)
		if got == nil || got.Error != "" || got.Messages != 0 || l.devices[0].Usage().Instances != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestManyQPs has more of them than a client connects at once.
func TestManyQPs(t *testing.T) {
	const qps = 3*connectsAtOnce + 5
	got, found := newLab(t).run(Spec{Operation: topology.Send, Size: 10, Depth: 1, QPs: qps, Count: 10 * qps, Verify: true, SRQ: true}, nil)
	if got.Messages != 10*qps || got.Connections != qps || found.Verified != 10*qps || found.Error != "" {
		t.Errorf("%+v, %+v", got, found)
	}
}
