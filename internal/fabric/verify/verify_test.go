package verify

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/topology"
)

// The probes suit the link: its MTU, and half of its rate at most.
func TestPrepare(t *testing.T) {
	spec := &topology.Link{MTU: 1500}
	for _, tt := range []struct {
		probes Probes
		rate   uint64 // bits per second
		want   string // count, each second, size; or what an error has
	}{
		{Probes{}, 0, "1000 1000 128"},
		{Probes{}, 1_000_000, "1000 411 128"}, // 152 bytes each on a wire
		{Probes{}, 100_000, "410 41 128"},     // in 10 s
		{Probes{}, 2000, "too low for a probe a second"},
		{Probes{PerSecond: 1}, 2000, "10 1 128"},
		{Probes{Size: 1514, Count: 7, PerSecond: 9}, 0, "7 9 1514"},
		{Probes{Size: 1515}, 0, "expected 66 to 1514"},
		{Probes{Size: probe.MinSize - 1}, 0, "expected 66 to 1514"},
		{Probes{Count: MaxProbes + 1}, 0, "expected 1 to 1000000"},
		{Probes{PerSecond: -1}, 0, "expected 1 to 1000000"},
	} {
		d, err := Prepare(spec, nil, 0, topology.Impairment{Rate: tt.rate}, tt.probes)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(d.options.Count, d.options.PerSecond, d.options.Size)
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%+v at %d bit/s: %s, want %s", tt.probes, tt.rate, got, tt.want)
		}
	}
}

// A figure passes within its bounds, each of which belongs to them.
func TestJudge(t *testing.T) {
	d := &Direction{}
	for _, got := range []float64{1, 2, 3, 4} {
		d.judge("lost", got, 2, 3, func(n float64) string { return fmt.Sprint(n) })
	}
	for i, want := range []bool{false, true, true, false} {
		if f := d.Found.Findings[i]; f.Passed != want || f.Expected != "2 to 3" {
			t.Errorf("%+v, want passed %v of 2 to 3", f, want)
		}
	}
}

// A queue takes as many probes at once as it holds, and no more than are asked about.
func TestQueued(t *testing.T) {
	for packets, want := range map[uint64]int{7: 7, 100: 20} {
		if got := queued(topology.Impairment{Rate: 1_000_000, Queue: topology.Queue{Packets: packets}}, 1000, 20); got != want {
			t.Errorf("%d probes fit a queue of %d packets, want %d", got, packets, want)
		}
	}
}

// Delays by two clocks are judged by as much wider bounds as these may be wrong, and the result says so.
func TestUnsure(t *testing.T) {
	const delay, beyond = time.Millisecond, 50 * time.Microsecond
	spec := &topology.Link{MTU: 1500, Tolerance: topology.Tolerance{Delay: time.Nanosecond, DelayP99: time.Nanosecond}}
	for unsure, passes := range map[time.Duration]bool{0: false, beyond - earliest - time.Microsecond: false, beyond: true} {
		for _, off := range []time.Duration{-beyond, beyond} {
			fly := func(_ context.Context, _ int, o probe.Options, until func(*probe.Flight) time.Duration) (*probe.Flight, error) {
				f := &probe.Flight{Size: o.Size, Unsure: unsure}
				for i := range o.Count {
					at := time.Hour + time.Duration(i)*time.Millisecond
					f.Sent = append(f.Sent, at)
					f.Arrivals = append(f.Arrivals, probe.Arrival{Probe: i, At: at + delay + off})
				}
				f.Now = f.Sent[o.Count-1]
				if wait := until(f); wait < delay || wait > delay+patience {
					t.Errorf("it waits for %v", wait)
				}
				return f, nil
			}
			d, err := Prepare(spec, fly, 0, topology.Impairment{Delay: delay}, Probes{Count: 50})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Fly(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p50 := d.Found.Findings[0]; p50.Figure != "delay p50" || p50.Passed != passes {
				t.Errorf("off by %v, unsure by %v: %+v", off, unsure, p50)
			}
			if said := d.Found.ClockErrorUS; (said != nil) != (unsure > 0) || said != nil && *said != micros(unsure) {
				t.Errorf("unsure by %v: the result says %v", unsure, said)
			}
		}
	}
}
