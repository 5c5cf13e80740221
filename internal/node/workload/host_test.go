package workload

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// TestHost has several flows between two hosts, of which one is stopped and one aborted.
func TestHost(t *testing.T) {
	l := newLab(t)
	client, server := NewHost(l.devices[0], l.clock), NewHost(l.devices[1], l.clock)
	results := map[int]Result{}
	at := func(flow int) netip.AddrPort { return netip.AddrPortFrom(serverAddress.Addr(), uint16(7000+flow)) }
	for flow := range 3 {
		spec := Spec{Name: "w", Flow: flow, Operation: topology.Send, Size: 100, Depth: 4, Duration: time.Second, Verify: true, Seed: uint64(flow)}
		if err := server.Serve(spec, at(flow)); err != nil {
			t.Fatal(err)
		}
		if err := server.Serve(spec, at(flow)); !errors.Is(err, ErrServed) {
			t.Errorf("served twice: %v", err)
		}
		run := func() error {
			return client.Run(spec, clientAddress, at(flow), func(r Result) { results[flow] = r })
		}
		if err := run(); err != nil {
			t.Fatal(err)
		}
		if err := run(); !errors.Is(err, ErrRunning) {
			t.Errorf("run twice: %v", err)
		}
	}
	l.clock.Run(500 * time.Millisecond)
	client.Stop("w", 1)
	client.Abort("w", 2, "enough")
	client.Stop("w", 7)
	client.Abort("v", 0, "unknown")
	progress := client.Progress()
	for i, p := range progress {
		if p.Flow != i || p.Name != "w" || p.Messages < 600 || p.Bytes != 100*p.Messages {
			t.Errorf("progress: %+v", p)
		}
	}
	if len(progress) != 3 {
		t.Errorf("progress of %d clients", len(progress))
	}
	var sum Progress
	for _, p := range progress {
		sum.Messages, sum.Bytes, sum.Errors = sum.Messages+p.Messages, sum.Bytes+p.Bytes, sum.Errors+p.Errors
	}
	observed := client.Observe([]int64{1, int64(time.Second)})
	if len(observed) != 1 || server.Observe(nil) != nil {
		t.Fatalf("observed %+v, and of the server %+v", observed, server.Observe(nil))
	}
	if o := observed[0]; o.Name != "w" || o.Clients != 3 || o.Messages != sum.Messages || o.Bytes != sum.Bytes || o.Errors != sum.Errors ||
		o.Latency.Count != sum.Messages || o.Latency.UpTo[0] != 0 || o.Latency.UpTo[1] != sum.Messages || o.Latency.Sum < 1e5*float64(sum.Messages) {
		t.Errorf("observed %+v of %+v", o, sum)
	}
	l.clock.Run(time.Minute)
	if left := client.Progress(); len(left) != 0 {
		t.Errorf("running still: %+v", left)
	}
	for flow, r := range results {
		if ended := r.Seconds < 0.6; ended != (flow > 0) || (r.Error == "enough") != (flow == 2) || r.Messages < 600 {
			t.Errorf("flow %d: %+v", flow, r)
		}
		var found *ServerResult
		if err := server.Unserve("w", flow, func(r ServerResult) { found = &r }); err != nil {
			t.Fatal(err)
		}
		if err := server.Unserve("w", flow, func(ServerResult) { t.Error("done") }); !errors.Is(err, ErrNotServed) {
			t.Errorf("unserved twice: %v", err)
		}
		if l.clock.Run(time.Second); found == nil || found.Mismatches > 0 || found.Verified < r.Messages || flow < 2 && found.Verified != r.Messages {
			t.Errorf("flow %d: client %+v, server %+v", flow, r, found)
		}
	}
	if len(results) != 3 {
		t.Errorf("%d flows are done", len(results))
	}
	for i, m := range l.devices {
		if usage := m.Usage(); usage.Instances != 0 {
			t.Errorf("device %d has %+v", i, usage)
		}
	}
}

// TestHostClear ends what runs and is served, and what was ended before but is not closed:
// addresses and names are free then.
func TestHostClear(t *testing.T) {
	l := newLab(t)
	hosts := []*Host{NewHost(l.devices[0], l.clock), NewHost(l.devices[1], l.clock)}
	for range 2 {
		spec := Spec{Name: "w", Operation: topology.Write, Size: 4096, Depth: 4, Duration: time.Hour, Seed: 1}
		var got Result
		if err := hosts[1].Serve(spec, serverAddress); err != nil {
			t.Fatal(err)
		}
		if err := hosts[0].Run(spec, clientAddress, serverAddress, func(r Result) { got = r }); err != nil {
			t.Fatal(err)
		}
		l.clock.Run(100 * time.Millisecond)
		found := false
		if err := hosts[1].Unserve("w", 0, func(ServerResult) { found = true }); err != nil {
			t.Fatal(err)
		}
		cleared := 0
		for _, h := range hosts {
			h.Clear("another run", func() { cleared++ })
		}
		if cleared > 0 {
			t.Error("cleared from within")
		}
		if !l.clock.RunUntil(func() bool { return cleared == 2 }, time.Minute) || !found || got.Messages == 0 || got.Error == "" {
			t.Fatalf("%d of 2 are clear, server ended: %v, client %+v", cleared, found, got)
		}
		for i, m := range l.devices {
			if usage := m.Usage(); usage.Instances != 0 {
				t.Errorf("device %d has %+v", i, usage)
			}
		}
	}
}

// TestHostUnknownOperation names one that no host has.
func TestHostUnknownOperation(t *testing.T) {
	l := newLab(t)
	h := NewHost(l.devices[0], l.clock)
	spec := Spec{Name: "w", Operation: "dance"}
	for _, err := range []error{
		h.Serve(spec, serverAddress), h.Run(spec, clientAddress, serverAddress, func(Result) { t.Error("done") }),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), "no such operation: dance") {
			t.Errorf("got %v", err)
		}
	}
}

// TestNewSpec has what a workload says arrive in the spec.
func TestNewSpec(t *testing.T) {
	w := &topology.Workload{
		Name: "w", Operation: topology.AllReduce, Measure: topology.Latency, Size: 2, Sizes: []uint64{1, 2}, Mixed: true, Depth: 3,
		QPs: 4, Inline: true, SRQ: true, Polling: true, Rate: 5, Count: 6, Duration: 7, WarmUp: 8, Verify: true, Reconnect: true,
		Flows: make([]topology.Flow, 9),
	}
	want := Spec{
		Name: "w", Flow: 1, Flows: 9, Operation: topology.AllReduce, Measure: topology.Latency, Size: 2, Sizes: []uint64{1, 2}, Mixed: true, Depth: 3,
		QPs: 4, Inline: true, SRQ: true, Polling: true, Rate: 5, Count: 6, Duration: 7, WarmUp: 8, Verify: true, Reconnect: true,
		Seed: 10, Rank: 1, Ranks: 9,
	}
	if diff := cmp.Diff(want, NewSpec(w, 1, 10)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
