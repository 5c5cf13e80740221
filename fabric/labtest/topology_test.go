package labtest

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/topology"
)

// parsed is the topology of a source.
func parsed[S Source](t *testing.T, source S) *topology.Topology {
	t.Helper()
	doc, err := read(source)
	if err != nil {
		t.Fatal(err)
	}
	topo, err := doc.parse(topology.Options{Name: "lab"})
	if err != nil {
		t.Fatalf("%v\n%s", err, doc.text)
	}
	return topo
}

// likeness has the options by which topologies are compared: equal things may be in
// other places.
var likeness = cmp.Options{cmpopts.IgnoreTypes(topology.Place{}), cmpopts.EquateComparable(netip.Prefix{})}

// A topology made in code is that of a file which says the same.
func TestBuilder(t *testing.T) {
	t.Parallel()
	built := Topology().
		Seed(7).
		LinkDefaults(MTU(4200), Queue(4*MiB)).
		Hosts("a", "b").
		Host("c", Set("cpu", "0.5"), Set("adapter", "{max_srq_depth: 1024}")).
		Switch("s").
		Router("r").
		Link("a", "s", Delay(1500*time.Microsecond), Jitter(50*time.Microsecond), Loss(0.001), Rate(10*Gbit)).
		Link("b:eth3", "s:p7", Delay(time.Millisecond), Duplicate(0.01), Reorder(0.02), Corrupt(0.03)).
		Link("c", "s", Set("loss", "{rate: 1%, burst: 5}")).
		Link("c", "r").
		Workload(topology.Workload{Name: "bulk", Operation: topology.Write, From: "a", To: "b", Size: 64 * KiB, Depth: 16, Duration: 3 * time.Second, Verify: true}).
		Workload(topology.Workload{Name: "mix", Operation: topology.Send, Pattern: topology.Incast, Nodes: []string{"a", "b", "c"}, Sizes: []uint64{64, KiB}, Mixed: true, Count: 10, QPs: 2, Polling: true, Rate: Mbit, Manual: true}).
		At(2*time.Second, Set("link", "a:eth0"), Set("set", "{loss: 2%}")).
		Event(Set("when", "{workload: bulk, messages: '>= 1000'}"), Set("kill", "b")).
		Chaos(Set("kind", "down"), Set("every", "2s"), Set("for", "200ms"), Set("until", "20s")).
		Check(Set("workload", "bulk"), Set("throughput", ">= 200mbit"))
	written := parsed(t, YAML(`
seed: 7
topology:
  defaults:
    link: {mtu: 4200, queue: 4MiB}
  nodes:
    a: {}
    b: {}
    c: {cpu: 0.5, adapter: {max_srq_depth: 1024}}
    s: {kind: switch}
    r: {kind: router}
  links:
    - {endpoints: ["a:eth0", "s:eth0"], delay: 1.5ms, jitter: 50us, loss: 0.1%, rate: 10gbit}
    - {endpoints: ["b:eth3", "s:p7"], delay: 1ms, duplicate: 1%, reorder: 2%, corrupt: 3%}
    - {endpoints: ["c:eth0", "s:eth1"], loss: {rate: 1%, burst: 5}}
    - {endpoints: ["c:eth1", "r:eth0"]}
workloads:
  - {name: bulk, operation: write, from: a, to: b, size: 64KiB, depth: 16, duration: 3s, verify: true}
  - {name: mix, operation: send, pattern: incast, to: a, nodes: [b, c], size: {mix: [64B, 1KiB]}, count: 10, qps: 2, completion: poll, rate: 1mbit, start: manual}
timeline:
  - {at: 2s, link: "a:eth0", set: {loss: 2%}}
  - {when: {workload: bulk, messages: ">= 1000"}, kill: b}
chaos:
  - {kind: down, every: 2s, for: 200ms, until: 20s}
checks:
  - {workload: bulk, throughput: ">= 200mbit"}
`))
	if d := cmp.Diff(written, parsed(t, built), likeness); d != "" {
		t.Errorf("the file (-), the code (+):\n%s", d)
	}
	// And what is written of it is a file.
	if d := cmp.Diff(written, parsed(t, YAML(built.String())), likeness); d != "" {
		t.Errorf("the file (-), what is written of the code (+):\n%s", d)
	}
}

