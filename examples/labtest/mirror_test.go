package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"example.com/mirror"
	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// Two hosts, as all tests here have them. What differs is the link.
func pair(link ...labtest.Setting) *labtest.Builder {
	return labtest.Topology().Hosts("client", "replica").Link("client", "replica", link...)
}

// random is memory with a content that is not easily mistaken for another.
func random(size int) []byte {
	data, seed := make([]byte, size), rand.NewChaCha8([32]byte{1})
	seed.Read(data) // which never fails
	return data
}

const port = 7000

// serve has a replica in its node until it has a copy, or ctx ends.
func serve(ctx context.Context, lab *labtest.Lab, size int) <-chan []byte {
	node := lab.Node("replica")
	_, at := lab.Node("client").PathTo(node)
	copied := make(chan []byte, 1)
	go func() {
		// The adapter is opened for this call, and ends with it as with a program that is killed:
		// only then can another replica listen there.
		var memory []byte
		err := node.Do(ctx, func(ctx context.Context, adapter *provider.Adapter) (err error) {
			memory, err = mirror.Serve(ctx, adapter, netip.AddrPortFrom(at, port), size)
			return err
		})
		if err != nil {
			memory = nil
		}
		copied <- memory
	}()
	return copied
}

// copying has the client copy, and tells how often it had to connect; 0 if it failed.
func copying(t *testing.T, lab *labtest.Lab, data []byte) <-chan int {
	t.Helper()
	from, to := lab.Node("client").PathTo(lab.Node("replica"))
	adapter := lab.Node("client").Adapter() // until the end of the test
	connections := make(chan int, 1)
	go func() {
		n, err := mirror.Copy(lab.Context(), adapter, from, netip.AddrPortFrom(to, port), data)
		if err != nil {
			n = 0
		}
		connections <- n
	}()
	return connections
}

// The plain case, on a link that loses 2 % of the packets.
func TestCopyOverALossyLink(t *testing.T) {
	t.Parallel()
	lab := labtest.Up(t, pair(labtest.Delay(200*time.Microsecond), labtest.Loss(0.02)))
	data := random(2 * labtest.MiB)
	replica, connections := serve(lab.Context(), lab, len(data)), copying(t, lab, data)
	if !bytes.Equal(<-replica, data) || <-connections == 0 {
		t.Error("there is no copy")
	}
	if n := lab.Node("client").Counters()["retransmitted"]; n == 0 {
		t.Error("nothing was lost on a link that loses")
	}
}

// slow is a link that is busy with 8 MiB for 7 seconds. So a copy is under way when something
// is to happen to it, however busy the machine is. Then the test has no more use for that.
var slow = []labtest.Setting{labtest.Delay(time.Millisecond), labtest.Rate(10 * labtest.Mbit)}

func hurry(lab *labtest.Lab) { lab.Link("client:eth0").Set(labtest.Rate(labtest.Gbit)) }

// A cable that is pulled for a moment breaks no connection.
func TestCopyWhileALinkFlaps(t *testing.T) {
	t.Parallel()
	lab := labtest.Up(t, pair(slow...))
	data := random(8 * labtest.MiB)
	replica, connections := serve(lab.Context(), lab, len(data)), copying(t, lab, data)
	for _, progress := range []string{"RDMAOutFrames>50", "RDMAOutFrames>100"} {
		lab.Node("client").Await(progress)
		lab.Link("client:eth0").Down()
		before := lab.Node("client").Counters()["timeouts"]
		lab.Node("client").Await(fmt.Sprintf("timeouts>%d", before))
		lab.Link("client:eth0").Up()
	}
	hurry(lab)
	if !bytes.Equal(<-replica, data) || <-connections == 0 {
		t.Error("there is no copy")
	}
	if n := lab.Node("replica").Counters()["Accept"]; n != 1 {
		t.Errorf("the replica was connected %d times, want once", n)
	}
}

// A replica that crashes takes its memory with it. The client connects to the one that is
// there next.
func TestReplicaCrashes(t *testing.T) {
	t.Parallel()
	lab := labtest.Up(t, pair(slow...))
	data := random(8 * labtest.MiB)
	ctx, crash := context.WithCancel(lab.Context())
	first := serve(ctx, lab, len(data))
	connections := copying(t, lab, data)
	lab.Node("replica").Await("RDMAInFrames>100")
	crash()
	if <-first != nil {
		t.Fatal("the replica that crashed had all of it")
	}
	hurry(lab)
	if second := serve(lab.Context(), lab, len(data)); !bytes.Equal(<-second, data) {
		t.Error("the second replica has no copy")
	}
	if n := <-connections; n < 2 {
		t.Errorf("the client connected %d times, want twice or more", n)
	}
}

// A scenario of a file: in a lab, and in virtual time.
func TestStorage(t *testing.T) {
	t.Parallel()
	labtest.Up(t, "testdata/storage.ndklab.yaml").Run()
}

func TestStorageSimulated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		labtest.Simulate(t, "testdata/storage.ndklab.yaml", seed)
	}
}

// What the network alone can do, asked for in a test.
func TestNetwork(t *testing.T) {
	t.Parallel()
	lab := labtest.Up(t, pair(labtest.Delay(5*time.Millisecond)))
	w := lab.Workload(topology.Workload{
		Operation: topology.Send, From: "client", To: "replica", Size: 64, Count: 50, Measure: topology.Latency,
	})
	if least := 5000.0; w.Errors > 0 || w.Latency.Min < least {
		t.Errorf("half of a round trip took %v us at least, want %v or more; errors: %d %s", w.Latency.Min, least, w.Errors, w.Error)
	}
	out, err := lab.Node("client").Run(lab.Context(), "cat", "/proc/sys/net/ipv4/ip_forward")
	if err != nil || out != "0\n" {
		t.Errorf("a host forwards: %q, %v", out, err)
	}
}
