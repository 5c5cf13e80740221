package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/metrics"
)

// BenchmarkLook measures what a look at a lab of 98 nodes costs when there is one a second, as monitors have it: processors have
// done other things meanwhile, so that all that a look touches comes from memory. It is the time of processors that the supervisor, the
// link engine and all agents take, and the process that asks, in a second with a look, less that of a second without one: the
// median of each. busy of the nodes exchange messages.
func BenchmarkLook(b *testing.B) {
	for _, busy := range []int{0, 40} {
		b.Run(fmt.Sprintf("busy=%d", busy), func(b *testing.B) { lookEachSecond(b, 98, busy) })
	}
}

func lookEachSecond(b *testing.B, nodes, busy int) {
	l, err := lab.Open(b.Context(), up(b, nodes))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ran := make(chan error, 1)
	if busy > 0 {
		go func() {
			_, err := l.RunWorkloads(ctx, pairsOf(busy)...)
			ran <- err
		}()
	}
	processes := byProgram(b, awaitProcesses(b, l.Info().Lab, busy))
	processes["asker"] = []string{strconv.Itoa(os.Getpid())}
	programs := []string{"ndklab-supervisor", "ndklab-linkem", "ndklab-node", "asker"} // which reads the times of the others before and after its own
	for _, program := range programs {
		if len(processes[program]) == 0 && (busy > 0 || program != "ndklab-node") {
			b.Fatalf("the lab has no %s, but %v", program, processes)
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	second := func(what func()) []int64 {
		costs := make([]int64, len(programs))
		for i, program := range programs {
			costs[i] = -processorTime(b, processes[program])
		}
		what()
		asker := len(programs) - 1
		costs[asker] += processorTime(b, processes[programs[asker]])
		<-tick.C
		for i, program := range programs[:asker] {
			costs[i] += processorTime(b, processes[program])
		}
		return costs
	}
	look := func() {
		o, err := l.Observe(b.Context(), metrics.Bounds())
		if err != nil || len(o.Nodes) != nodes+1 {
			b.Fatalf("%v", err)
		}
	}
	look()
	var with, without [][]int64
	for b.Loop() {
		without = append(without, second(func() {}))
		with = append(with, second(look))
	}
	sum := 0.0
	for i, program := range programs {
		ms := float64(medianOf(with, i)-medianOf(without, i)) / 1e6
		b.ReportMetric(ms, program+"-ms/look")
		sum += ms
	}
	b.ReportMetric(sum, "ms/look")
	cancel()
	if busy > 0 {
		<-ran
	}
}

// medianOf returns the median of a column.
func medianOf(rows [][]int64, column int) int64 {
	var all []int64
	for _, row := range rows {
		all = append(all, row[column])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// byProgram sorts processes by what they run.
func byProgram(t testing.TB, pids []string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(strings.TrimRight(string(text), "\x00"), " ")
		name, _, _ = strings.Cut(name, "\x00")
		all[name] = append(all[name], pid)
	}
	return all
}
