package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/node"
	"golang.org/x/sys/unix"
)

// All processes of a node that is paused stop, also those in the background, and go
// on. Requests fail at once meanwhile.
func TestPause(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	echo := pinger(t, l)
	if got := echo.roundTrip(t); got == "lost" {
		t.Fatal("no answer before the pause")
	}
	events := make(chan string, 10)
	if err := l.Watch(testContext(t), func(e event.Event) {
		if e.Kind != event.LabReady { // of the start, which may be told late
			events <- e.Kind
		}
	}); err != nil {
		t.Fatal(err)
	}
	act(t, l, "n1", PauseNode, nodePaused)
	if !echo.cutOff(t) {
		t.Error("a paused node answered")
	}
	began := time.Now()
	ctx := testContext(t)
	_, execErr := l.Nodes.Exec(ctx, "n1", node.Command{Args: []string{"true"}})
	_, pauseErr := l.Nodes.Change(ctx, "n1", PauseNode)
	_, startErr := l.Nodes.Change(ctx, "n1", StartNode)
	_, killErr := l.Nodes.Kill(ctx, "n1", unix.SIGTERM)
	_, adapterErr := l.Nodes.Enable(ctx, "n1", false)
	for what, err := range map[string]error{"exec": execErr, "pause": pauseErr, "start": startErr, "kill": killErr, "adapter": adapterErr} {
		wantCode(t, err, control.Usage)
		if err == nil || !strings.HasPrefix(err.Error(), "node n1 is paused") {
			t.Errorf("%s: %v", what, err)
		}
	}
	in, err := l.Inspect(ctx)
	if err != nil || in.Nodes[1].State != nodePaused || in.Nodes[1].PID == 0 || in.Links[0].State != "up" {
		t.Errorf("%+v, link %s, %v", in.Nodes[1], in.Links[0].State, err)
	}
	if took := time.Since(began); took > answerTime {
		t.Errorf("requests to a paused node took %v", took)
	}
	// The cables of a node that is paused can be pulled.
	if _, err := l.Links.Partition(ctx, []string{"n1"}); err != nil {
		t.Error(err)
	}
	if _, err := l.Links.Heal(ctx); err != nil {
		t.Error(err)
	}
	if err := l.Links.Down(ctx, "n1:eth0"); err != nil {
		t.Error(err)
	}
	if err := l.Links.Up(ctx, "n1:eth0"); err != nil {
		t.Error(err)
	}
	act(t, l, "n1", ResumeNode, nodeReady)
	if _, err := strconv.Atoi(echo.roundTrip(t)); err != nil {
		t.Error("no answer after the pause")
	}
	_, err = l.Nodes.Change(ctx, "n1", ResumeNode)
	wantCode(t, err, control.Usage)
	for _, want := range []string{event.NodePaused, event.LinkChanged, event.LinkChanged, event.LinkChanged, event.LinkChanged, event.NodeResumed} {
		if got := <-events; got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
}

// A node whose agent does not answer cannot be paused, and says so. When it reads the
// request at last, its processes go on.
func TestPauseMute(t *testing.T) {
	t.Setenv(envHasty, "1")
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	if _, err := l.Nodes.Kill(testContext(t), "n0", unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	agent := processOf(t, topo.Name, "ndklab-node "+topo.Name+"/n0")
	awaitStopped(t, agent)
	_, err := l.Nodes.Change(testContext(t), "n0", PauseNode)
	wantCode(t, err, control.Failed)
	if _, err := l.Nodes.Kill(testContext(t), "n0", unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, testTime, func() string {
		if _, err := l.Nodes.Exec(testContext(t), "n0", node.Command{Args: []string{"true"}}); err != nil {
			return err.Error()
		}
		return ""
	})
	act(t, l, "n0", PauseNode, nodePaused)
	act(t, l, "n0", ResumeNode, nodeReady)
}

// stop stops a process with SIGSTOP, and waits until it stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, pid)
}

// awaitStopped waits until no thread of a process runs that was sent SIGSTOP: the one
// that takes the signal stops the others, which may run meanwhile, and answer requests.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	eventually(t, testTime, func() string {
		switch states := threadStates(t, pid); {
		case states == "":
			t.Fatalf("process %d has ended", pid)
		case !standsStill(states):
			return "threads are " + states
		}
		return ""
	})
}

// standsStill reports whether threads in those states are those of a process that has
// stopped. One that waits in the kernel (D), as for a child that has not become what it is
// to be, stops before it does anything else.
func standsStill(states string) bool {
	return strings.Contains(states, "T") && strings.Trim(states, "TD") == ""
}

// threadStates is a letter for each thread of a process, as ps shows it; none of one that
// has ended.
func threadStates(t *testing.T, pid int) (states string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		state := b[bytes.LastIndexByte(b, ')')+2:]
		states += string(state[:1])
	}
	return states
}
