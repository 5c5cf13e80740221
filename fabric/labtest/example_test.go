package labtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/topology"
)

var t *testing.T // of a test

// A test that has a lab of a file, breaks a link and looks at counters.
func ExampleUp() {
	lab := labtest.Up(t, "testdata/pair.ndklab.yaml")

	running := lab.StartWorkloads(topology.Workload{
		Name: "bulk", Operation: topology.Write, From: "client", To: "server", Size: 64 * labtest.KiB, Duration: 3 * time.Second, Verify: true,
	})
	lab.Node("client").Await("RDMAOutFrames>1000")
	lab.Link("client:eth0").Cut()
	lab.Node("client").Await("timeouts>0")
	lab.Link("client:eth0").Heal()

	if bulk := running.Wait()[0]; bulk.Errors > 0 || !bulk.Verified {
		t.Errorf("over a link that was cut for a moment: %s", bulk.Error)
	}
}

// Unmodified programs for RDMA, a server and its client: what they measure is the test's.
func ExampleLab_Workload() {
	lab := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client", labtest.Loss(0.001)))
	bw := lab.Workload(topology.Workload{
		Operation: topology.Program, Nodes: []string{"server", "client"}, Timeout: time.Minute,
		Commands: [][]string{{"ib_write_bw"}, {"ib_write_bw", "server"}},
	})
	if bw.Errors > 0 || bw.Gbps < 1 {
		t.Errorf("%.1f Gb/s: %s\n%s", bw.Gbps, bw.Error, bw.Output)
	}
}

// A topology made in code.
func ExampleTopology() {
	lab := labtest.Up(t, labtest.Topology().
		Hosts("a", "b", "storage").
		Switch("switch").
		Link("a", "switch", labtest.Delay(time.Millisecond), labtest.Jitter(50*time.Microsecond)).
		Link("b", "switch", labtest.Set("loss", "{rate: 1%, burst: 5}")).
		Link("storage", "switch", labtest.Rate(10*labtest.Gbit)))
	fmt.Println(lab.Node("storage").Address())
}

// The two ends of a connection, in two nodes and one function.
func ExampleNode_Adapter() {
	lab := labtest.Up(t, "testdata/pair.ndklab.yaml")
	client, server := lab.Node("client"), lab.Node("server")
	from, to := client.PathTo(server)
	listener, err := await.Listen(lab.Context(), server.Adapter(), netip.AddrPortFrom(to, 7000))
	if err != nil {
		t.Fatal(err)
	}
	go serve(lab.Context(), listener)

	adapter := client.Adapter()
	pd, err := await.Create(lab.Context(), adapter.CreatePD)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := await.NewQP(lab.Context(), adapter, pd, 16, 1)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := await.Dial(lab.Context(), adapter, qp.QP, from, netip.AddrPortFrom(to, 7000), await.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(connection.LocalAddress())
	// Nothing needs to be closed: what is open is ended with the test.
}

func serve(context.Context, *await.RequestListener) {}

// A consumer that is ended like a program that dies.
func ExampleNode_Do() {
	lab := labtest.Up(t, "testdata/pair.ndklab.yaml")
	ctx, kill := context.WithCancel(lab.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- lab.Node("server").Do(ctx, func(ctx context.Context, adapter *provider.Adapter) error {
			return serveUntil(ctx, adapter)
		})
	}()
	lab.Node("server").Await("Accept>=1")
	kill()
	<-ended
}

func serveUntil(ctx context.Context, _ *provider.Adapter) error { return context.Cause(ctx) }

// A program in a node, and what it says when it fails.
func ExampleNode_Run() {
	lab := labtest.Up(t, "testdata/pair.ndklab.yaml")
	out, err := lab.Node("client").Run(lab.Context(), "./mytool", "--peer", lab.Node("server").Address().String())
	var exit *labtest.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("mytool ended with %d: %s", exit.Status, exit.Stderr)
	}
	fmt.Println(out)
}

// Waiting for what happens in a lab, without sleeping.
func ExampleLab_Watch() {
	l := labtest.Up(t, "testdata/pair.ndklab.yaml")
	watch := l.Watch()
	l.Node("server").Kill()
	down := watch.Next("node-down")
	fmt.Println(down.Text)
	l.Eventually(func() error {
		if n := l.Node("client").Counters()["ConnectionError"]; n == 0 {
			return errors.New("the client has not noticed")
		}
		return nil
	})
}

// A scenario with a hundred seeds, in virtual time and without privileges.
func ExampleSimulate() {
	for seed := range uint64(100) {
		labtest.Simulate(t, "testdata/storage.ndklab.yaml", seed)
	}
}
