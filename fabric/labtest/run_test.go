package labtest

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// scenarioOf is a workload over a link that is cut for a while, with checks.
func scenarioOf() *Builder {
	return pairOf(Delay(time.Millisecond), Loss(0.01)).
		Workload(topology.Workload{Name: "bulk", Operation: topology.Write, From: "a", To: "b", Size: 64 * KiB, Depth: 4, Count: 200, Verify: true}).
		At(20*time.Millisecond, Set("link", "a:eth0"), Set("down", "true")).
		At(40*time.Millisecond, Set("link", "a:eth0"), Set("up", "true")).
		Check(Set("workload", "bulk"), Set("errors", "0"), Set("verified", "true"))
}

// The scenario of a topology is run in a lab.
func TestRun(t *testing.T) {
	t.Parallel()
	r := Up(t, scenarioOf()).Run()
	if !r.Passed || r.Simulated || r.Workloads[0].Messages != 200 || !r.Workloads[0].Verified {
		t.Errorf("%+v", r.Workloads)
	}
	// A busy machine makes packets late, but not nine of ten.
	for _, d := range r.Links[0].Directions {
		if d.Lateness == nil || d.Lateness.P10 > 200 {
			t.Errorf("microseconds late: %+v", d.Lateness)
		}
	}
}

// The same is played in virtual time, and a seed has one result.
func TestSimulate(t *testing.T) {
	t.Parallel()
	first, second, other := Simulate(t, scenarioOf(), 1), Simulate(t, scenarioOf(), 1), Simulate(t, scenarioOf(), 2)
	if !first.Passed || !first.Simulated || first.Seed != 1 || first.Workloads[0].Messages != 200 {
		t.Errorf("%+v", first)
	}
	but := cmpopts.IgnoreFields(report.Run{}, "Started", "Host", "Seed")
	if d := cmp.Diff(first, second, but); d != "" {
		t.Errorf("one seed, two results:\n%s", d)
	}
	if cmp.Equal(first, other, but) {
		t.Error("two seeds have one result")
	}
}

func TestInnerChecks(t *testing.T) {
	inner(t)
	Simulate(t, scenarioOf().Check(Set("workload", "bulk"), Set("latency_p99", "<= 1us")), 1)
}

// Checks are subtests; one that fails says what was expected, and where that is written.
func TestChecksFail(t *testing.T) {
	t.Parallel()
	out, err := again(t, "TestInnerChecks").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"--- PASS: TestInnerChecks/check_bulk_errors", "--- FAIL: TestInnerChecks/check_bulk_latency_p99",
		"expected <= 1us, got ", "--- PASS: TestInnerChecks/workload_bulk",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// Workloads run when a test wants them to, and their results are its.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	w := l.Workload(topology.Workload{Operation: topology.Send, From: "a", To: "b", Size: 4 * KiB, Count: 100, Verify: true})
	if w.Errors != 0 || w.Messages != 100 || !w.Verified {
		t.Errorf("%+v", w)
	}
	watch := l.Watch()
	running := l.StartWorkloads(
		topology.Workload{Name: "there", Operation: topology.Write, From: "a", To: "b", Size: KiB, Duration: 10 * time.Minute},
		topology.Workload{Name: "back", Operation: topology.Read, From: "b", To: "a", Size: KiB, Count: 10},
	)
	watch.Next(event.WorkloadStarted)
	l.Node("a").Await("RDMAOutFrames>200")
	l.Node("b").Kill()
	results := running.Wait()
	if there := results[0]; there.Name != "there" || there.Errors == 0 || there.Messages == 0 {
		t.Errorf("of a workload whose peer is killed: %+v", there)
	}
}
