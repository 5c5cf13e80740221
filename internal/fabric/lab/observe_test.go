package lab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// TestObserve has a monitor see what a command sees: of a lab after a run, with a link that is impaired and one that is
// plain, a switch, and a node that is down.
func TestObserve(t *testing.T) {
	topo := runnable(t, "delay: 2ms, overrun: allow", `workloads: [{name: w, from: client, to: server, operation: send, size: 100B, count: 50}]`)
	topo.Nodes = append(topo.Nodes, topology.Node{Name: "s", Kind: topology.Switch}, topology.Node{Name: "lonely"})
	l := start(t, topo)
	runLab(t, l)
	if _, err := l.Nodes.Change(testContext(t), "lonely", StopNode); err != nil {
		t.Fatal(err)
	}
	bounds := []int64{int64(time.Millisecond), int64(time.Hour)}
	o, err := l.Observe(testContext(t), bounds)
	if err != nil {
		t.Fatal(err)
	}
	i, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if o.Lab != topo.Name || o.Seed != topo.Seed || o.State != Ready || o.Up <= 0 || len(o.Nodes) != len(i.Nodes) || len(o.Links) != len(i.Links) {
		t.Fatalf("%+v", o)
	}
	for n := range o.Nodes {
		got, want := &o.Nodes[n], &i.Nodes[n]
		// A monitor has no use for lists, and of adapters it has the objects in use.
		if diff := cmp.Diff(*want, got.Node, cmpopts.IgnoreFields(report.Node{}, "Addresses", "Ports", "InUse", "Reason"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-inspected +observed:\n%s", diff)
		}
		isHost := got.Name == "client" || got.Name == "server"
		if (got.InUse != nil) != isHost || isHost && got.Counters["RDMAOutFrames"] == 0 || len(got.Workloads) > 0 {
			t.Errorf("%s: %+v", got.Name, got)
		}
	}
	for n := range o.Links {
		for d := range o.Links[n].Directions {
			got, want := o.Links[n].Directions[d], i.Links[n].Directions[d]
			bars := got.DelayBars
			if bars == nil || bars.Count == 0 || bars.Count > want.Packets || bars.UpTo[0] != 0 || bars.UpTo[1] != bars.Count {
				t.Errorf("delays %+v of %d packets", bars, want.Packets)
			}
			if got.Packets == 0 || got.Packets > want.Packets || got.Bytes > want.Bytes || *got.Set.DelayUS != 2000 || o.Links[n].State != "up" {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}

	// A plain link has the kernel's counts, and no delays.
	plain := start(t, ring(uniqueName(t)+"p", 2))
	if o, err = plain.Observe(testContext(t), bounds); err != nil {
		t.Fatal(err)
	}
	if d := o.Links[0].Directions[0]; o.Links[0].Engine != "plain" || d.DelayBars != nil || d.QueuePeak != nil {
		t.Errorf("%+v", d)
	}
	if err := plain.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	_, err = plain.Observe(testContext(t), bounds)
	wantCode(t, err, control.Usage)
}

// TestObserveRun has a monitor see a workload while it runs.
func TestObserveRun(t *testing.T) {
	topo := runnable(t, "delay: 1ms, overrun: allow", `workloads: [{name: w, from: client, to: server, operation: write, size: 100B, duration: 10m}]`)
	l := start(t, topo)
	ended := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		_, err := l.Run(ctx)
		ended <- err
	}()
	for {
		o, err := l.Observe(testContext(t), []int64{1e6, 1e12})
		if err != nil {
			t.Fatal(err)
		}
		if w := o.Nodes[0].Workloads; len(w) == 1 && w[0].Latency.Count > 10 {
			if w[0].Name != "w" || w[0].Clients != 1 || w[0].Messages < 10 || w[0].Bytes != 100*w[0].Messages || w[0].Latency.UpTo[0] != 0 || w[0].Latency.UpTo[1] != w[0].Latency.Count {
				t.Errorf("%+v", w[0])
			}
			if c := o.Nodes[1].Connections; len(c) != 1 || c[0].State != "established" || c[0].Count != 1 {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the run has no error, though the lab is down")
	}
}
