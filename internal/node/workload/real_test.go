package workload

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/node/workload/internal/loopback"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A wire is two hosts that reach each other through the loopback interface, in real time.
type wire struct {
	client, server *Host
	from           netip.Addr
	to             netip.AddrPort
}

func newWire(t testing.TB) *wire { return newWireBy(t, clock.Real()) }

func newWireBy(t testing.TB, c clock.Clock) *wire {
	t.Helper()
	client, from := loopback.DeviceBy(t, 73, false, c)
	server, to := loopback.DeviceBy(t, 74, false, c)
	return &wire{NewHost(client, c), NewHost(server, c), from, netip.AddrPortFrom(to, 7000)}
}

// patientClock is the real one, only slower: a machine that is too busy for seconds is no
// peer that does not answer.
type patientClock struct{ clock.Clock }

const slower = 8

func (c patientClock) Now() time.Duration { return c.Clock.Now() / slower }

func (c patientClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return patientTimer{c.Clock.AfterFunc(d*slower, f)}
}

type patientTimer struct{ clock.Timer }

func (t patientTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d * slower) }

// soon returns the next value from a channel. It fails the test if none comes within minutes.
func soon[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatalf("no %T comes", *new(T))
		panic("unreachable")
	}
}

// run runs a workload to its end, without a failure.
func (w *wire) run(t testing.TB, spec Spec) Result {
	t.Helper()
	if err := w.server.Serve(spec, w.to); err != nil {
		t.Fatal(err)
	}
	results := make(chan Result, 1)
	if err := w.client.Run(spec, w.from, w.to, func(r Result) { results <- r }); err != nil {
		t.Fatal(err)
	}
	result := soon(t, results)
	found := make(chan ServerResult, 1)
	if err := w.server.Unserve(spec.Name, spec.Flow, func(r ServerResult) { found <- r }); err != nil {
		t.Fatal(err)
	}
	if verified := spec.Conclude(&result, soon(t, found)); result.Errors > 0 || verified != spec.Verify {
		result.Series, result.Histogram = nil, nil // most of what would be printed
		t.Fatalf("verified: %v, %+v", verified, result)
	}
	return result
}

// kinds are all combinations of operation, measure and verification.
func kinds() map[string]Spec {
	all := map[string]Spec{}
	for _, operation := range []topology.Operation{topology.Send, topology.Write, topology.Read} {
		for _, measure := range []topology.Measure{topology.Bandwidth, topology.Latency} {
			for _, verify := range []bool{false, true} {
				spec := Spec{Name: "w", Operation: operation, Measure: measure, Size: 64, Depth: 32, Verify: verify, Seed: 1}
				all[fmt.Sprintf("%s/%s/verify=%v", operation, measure, verify)] = spec
			}
		}
	}
	return all
}

// TestPolling polls in real time.
func TestPolling(t *testing.T) {
	w := newWire(t)
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
			spec.Polling, spec.Count = true, 200
			if got := w.run(t, spec); got.Messages != 200 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	w := newWire(b)
	for name, spec := range kinds() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			spec.Count = uint64(b.N)
			w.run(b, spec)
		})
	}
}
