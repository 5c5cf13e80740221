package cgroup

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMemoryLimit has a process use less memory than its group has, and then more,
// while another one of the group waits: that dies with it, and nobody else.
func TestMemoryLimit(t *testing.T) {
	tree, lab := newLab(t)
	g, err := tree.Create(lab, "a", Limits{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := g.KillWhole()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	other, err := tree.Create(lab, "b", Limits{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	waiting, elsewhere := startWorker(t, "wait", 0, nil), startWorker(t, "spin", 0, nil)
	if err := g.Add(waiting.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := other.Add(elsewhere.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		bytes int
		over  bool
	}{{1 << 20, false}, {256 << 20, true}} {
		w := startWorker(t, "allocate", test.bytes, nil)
		if err := g.Add(w.Process.Pid); err != nil {
			t.Fatal(err)
		}
		w.begin.Close()
		if err := w.Wait(); (err != nil) != test.over || test.over && !killed(w) {
			t.Errorf("%d bytes: %v", test.bytes, err)
		}
		if g.OverMemory() != test.over {
			t.Errorf("%d bytes: over memory: %v", test.bytes, g.OverMemory())
		}
	}
	if err := waiting.Wait(); err == nil || !killed(waiting) {
		t.Errorf("the other process of the group: %v", err)
	}
	u := g.Usage()
	if u.MemoryPeak != nil && (*u.MemoryPeak < 32<<20 || *u.MemoryPeak > 65<<20) {
		t.Errorf("peak of %d bytes", *u.MemoryPeak)
	}
	if u.Memory == nil || u.OOMKills == nil {
		t.Errorf("usage %+v", u)
	}
	if other.OverMemory() {
		t.Error("the other group is over its memory")
	}
	elsewhere.begin.Close()
	if err := elsewhere.Wait(); err != nil {
		t.Errorf("a process of the other group: %v", err)
	}
}

func killed(w *worker) bool {
	return w.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func TestCPULimit(t *testing.T) {
	g := newGroup(t, Limits{CPU: 0.1})
	const work = 50 * time.Millisecond
	w := startWorker(t, "spin", int(work), nil)
	if err := g.Add(w.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin.Close()
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	u := g.Usage()
	// The usage does not include the time before the worker was added.
	if u.CPU == nil || *u.CPU < work/2 || *u.CPU > 10*work {
		t.Errorf("used %v", u.CPU)
	}
	if u.Throttled == nil || *u.Throttled == 0 {
		t.Errorf("throttled %v", u.Throttled)
	}
}

// TestPIDLimit has a process start others until the group is full, which those of
// another group do not notice.
func TestPIDLimit(t *testing.T) {
	tree, lab := newLab(t)
	for _, test := range []struct {
		limit uint64
		full  bool
	}{{20, true}, {1000, false}} {
		g, err := tree.Create(lab, "a", Limits{PIDs: test.limit})
		if err != nil {
			t.Fatal(err)
		}
		w := startWorker(t, "fork", 30, nil)
		if err := g.Add(w.Process.Pid); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		w.begin.Close()
		if _, err := io.Copy(&out, w.out); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(); err != nil {
			t.Fatal(err)
		}
		if full := strings.HasSuffix(out.String(), " true\n"); full != test.full {
			t.Errorf("limit %d: processes and whether there was EAGAIN: %s", test.limit, &out)
		}
		u := g.Usage()
		if u.PIDs == nil || *u.PIDs != 0 || u.PIDsRefused == nil || (*u.PIDsRefused > 0) != test.full {
			t.Errorf("limit %d: usage %+v", test.limit, u)
		}
	}
}

func TestUsageOfNothing(t *testing.T) {
	g := &Group{at: map[string]hierarchy{memoryController: {root: t.TempDir(), v2: true}}}
	if got := g.Usage(); got != (Usage{}) {
		t.Errorf("got %+v", got)
	}
	if g.OverMemory() {
		t.Error("it is over its memory")
	}
}
