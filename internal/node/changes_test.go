package node

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// observe observes an agent, in a minute.
func observe(t *testing.T, a *Agent) Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := a.Observe(ctx, []int64{1, int64(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// settle observes an agent until nothing happens in it, and returns what it then answers.
func settle(t *testing.T, a *Agent) Observation {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for {
		o := observe(t, a)
		if o.Number != 0 && observe(t, a).Number == o.Number {
			return o
		}
		if time.Now().After(late) {
			t.Fatalf("something still happens: %+v", o)
		}
	}
}

// sameAs compares an answer that may be remembered with one that is new.
func sameAs(t *testing.T, a *Agent, o Observation) {
	t.Helper()
	fresh, err := call(t.Context(), a.Client, methodObserve, []int64{1, int64(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	o.Number, fresh.Number = 0, 0
	if diff := cmp.Diff(fresh, o); diff != "" {
		t.Errorf("-asked +remembered:\n%s", diff)
	}
}

// An agent in which nothing happens is not asked: one that is stopped cannot answer. It is asked again after a while.
func TestIdleAgentIsNotAsked(t *testing.T) {
	a, _ := linked(t)
	o := settle(t, a)
	if o.InUse == nil || len(o.NDK) == 0 {
		t.Fatalf("%+v", o)
	}
	if err := stop(a); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o, observe(t, a)); diff != "" {
		t.Errorf("-before +while it is stopped:\n%s", diff)
	}
	a.observer.patience = 0
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Observe(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a while: %v", err)
	}
	if err := a.Send(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	sameAs(t, a, observe(t, a))
}

// An agent is asked again after packets that are of no use, when a workload begins and ends, and while one runs.
func TestChangesAreObserved(t *testing.T) {
	a, b := linked(t)
	a.observer.patience, b.observer.patience = time.Hour, time.Hour
	before := settle(t, a)
	if status, _, text := run(t, b, Command{Args: []string{"bash", "-c", "echo junk > /dev/udp/10.0.0.1/4791"}}, ""); status != 0 {
		t.Fatal(text)
	}
	for late := time.Now().Add(time.Minute); observe(t, a).Transport["malformed"] != before.Transport["malformed"]+1; {
		if time.Now().After(late) {
			t.Fatal("a packet that came is not observed")
		}
	}
	sameAs(t, a, settle(t, a))

	at := netip.MustParseAddrPort("10.0.0.2:7000")
	spec := workload.Spec{Name: "w", Operation: topology.Send, Size: 100, Depth: 1, Duration: 1 << 40}
	if err := b.Workloads.Serve(t.Context(), spec, at); err != nil {
		t.Fatal(err)
	}
	if o := observe(t, b); o.Number != 0 || o.InUse.Pds == 0 {
		t.Errorf("a server that listens: %+v", o)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := a.Workloads.Run(t.Context(), spec, netip.MustParseAddr("10.0.0.1"), at)
		ended <- err
	}()
	for messages, late := uint64(0), time.Now().Add(time.Minute); messages < 100; {
		o := observe(t, a)
		if o.Number != 0 && len(o.Workloads) > 0 {
			t.Fatalf("a client: %+v", o)
		}
		if len(o.Workloads) > 0 {
			messages = o.Workloads[0].Messages
		}
		if time.Now().After(late) {
			t.Fatalf("%d messages are observed", messages)
		}
	}
	if err := a.Workloads.Stop(t.Context(), "w", 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := b.Workloads.Unserve(t.Context(), "w", 0); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []*Agent{a, b} {
		o := settle(t, agent)
		if o.Workloads != nil || o.NDK["RDMAOutFrames"] < 100 {
			t.Errorf("afterwards: %+v", o)
		}
		sameAs(t, agent, o)
	}
}

// An agent that runs a command is asked, since the command may use the adapter.
func TestCommandsAreObserved(t *testing.T) {
	a, _ := linked(t)
	settle(t, a)
	sleeper := runIn(t, a, listenOnSignal, "0")
	sleeper.says(t, "waiting")
	if o := observe(t, a); o.Number != 0 {
		t.Errorf("%+v", o)
	}
	if err := a.Signal(t.Context(), sleeper.id, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-sleeper.ended
	sameAs(t, a, settle(t, a))
}
