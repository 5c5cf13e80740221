package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/metrics"
)

// BenchmarkWatched measures what a data path loses when a monitor looks once a second at a lab of 98 nodes that is up beside it:
// `bench-datapath pair` in turns with and without. The loss is the median of the pairs of turns, in percent of the throughput.
func BenchmarkWatched(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("bench-datapath needs root")
	}
	pair := filepath.Join(b.TempDir(), "bench-datapath")
	if err := built.Build(pair, "../../bench/datapath"); err != nil {
		b.Fatal(err)
	}
	l, err := lab.Open(b.Context(), up(b, 98))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var losses, rates []float64
	for turn := 0; b.Loop(); turn++ {
		var unwatched, watched float64
		measure := []func(){
			func() { unwatched = throughput(b, pair) },
			func() { watching(b, l, func() { watched = throughput(b, pair) }) },
		}
		measure[turn%2]()
		measure[1-turn%2]()
		losses, rates = append(losses, 100*(1-watched/unwatched)), append(rates, unwatched)
	}
	slices.Sort(losses)
	slices.Sort(rates)
	b.ReportMetric(losses[len(losses)/2], "lost-%")
	b.ReportMetric(rates[len(rates)/2], "Gb/s")
}

// throughput returns that of WRITEs of 64 KiB between two processes, in Gb/s.
func throughput(b *testing.B, pair string) float64 {
	b.Helper()
	out, err := exec.Command(pair, "pair", "-op", "write", "-size", "64KiB").Output()
	if err != nil {
		b.Fatal(err)
	}
	line, ok := strings.CutPrefix(string(out), "client ")
	line, _, _ = strings.Cut(line, "\n")
	var measured struct {
		Gbps float64 `json:"gbps"`
	}
	if err := json.Unmarshal([]byte(line), &measured); !ok || err != nil || measured.Gbps == 0 {
		b.Fatalf("%s: %v", out, err)
	}
	return measured.Gbps
}

// watching looks at a lab once a second while f runs.
func watching(b *testing.B, l *lab.Lab, f func()) {
	b.Helper()
	done := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if _, err := l.Observe(b.Context(), metrics.Bounds()); err != nil {
				ended <- err
				return
			}
			select {
			case <-tick.C:
			case <-done:
				ended <- nil
				return
			}
		}
	}()
	f()
	close(done)
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
