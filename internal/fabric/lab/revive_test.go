package lab

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// A node whose policy is to be started again comes back after each crash, but not
// when it was stopped, also while it waits for its start.
func TestRestartPolicy(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[1].Restart = true
	events := make(chan event.Event, 100)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind != event.LabReady {
			events <- e
		}
	}})
	next := func(kind, text string) {
		t.Helper()
		select {
		case e := <-events:
			if e.Kind != kind || e.Node != "n1" || !strings.Contains(e.Text, text) {
				t.Fatalf("event %+v, want %s: %s", e, kind, text)
			}
		case <-time.After(testTime):
			t.Fatal("no event")
		}
	}
	for i, delay := range []string{"100ms", "200ms"} {
		if change, err := l.Nodes.Kill(testContext(t), "n1", unix.SIGKILL); err != nil || change.State != nodeDown {
			t.Fatalf("%+v, %v", change, err)
		}
		next(event.NodeDown, "was killed by SIGKILL; it is started again in "+delay)
		next(event.NodeUp, "up again")
		if got := roundTrip(t, l, "n0", "n1", "10.0.0.2"); got == "lost" {
			t.Error("the link carries nothing")
		}
		if nodes, err := l.Nodes.Inspect(testContext(t), "n1"); err != nil || nodes[0].Restarts != i+1 {
			t.Errorf("%+v, %v", nodes, err)
		}
	}
	for delay := 400 * time.Millisecond; ; delay *= 2 { // once we are in time
		if _, err := l.Nodes.Kill(testContext(t), "n1", unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		next(event.NodeDown, "in "+delay.String())
		if act(t, l, "n1", StopNode, nodeDown).Was == nodeDown {
			break
		}
		next(event.NodeUp, "up again")
		next(event.NodeDown, "it was stopped")
		act(t, l, "n1", StartNode, nodeReady)
		next(event.NodeUp, "up again")
	}
	act(t, l, "n1", StartNode, nodeReady)
	next(event.NodeUp, "up again")
	act(t, l, "n1", StopNode, nodeDown)
	next(event.NodeDown, "it was stopped")
	act(t, l, "n1", StartNode, nodeReady)
	next(event.NodeUp, "up again")
	if len(events) > 0 {
		t.Errorf("one more event: %+v", <-events)
	}
}
