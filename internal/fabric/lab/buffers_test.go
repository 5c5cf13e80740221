package lab

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file tests switches with a packet buffer, and the pauses that they ask for. switches_test.go has what they do as others.

// pausing is two hosts that write to a third one over a switch with a buffer, whose packets it must not lose. The lab is so
// slow that any machine sends faster than its links.
func pausing(t testing.TB, rest string) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("test.ndklab.yaml", []byte(`
name: `+uniqueName(t)+`
seed: 42
dilation: 20
topology:
  defaults: {adapter: {congestion: none, pfc: [3], dscp: 26}, link: {rate: 1gbit, delay: 40us}}
  nodes: {s: {kind: switch, buffer: {size: 1MiB, xoff: 64KiB}}, a: , b: , c: }
  links:
    - {endpoints: ["a:eth0", "s:a"]}
    - {endpoints: ["b:eth0", "s:b"]}
    - {endpoints: ["c:eth0", "s:c"]}
workloads:
  - {name: incast, pattern: incast, to: a, nodes: "[bc]", operation: write, size: 64KiB, count: 40, depth: 4, verify: true}
`+rest))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// classIn returns what befell class 3 at an interface.
func classIn(t testing.TB, r *report.Run, node, face string) bufferstats.Class {
	t.Helper()
	for _, b := range r.Buffers {
		for _, p := range b.Ports {
			for _, c := range p.Classes {
				if b.Node == node && p.Interface == face && c.Class == 3 {
					return c
				}
			}
		}
	}
	t.Fatalf("the report has nothing of %s:%s", node, face)
	return bufferstats.Class{}
}

// A switch with a buffer pauses those who send too much, and loses nothing. The report has its queues, marks and pauses, with who
// paused whom, and a course over time; adapters have counters of pauses; captures have the PFC frames. A second run has figures
// of its own.
func TestPauses(t *testing.T) {
	l := start(t, pausing(t, `
series: 1ms
checks:
  - {switch: s, drops: 0, queue_peak: "<= 200KiB", pause_time: "<= 0s", deadlocks: 0}
`))
	path := filepath.Join(t.TempDir(), "b.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("b:eth0"), File: path}})
	for run := range 2 {
		r := runLab(t, l)
		if !r.Passed || len(r.Deadlocks) != 0 {
			t.Fatalf("run %d: %+v", run, r)
		}
		queue := classIn(t, r, "s", "a")
		// 80 messages are of 16 packets of 4 KiB. Some are sent again on a busy machine.
		if queue.Packets < 1280 || queue.Queue.Peak < 64<<10 || queue.Drops() != 0 {
			t.Errorf("run %d: the queue has %+v", run, queue)
		}
		for _, host := range []string{"b", "c"} {
			asked, heard := classIn(t, r, "s", host), classIn(t, r, host, "eth0")
			if asked.TxPauses == 0 || heard.RxPauses != asked.TxPauses || heard.RxPauseUS <= 0 {
				t.Errorf("run %d: %s was asked to pause %d times, and heard %d", run, host, asked.TxPauses, heard.RxPauses)
			}
		}
		if r.Series == nil || len(r.Series.Queues) == 0 || r.Series.PeriodUS != 1000 {
			t.Errorf("run %d: a series of %+v", run, r.Series)
		}
	}
	dropped := recording.end(t)[0].Dropped
	pauses := 0
	for _, p := range readCapture(t, path) {
		if p.frame[12] == 0x88 && p.frame[13] == 0x08 {
			pauses++
			if f, err := mmu.DecodePFC(p.frame[14:]); err != nil || f.Enabled != 1<<3 {
				t.Errorf("a PFC frame of %+v, %v", f, err)
			}
		}
	}
	inspection, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range inspection.Nodes {
		if got := n.Transport[topology.RxPause.Of(3)]; n.Name == "b" && (pauses == 0 || int(got) < pauses || dropped == 0 && int(got) != pauses) {
			t.Errorf("b counts %d PFC frames, the capture has %d", got, pauses)
		}
	}
}

// An adapter in a storm stops its switch, and that others, for as long as the storm lasts.
func TestStorm(t *testing.T) {
	l := start(t, pausing(t, `
timeline:
  - {at: 10ms, storm: a, priority: 3, for: 50ms}
`))
	r := runLab(t, l)
	if c := classIn(t, r, "s", "a"); !r.Passed || c.RxPauseUS < 49e3 {
		t.Errorf("passed %v: s was paused for %v us", r.Passed, c.RxPauseUS)
	}
	if w := r.Workloads[0]; w.Seconds < 0.05 || w.Errors != 0 {
		t.Errorf("a workload in a storm: %+v", w)
	}
}

// A port is no interface of the kernel's: it cannot be probed or captured, which the error says.
func TestPortsOfBuffers(t *testing.T) {
	topo, changed := pausing(t, ""), pausing(t, "")
	topo.Dilation, changed.Dilation = 0, 0 // with which no link can be probed
	l := start(t, topo)
	_, err := l.Links.Verify(testContext(t), "b:eth0", Probes{Count: 1})
	if wantCode(t, err, control.Usage); err != nil && !strings.HasPrefix(err.Error(), "cannot send a probe at s:b: the link engine carries what crosses") {
		t.Error(err)
	}
	_, err = l.Record(testContext(t), Recording{Capture: topology.Capture{Interfaces: endpoints("s:b"), File: filepath.Join(t.TempDir(), "x.pcapng")}})
	if err == nil || !strings.Contains(err.Error(), "cannot capture at s:b: the link engine carries what crosses") {
		t.Error(err)
	}
	changed.Nodes[0].Buffer.Size = new(uint64(2 << 20))
	standing, err := l.Standing(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	err = l.Apply(testContext(t), changed, standing)
	if wantCode(t, err, control.Usage); err != nil && !strings.Contains(err.Error(), "packet buffers change, or the links at them, at node s") {
		t.Error(err)
	}
}

// A lab refuses, with its place, what it cannot do of a file with a buffer, before anything is made or changed.
func TestRefuse(t *testing.T) {
	topo, err := topology.Parse("x.yaml", []byte("topology: {nodes: {s: {kind: switch, stp: true, buffer: hpcc}}}"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "x.yaml:1:57: a switch has stp and a shared buffer, expected one of them in a lab: a simulation (--simulate) has both"
	_, started := Start(t.Context(), topo, Options{})
	for what, err := range map[string]error{"Refuse": Refuse(topo), "Start": started, "Apply": new(Lab).Apply(t.Context(), topo, nil)} {
		if list := (topology.ErrorList)(nil); !errors.As(err, &list) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := Refuse(pausing(t, "")); err != nil {
		t.Error(err)
	}
}

// The link engine's end is the lab's, also with buffers in it, and leaves nothing.
func TestEngineWithBuffersDies(t *testing.T) {
	topo := pausing(t, "")
	topo.Dilation = 0 // or the engine has another command line
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-linkem"))
	select {
	case <-l.Done():
	case <-time.After(testTime):
		t.Fatal("the lab goes on")
	}
}
