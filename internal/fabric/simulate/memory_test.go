//go:build !race

package simulate

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/topology"
)

// allToAll is hosts at a switch, each of which exchanges messages with each other one.
func allToAll(t testing.TB, hosts int, workload string) *topology.Topology {
	t.Helper()
	var b strings.Builder
	b.WriteString("name: x\ntopology:\n  defaults: {link: {mtu: 4200, rate: 100gbit, delay: 10us}}\n  nodes:\n    sw: {kind: switch}\n")
	for i := range hosts {
		fmt.Fprintf(&b, "    h%d:\n", i)
	}
	b.WriteString("  links:\n")
	for i := range hosts {
		fmt.Fprintf(&b, "    - {endpoints: [\"h%d:eth0\", \"sw:p%d\"]}\n", i, i)
	}
	fmt.Fprintf(&b, "workloads:\n  - {name: w, pattern: all-to-all, nodes: \"*\", %s}\n", workload)
	topo, err := topology.Parse("x.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return topo.Draw(1)
}

// live returns the bytes that are in use in the heap.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fullest returns the bytes that a simulation takes with all flows in full swing, after each
// has completed so many messages.
func fullest(t testing.TB, topo *topology.Topology, s sharding, messages uint64) uint64 {
	t.Helper()
	before := live()
	l, err := newLab(topo, Options{}, s)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var result *report.Run
	play := scenario.Begin(l, topo, func(r *report.Run, _ error) { result = r })
	for !l.under(t, messages) {
		if l.steps(t, 1); result != nil {
			t.Fatal("it is over before each flow has completed that many messages")
		}
	}
	full := live()
	l.beginNoWindows()
	play.Interrupt()
	for result == nil {
		l.steps(t, 1)
	}
	runtime.KeepAlive(l)
	return full - before
}

// steps runs so many events at least.
func (l *lab) steps(t testing.TB, events int) {
	t.Helper()
	for events > 0 {
		n, err := l.step()
		if n == 0 || err != nil {
			t.Fatalf("nothing is left that could happen: %v", err)
		}
		events -= n
	}
}

// under reports whether each client has completed so many messages. It looks now and then.
func (l *lab) under(t testing.TB, messages uint64) bool {
	t.Helper()
	l.steps(t, stepsAtOnce)
	clients := 0
	for _, n := range l.network.nodes {
		if n.life == nil {
			continue
		}
		for _, p := range n.life.host.Progress() {
			if clients++; p.Messages < messages {
				return false
			}
		}
	}
	return clients == len(l.topo.Workloads[0].Flows)
}

// flowBudget is the most that a flow may take in a simulation, in bytes, over what hosts
// and links take: both of its ends, the connection, and what is known of its course, after
// some messages. The memory for messages that are compared comes to that.
const flowBudget = 20_000

// TestMemoryOfFlows has each flow of a simulation take no more than it may. Three sizes tell
// apart what flows cost and what hosts cost, since only the latter grows in proportion to the
// number of hosts. Packets that are under way are part of it.
func TestMemoryOfFlows(t *testing.T) {
	const few, some, many = 16, 32, 64
	for _, workload := range []string{
		"operation: write, size: 4KiB, depth: 4, duration: 1m",
		"operation: send, size: 4KiB, depth: 4, duration: 1m",
		"operation: send, size: 64B, depth: 1, duration: 1m, verify: true",
	} {
		t.Run(workload, func(t *testing.T) {
			bytes := map[int]float64{}
			for _, hosts := range []int{few, some, many} {
				bytes[hosts] = float64(fullest(t, allToAll(t, hosts, workload), unsharded, 10))
			}
			// bytes = a + b hosts + c hosts^2
			slope := func(from, to int) float64 { return (bytes[to] - bytes[from]) / float64(to-from) }
			flow := (slope(some, many) - slope(few, some)) / (many - few)
			host := slope(few, some) - flow*(few+some)
			t.Logf("a flow takes %.0f bytes, and a host with its link %.0f: %v", flow, host+flow, bytes)
			if flow > flowBudget {
				t.Errorf("a flow takes %.0f bytes, which may be %d", flow, flowBudget)
			}
		})
	}
}

// TestEstimate has the estimate be above what a simulation takes, and not twice of that, and above what more shards add.
func TestEstimate(t *testing.T) {
	for _, workload := range []string{
		"operation: write, size: 4KiB, depth: 4, duration: 1m",
		"operation: write, size: 4KiB, depth: 4, duration: 1m, verify: true",
		"operation: send, size: 64B, depth: 1, duration: 1m, verify: true",
		"operation: read, size: 16KiB, depth: 8, duration: 1m, verify: true",
	} {
		for _, hosts := range []int{24, 48} {
			var before, expected uint64
			for _, shards := range []int{1, 2} {
				topo := allToAll(t, hosts, workload)
				took, estimate := fullest(t, topo, shardingOf(topo, shards), 5), total(Estimate(topo, shards))
				if ratio := float64(estimate) / float64(took); ratio < 1 || ratio > 2 {
					t.Errorf("%s: %d hosts in %d shards take %d bytes, and are estimated to take %.2f times that: %v", workload, hosts, shards, took, ratio, Estimate(topo, shards))
				} else {
					t.Logf("%s: %d hosts in %d shards take %d bytes, and are estimated to take %.2f times that", workload, hosts, shards, took, ratio)
				}
				if shards > 1 && took > before+estimate-expected {
					t.Errorf("%s: %d hosts take %d bytes more in shards, and are estimated to take %d", workload, hosts, took-before, estimate-expected)
				}
				before, expected = took, estimate
			}
		}
	}
}

// Each shard has memory of its own for messages that nobody looks at.
func TestEstimateOfShards(t *testing.T) {
	const size, shards = 64 << 20, 3
	topo := allToAll(t, 4, "operation: write, size: 64MiB, depth: 1, duration: 1m")
	s := spread(topo, shards)
	if took, estimate := fullest(t, topo, s, 1), total(Estimate(topo, s.count)); s.count != shards || took < shards*size || estimate < took {
		t.Errorf("%d shards take %d bytes, and are estimated to take %d", s.count, took, estimate)
	}
}

// A simulation that does not fit is refused, with what takes most of the memory.
func TestRefusesWhatDoesNotFit(t *testing.T) {
	topo := allToAll(t, 16, "operation: write, size: 1MiB, depth: 64, count: 1, verify: true")
	_, err := Run(t.Context(), topo, Options{Memory: 1 << 30})
	var refused *NoMemoryError
	if !errors.As(err, &refused) || refused.Need < 240*2*64<<20 || refused.Most.What != "messages that are compared (verify)" {
		t.Errorf("%v", err)
	}
	topo = allToAll(t, 2, "operation: write, size: 4KiB, count: 1")
	need := total(Estimate(topo, 1))
	if _, err := Run(t.Context(), topo, Options{Memory: need}); err != nil {
		t.Error(err)
	}
	if _, err := Run(t.Context(), topo, Options{Memory: need - 1}); !errors.As(err, &refused) || refused.Need != need || refused.Available != need-1 {
		t.Errorf("with a byte less than %d: %v", need, err)
	}
	if runtime.GOOS == "linux" && Available() == 0 {
		t.Error("it is not known how much memory there is")
	}
}