// Every workload of the examples can be said in code.
func TestWorkloadSettings(t *testing.T) {
	t.Parallel()
	topo := parsed(t, YAML(`
topology:
  nodes: {a: {}, b: {}, c: {}, s: {kind: switch}}
  links:
    - endpoints: ["a:eth0", "s:p1"]
    - endpoints: ["b:eth0", "s:p2"]
    - endpoints: ["c:eth0", "s:p3"]
workloads:
  - {name: one, operation: write, from: a, to: b, size: all, count: 5, qps: 3, inline: true, warmup: 1s, reconnect: true}
  - {name: two, operation: send, pattern: broadcast, from: a, nodes: [b, c], size: 8B, duration: 1s, srq: true, start: 1s}
  - {name: three, operation: read, pattern: ring, nodes: [a, b, c], size: [1KiB, 2KiB], measure: latency, count: 7}
  - {name: four, operation: allreduce, nodes: [a, b, c], size: 1MiB, count: 2, verify: true}
  - {name: five, operation: exec, nodes: [a], command: [sh, -c, "echo \"a, b: [c]\""], timeout: 3s}
  - {name: seven, exec: {b: [ib_write_bw], a: ["ib_write_bw", "b: c"], c: x}, ready: 18515, timeout: 3s}
  - {name: eight, exec: {b: [x], a: [y]}, ready: started}
  - {name: six, operation: connect, from: a, to: b, depth: 1, qps: 1, count: 9}
`))
	for i := range topo.Workloads {
		w := &topo.Workloads[i]
		given := *w
		given.Flows = nil
		b := Topology().Hosts("a", "b", "c").Switch("s").Link("a", "s:p1").Link("b", "s:p2").Link("c", "s:p3").Workload(given)
		if d := cmp.Diff(*w, parsed(t, b).Workloads[0], likeness); d != "" {
			t.Errorf("workload %s: the file (-), the code (+):\n%s\n%s", w.Name, d, b)
		}
	}
}

// An error in a topology made in code has the place of the call.
func TestBuilderErrors(t *testing.T) {
	t.Parallel()
	_, _, here, _ := runtime.Caller(0)
	doc, err := read(Topology().
		Hosts("a", "Bee").
		Link("a", "c").
		Link("a", "d",
			Loss(1.5)).
		Host("e", Set("colour", "red: {")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = doc.parse(topology.Options{Name: "lab"})
	if err == nil {
		t.Fatal("it is taken for right")
	}
	text := err.Error()
	for line, want := range map[int]string{2: `nodes: "Bee" is no plain name`, 3: `unknown node "c"`, 4: "loss: 150% is out of range", 6: `unknown key "colour"`} {
		if want = fmt.Sprintf("topology_test.go:%d: %s", here+line, want); !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// A check in a report has the place of the call, too.
func TestPlaceOfCheck(t *testing.T) {
	t.Parallel()
	_, _, here, _ := runtime.Caller(0)
	topo := parsed(t, pairOf().
		Workload(topology.Workload{Name: "w", Operation: topology.Read, From: "a", To: "b", Size: 1, Count: 1}).
		Check(Set("workload", "w"), Set("errors", "0")))
	if got, want := topo.Checks[0].Place, (topology.Place{File: "topology_test.go", Line: here + 3, Column: 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Names of labs are plain, whatever a file is called.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"testdata/Pair of 2.ndklab.yaml", "topology", "-", "", strings.Repeat("long-", 20) + ".yaml", "ünï.yaml"} {
		for _, name := range []string{nameOf(file), nameFor(file)} {
			if topology.CheckName(name) != nil {
				t.Errorf("%q: %q is no lab's name", file, name)
			}
		}
	}
	if a, b := nameFor("x"), nameFor("x"); a == b {
		t.Errorf("two labs are called %s", a)
	}
}

// A file that is not there, and one that is wrong, are told of.
func TestBadSources(t *testing.T) {
	t.Parallel()
	if _, err := read("no-such-file.yaml"); err == nil || err.Error() != "there is no file no-such-file.yaml" {
		t.Error(err)
	}
	doc, err := read(YAML("topology:\n  nodes: {a: {kind: swich}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doc.parse(topology.Options{Name: "lab"}); err == nil || !strings.HasPrefix(err.Error(), "topology.yaml:2:") {
		t.Error(err)
	}
}
