package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/provider/clock"
	"golang.org/x/sys/unix"
)

// A node that dies again and again waits longer each time, and not once it has lived
// for a while.
func TestReviverDelays(t *testing.T) {
	v := clock.NewVirtual()
	r := reviver{clock: v}
	var delays []time.Duration
	for _, lived := range []time.Duration{0, 0, 9 * time.Second, time.Hour, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10 * time.Second} {
		began, started := v.Now(), time.Duration(-1)
		said := r.after(lived, func(wanted func() bool) {
			if !wanted() || wanted() {
				t.Error("a start is not wanted once")
			}
			started = v.Now() - began
		})
		v.Run(2 * time.Minute)
		if said != started {
			t.Errorf("started after %v, said %v", started, said)
		}
		delays = append(delays, started)
	}
	ms := time.Millisecond
	want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms,
		12800 * ms, 25600 * ms, 51200 * ms, time.Minute, time.Minute, 100 * ms}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A start is called off before it begins, and while it waits for its turn.
func TestReviverCancel(t *testing.T) {
	v := clock.NewVirtual()
	r := reviver{clock: v}
	r.cancel()
	r.after(0, func(func() bool) { t.Error("started") })
	r.cancel()
	v.Run(time.Hour)
	began := false
	r.after(0, func(wanted func() bool) {
		began = true
		r.cancel()
		if wanted() {
			t.Error("wanted although it was called off")
		}
	})
	v.Run(time.Hour)
	if !began {
		t.Error("the second start did not begin")
	}
}

// A node whose policy is to be started again comes back after each crash, but not
// when it was stopped, also while it waits for its start.
func TestRestartPolicy(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[1].Restart = true
	events := make(chan Event, 100)
	l := startWith(t, topo, Options{Events: func(e Event) {
		if e.Kind != LabReady {
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
		if change, err := l.Kill(testContext(t), "n1", unix.SIGKILL); err != nil || change.State != nodeDown {
			t.Fatalf("%+v, %v", change, err)
		}
		next(NodeDown, "was killed by SIGKILL; it is started again in "+delay)
		next(NodeUp, "up again")
		if got := roundTrip(t, l, "n0", "n1", "10.0.0.2"); got == "lost" {
			t.Error("the link carries nothing")
		}
		if nodes, err := l.Nodes(testContext(t), "n1"); err != nil || nodes[0].Restarts != i+1 {
			t.Errorf("%+v, %v", nodes, err)
		}
	}
	if _, err := l.Kill(testContext(t), "n1", unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	act(t, l, "n1", StopNode, nodeDown)
	next(NodeDown, "in 400ms")
	act(t, l, "n1", StartNode, nodeReady)
	next(NodeUp, "up again")
	act(t, l, "n1", StopNode, nodeDown)
	next(NodeDown, "it was stopped")
	act(t, l, "n1", StartNode, nodeReady)
	next(NodeUp, "up again")
	if len(events) > 0 {
		t.Errorf("one more event: %+v", <-events)
	}
}
