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
	"github.com/ndklab/ndklab/topology"
)

// BenchmarkObserve measures what each node of a large lab costs when a monitor looks at the lab: the time of processors that the
// lab's processes take in a second with updates, less that of a second without, in the median of pairs and, since the machine may
// have other things to do, which makes everything slower, in the least. busy of the nodes exchange
// messages meanwhile, and their agents have something new each time.
func BenchmarkObserve(b *testing.B) {
	for _, busy := range []int{0, 20} {
		b.Run(fmt.Sprintf("busy=%d", busy), func(b *testing.B) { observe(b, busy) })
	}
}

// looks is the number of updates in a second of the benchmark: several, since the lab does other things in a second, too, and not the same in each.
const looks = 5

func observe(b *testing.B, busy int) {
	l, err := lab.Open(b.Context(), up(b, manyNodes))
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
	processes := awaitProcesses(b, l.Info().Lab, busy)
	look := func() {
		o, err := l.Observe(b.Context(), metrics.Bounds())
		if err != nil || len(o.Nodes) != manyNodes+1 {
			b.Fatalf("%v", err)
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	second := func(what func()) int64 {
		<-tick.C
		before := processorTime(b, processes)
		what()
		<-tick.C
		return processorTime(b, processes) - before
	}
	look()
	var costs []int64
	for b.Loop() {
		without := second(func() {})
		costs = append(costs, (second(func() {
			for range looks {
				look()
			}
		})-without)/looks)
	}
	slices.Sort(costs)
	b.ReportMetric(float64(costs[len(costs)/2])/manyNodes, "cpu-ns/node")
	b.ReportMetric(float64(costs[0])/manyNodes, "least-cpu-ns/node")
	cancel()
	if busy > 0 {
		<-ran
	}
}

// pairsOf returns workloads that keep so many nodes busy, a little.
func pairsOf(nodes int) (all []topology.Workload) {
	for i := 0; i < nodes; i += 2 {
		from, to := fmt.Sprintf("h%d", i), fmt.Sprintf("h%d", i+1)
		all = append(all, topology.Workload{
			Name: "w" + from, Operation: topology.Write, From: from, To: to, Flows: []topology.Flow{{From: from, To: to}}, Size: 4096, Depth: 1, QPs: 1,
			Rate: 1e6, Duration: time.Hour,
		})
	}
	return all
}

// awaitProcesses returns the processes of a lab when so many nodes have theirs: others have none until something runs in them.
func awaitProcesses(t testing.TB, lab string, nodes int) []string {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		pids := processesOf(t, lab)
		if len(byProgram(t, pids)["ndklab-node"]) >= nodes {
			return pids
		}
		if time.Now().After(late) {
			t.Fatalf("the lab has %d processes, and %d nodes are busy", len(pids), nodes)
		}
	}
}

// processesOf returns the processes of a lab, by their names, which begin as `ndklab-node LAB/NODE` does.
func processesOf(t testing.TB, lab string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		words := strings.Fields(strings.ReplaceAll(string(text), "\x00", " "))
		if len(words) > 1 && strings.HasPrefix(words[0], "ndklab-") && (words[1] == lab || strings.HasPrefix(words[1], lab+"/")) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// processorTime returns the time that the threads of processes have had on processors, in ns, as the scheduler counts it
// (sched-stats.rst of the kernel): that of /proc/PID/stat is in steps of 10 ms.
func processorTime(t testing.TB, pids []string) (sum int64) {
	t.Helper()
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%s/task/*/schedstat", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil {
				continue // it has ended
			}
			onProcessor, _, _ := strings.Cut(string(text), " ")
			ns, err := strconv.ParseInt(onProcessor, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += ns
		}
	}
	return sum
}
