package lab

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
)

// A lab with dilation takes that many times longer, and its report has the times and rates that the file asks for.
func TestDilation(t *testing.T) {
	const dilation = 10
	topo := runnable(t, "rate: 1gbit, delay: 1ms", `
dilation: 10
workloads:
  - {name: bulk, from: client, to: server, operation: write, size: 64KiB, depth: 32, duration: 100ms}
  - {name: ping, from: client, to: server, operation: send, size: 64B, count: 20, start: 200ms}
timeline:
  - {at: 50ms, link: "client:eth0", set: {jitter: 1ns}}
checks:
  - {workload: bulk, throughput: ">= 100mbit"}
  - {workload: bulk, throughput: "<= 1gbit"}
  - {workload: ping, latency_min: ">= 2ms"}
  - {workload: ping, latency_min: "< 3ms"}
`)
	started := time.Now()
	l := start(t, topo)
	began := time.Now()
	r := runLab(t, l)
	took := time.Since(began).Seconds()
	for _, c := range r.Checks {
		if !c.Passed {
			t.Errorf("%s: expected %s, got %s", c.Name, c.Expected, c.Got)
		}
	}
	if r.Seconds < 0.2 || took < dilation*r.Seconds || r.Dilation != dilation || r.MachineSeconds != dilation*r.Seconds {
		t.Errorf("%v s of the fabric, and by the report %v with dilation %d, took %v s", r.Seconds, r.MachineSeconds, r.Dilation, took)
	}
	if w := r.Workloads[0]; w.Seconds < 0.1 || w.Seconds > r.Seconds {
		t.Errorf("a workload of 100 ms took %v s of %v s", w.Seconds, r.Seconds)
	}
	// Events of the run, of the lab in the run, and of the lab have the fabric's time.
	told, _, err := l.Events(testContext(t), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	last := time.Since(started) / dilation
	seen := 0
	for _, e := range append(r.Events, told...) {
		if e.At > last {
			t.Errorf("told of at %v, when it is no later than %v: %+v", e.At, last, e)
		}
		if e.Kind == event.LinkChanged {
			seen++
			if e.At < 50*time.Millisecond {
				t.Errorf("what is to happen after 50 ms did at %v", e.At)
			}
		}
	}
	if seen != 2 {
		t.Errorf("the change of the link is told of %d times", seen)
	}
	if i, err := l.Inspect(testContext(t)); err != nil || i.Dilation != dilation || l.Info().Dilation != dilation {
		t.Errorf("%+v, %v", i, err)
	}
	// Probes are sent and seen by the machine's time.
	_, err = l.Links.Verify(testContext(t), "client:eth0", Probes{Count: 1})
	wantCode(t, err, control.Usage)
}
