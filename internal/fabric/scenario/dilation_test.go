package scenario

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

const slower = 40 // dilation

// The scenario's times are the fabric's: an event of after a second happens after 40 by the machine, and
// the report has a second.
func TestDilatedTimeline(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{{Name: "w", Operation: topology.Program, Nodes: []string{"n0"}, Command: []string{"x"}, Start: 2 * time.Second, Timeout: time.Minute}}
	topo.Timeline = []topology.Event{{At: time.Second, Mark: "x"}}
	s := newStage(t, topo)
	s.dilation = slower
	s.exit = func(string, Command) (Exit, time.Duration) { return Exit{}, 10 * time.Second }
	r := s.play()
	want(t, s.logged("mark"), "40s mark: x")
	want(t, s.logged("exec"), "1m20s exec x in n0")
	at := map[string]time.Duration{}
	for _, e := range r.Events {
		at[e.Kind] = e.At
	}
	if at["mark"] != time.Second || at["workload-started"] != 2*time.Second || at["workload-done"] != 2250*time.Millisecond || r.Seconds != 2.25 {
		t.Errorf("%v, %v s", at, r.Seconds)
	}
}

// While a run goes on, people are told of it as often as without dilation.
func TestDilatedProgress(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", 10*time.Second)}
	topo.Timeline = []topology.Event{{At: time.Second, Mark: "x"}}
	s := newStage(t, topo)
	s.dilation = slower
	told := map[string]int{}
	s.published = func(e event.Event) { told[e.Kind]++ }
	s.play()
	if n := told[event.WorkloadProgress]; n < 9 || n > 11 {
		t.Errorf("in 10 s of the machine, progress is told of %d times", n)
	}
	if told[event.TimelineLeft] != 1 {
		t.Error("nobody is told that the timeline goes on for 30 s of the machine")
	}
}

// Bounds on what programs and agents take are the machine's.
func TestBoundsAreNotDilated(t *testing.T) {
	const never = 24 * time.Hour
	play := func(ready, gone time.Duration) (string, bool) {
		topo, s := serving(t, 1, func(node string) (Exit, time.Duration) {
			if node == "n0" {
				return Exit{Status: 143}, never
			}
			return Exit{}, time.Second
		})
		topo.Workloads[0].Timeout = time.Hour
		topo.Checks = []topology.Check{{Left: true, Bounds: []topology.Bound{{Metric: topology.Leftovers, Relation: "==", Value: 0, Text: "0"}}}}
		s.dilation, s.inUse, s.gone = slower, provider.Usage{Qps: 2}, gone
		s.ready = func(topology.Readiness) time.Duration { return ready }
		r := s.play()
		return fmt.Sprint(time.Duration(r.Workloads[0].Ended * slower * float64(time.Second)).Round(time.Millisecond)), r.Checks[0].Passed
	}
	// The server ends 2 s after its client, and what it had may be gone 2 s later.
	if ended, left := play(0, 4900*time.Millisecond); ended != "3s" || !left {
		t.Errorf("ended at %s by the machine, left over: %v", ended, !left)
	}
	if _, left := play(0, 5100*time.Millisecond); left {
		t.Error("what is left for longer than 2 s is not left over")
	}
	if ended, _ := play(-1, time.Second); ended != "1m0s" {
		t.Errorf("a server that is never ready ended at %s by the machine", ended)
	}
}

// An interrupted run ends as soon as without dilation: clients that do not end in good order are ended after a second.
func TestDilatedInterruption(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", time.Hour)}
	s := newStage(t, topo)
	s.dilation, s.deaf = slower, true
	if _, err := s.begin(func(p *Play) { s.AfterFunc(time.Second, p.Interrupt) }); !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
	want(t, s.logged("stop"), "1s stop w/0")
	want(t, s.logged("abort"), "2s abort w/0")
}
