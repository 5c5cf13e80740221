package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/node"
	"golang.org/x/sys/unix"
)

// agentsOf returns the nodes of a lab that have a process, in their order.
func agentsOf(name string) (nodes []string) {
	for _, p := range processes(name) {
		if node, ok := strings.CutPrefix(p.args, "ndklab-node "+name+"/"); ok {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// wantAgents fails unless exactly these nodes have a process, and inspections say so.
func wantAgents(t *testing.T, l *Lab, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, agentsOf(name)); diff != "" {
		t.Errorf("nodes with a process (-want +got):\n%s", diff)
	}
	for _, n := range inspected(t, l).Nodes {
		has := slices.Contains(want, n.Name)
		if (n.PID != 0) != has || n.State != nodeReady {
			t.Errorf("node %s: process %d, %s", n.Name, n.PID, n.State)
		}
		if has && n.PID != processOf(t, name, "ndklab-node "+name+"/"+n.Name) {
			t.Errorf("node %s: process %d", n.Name, n.PID)
		}
	}
}

// Nodes of a large lab have no process before something runs in them. Their links and networks are as ever.
func TestIdle(t *testing.T) {
	t.Setenv(envIdle, "1")
	topo := ring(uniqueName(t), 4)
	l := start(t, topo)
	ctx := testContext(t)
	wantAgents(t, l, topo.Name)
	if v, err := l.Links.Verify(ctx, "n2:eth0", Probes{Count: 20, PerSecond: 1000}); err != nil || v.Directions[0].Received != 20 {
		t.Errorf("probes: %+v, %v", v, err)
	}
	if _, err := l.Observe(ctx, nil); err != nil {
		t.Error(err)
	}
	wantAgents(t, l, topo.Name)
	if status, err := l.Nodes.Exec(ctx, "n0", node.Command{Args: []string{"ping", "-c", "1", "-W", "10", "10.0.0.2"}}); err != nil || status != 0 {
		t.Errorf("ping of a node without a process: %d, %v", status, err)
	}
	wantAgents(t, l, topo.Name, "n0")
	if change, err := l.Nodes.Kill(ctx, "n2", unix.SIGKILL); err != nil || change.State != nodeDown {
		t.Errorf("%+v, %v", change, err)
	}
	act(t, l, "n2", StartNode, nodeReady)
	wantAgents(t, l, topo.Name, "n0")
	if got := roundTrip(t, l, "n1", "n2", "10.0.1.2"); got == "lost" {
		t.Error("a node that has come back without a process is not reached")
	}
	wantAgents(t, l, topo.Name, "n0", "n1", "n2")
	act(t, l, "n3", PauseNode, nodePaused)
	act(t, l, "n3", ResumeNode, nodeReady)
	wantAgents(t, l, topo.Name, "n0", "n1", "n2", "n3")
}

// A scenario runs in nodes that had no process before.
func TestIdleRun(t *testing.T) {
	t.Setenv(envIdle, "1")
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 8, count: 100, verify: true}
`)
	l := start(t, topo)
	wantAgents(t, l, topo.Name)
	if r := runLab(t, l); r.Workloads[0].Errors != 0 || r.Workloads[0].Messages != 100 {
		t.Errorf("%+v", r.Workloads[0])
	}
	if got := inspected(t, l).Nodes; got[0].Counters["RDMAOutOctets"] < 100*65536 {
		t.Errorf("counters of the client: %v", got[0].Counters)
	}
}
