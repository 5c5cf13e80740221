package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

func TestAdapters(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[1].Adapter = topology.Adapter{MaxQpCount: new(uint32(77)), NetworkDirect: new(false), RoCEFrameSize: new(uint32(512))}
	topo.Nodes = append(topo.Nodes, topology.Node{Name: "lonely"})
	l := start(t, topo)
	all, err := l.Nodes.Adapters(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range all {
		line := n.Name + " " + n.State
		if a := n.Adapter; a != nil {
			line += fmt.Sprintf(" %v %d %d %v", a.Enabled, a.Capabilities.MaxQpCount, a.Configuration.NetworkDirectRoCEFrameSize, a.Addresses)
		}
		got = append(got, line)
	}
	want := []string{
		"n0 ready true 131072 0 [{10.0.0.1 eth0 4200 4096} {fd00::1 eth0 4200 4096}]",
		"n1 ready false 77 512 [{10.0.0.2 eth0 4200 512} {fd00::2 eth0 4200 512}]",
		"lonely ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	one, err := l.Nodes.Adapters(testContext(t), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[1:2], one, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("one of them (-all +one):\n%s", diff)
	}
	_, err = l.Nodes.Adapters(testContext(t), "n9")
	wantCode(t, err, control.Usage)
}

// TestReceiveBuffer has root get what the file asks for, and an ordinary user what the kernel
// grants everybody, which is said once.
func TestReceiveBuffer(t *testing.T) {
	const asked = 3 << 20
	topo := ring(uniqueName(t), 3)
	topo.Nodes[0].Adapter.ReceiveBuffer, topo.Nodes[1].Adapter.ReceiveBuffer = new(uint32(asked)), new(uint32(asked))
	said := make(chan event.Event, 100)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind == event.Warning {
			said <- e
		}
	}})
	most := uint32(math.MaxUint32)
	if os.Geteuid() != 0 {
		most = uint32(2 * rmemMax(t) / 9 * 4)
	}
	all, err := l.Nodes.Adapters(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	for i, asked := range []uint32{asked, asked, provider.DefaultReceiveBuffer} {
		want := provider.ReceiveBuffer{Asked: asked, Granted: min(asked, most)}
		if got := all[i].Adapter.ReceiveBuffer; got != want {
			t.Errorf("%s has %+v, want %+v", all[i].Name, got, want)
		}
	}
	if most >= asked {
		return
	}
	if text := (<-said).Text; !strings.Contains(text, fmt.Sprintf("grants room for %d of %d bytes", most, asked)) ||
		!strings.Contains(text, "net.core.rmem_max=3538944") {
		t.Errorf("said %q", text)
	}
	// All that is said of the lab's coming up is said before it is up.
	if len(said) > 0 {
		t.Errorf("and said %q", (<-said).Text)
	}
}

// rmemMax is net.core.rmem_max.
func rmemMax(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEnable disables an adapter under a workload, which ends, and enables it
// again.
func TestEnable(t *testing.T) {
	l := start(t, runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m}
`))
	ended := make(chan *report.Run, 1)
	go func() {
		r, err := l.Run(testContext(t))
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	list := established(t, l)
	lab := l.Info().Lab
	ready := func(names ...string) (states []report.NodeState) {
		for _, name := range names {
			states = append(states, report.NodeState{Name: name, State: "ready"})
		}
		return states
	}
	if diff := cmp.Diff(ready("client", "server"), list.Nodes); diff != "" || list.Lab != lab {
		t.Errorf("lab %s, nodes -want +got:\n%s", list.Lab, diff)
	}
	client := adapter.Connection{Node: "client", Mode: "Kernel", Interface: "eth0", IfIndex: 2, Type: "Connection",
		Local: list.Connections[0].Local, Remote: "10.0.0.2:18515", State: "established",
		QPN: list.Connections[0].QPN, RemoteQPN: list.Connections[1].QPN}
	server := client
	server.Node, server.Local, server.Remote, server.QPN, server.RemoteQPN = "server", client.Remote, client.Local, client.RemoteQPN, client.QPN
	listener := adapter.Connection{Node: "server", Mode: "Kernel", Interface: "eth0", IfIndex: 2, Type: "Listener", Local: server.Local}
	if diff := cmp.Diff([]adapter.Connection{client, server, listener}, list.Connections); diff != "" || !strings.HasPrefix(client.Local, "10.0.0.1:") || client.QPN == 0 {
		t.Errorf("connections -want +got:\n%s", diff)
	}
	one, err := l.Nodes.Connections(testContext(t), "server")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&report.Connections{Lab: lab, Nodes: ready("server"), Connections: []adapter.Connection{server, listener}}, one); diff != "" {
		t.Errorf("of one node -want +got:\n%s", diff)
	}

	change := func(enable bool, want node.StateChange) {
		t.Helper()
		want.Lab, want.Node = lab, "server"
		if got, err := l.Nodes.Enable(testContext(t), "server", enable); err != nil || *got != want {
			t.Errorf("enable %v: %+v, %v, want %+v", enable, got, err, want)
		}
	}
	change(false, node.StateChange{Was: true, Open: 1})
	r := <-ended
	if w := r.Workloads[0]; r.Passed || w.Errors == 0 || !strings.HasSuffix(w.Error, "at the server: the adapter was disabled") {
		t.Errorf("workload %+v", w)
	}
	r = runLab(t, l)
	if w := r.Workloads[0]; w.Error != "node server: the adapter is disabled: `ndklab adapter "+lab+"/server --enable` enables it" {
		t.Errorf("workload %+v", w)
	}
	change(true, node.StateChange{Enabled: true})
	_, err = l.Nodes.Enable(testContext(t), "n9", true)
	wantCode(t, err, control.Usage)
	_, err = l.Nodes.Connections(testContext(t), "n9")
	wantCode(t, err, control.Usage)
}

// established waits until both ends of the one workload are connected.
func established(t *testing.T, l *Lab) (list *report.Connections) {
	t.Helper()
	eventually(t, testTime, func() string {
		var err error
		if list, err = l.Nodes.Connections(testContext(t), ""); err != nil {
			t.Fatal(err)
		}
		if len(list.Connections) == 3 && list.Connections[0].State == "established" && list.Connections[1].State == "established" {
			return ""
		}
		return fmt.Sprintf("connections: %+v", list.Connections)
	})
	return list
}

func TestNodes(t *testing.T) {
	t.Setenv(envHasty, "1")
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	all, err := l.Nodes.Inspect(testContext(t), "")
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	one, err := l.Nodes.Inspect(testContext(t), "n1")
	if err != nil || len(one) != 1 || one[0].Name != "n1" || one[0].Counters["Connect"] != 0 || len(one[0].Counters) != 10 || len(one[0].Transport) == 0 {
		t.Errorf("%+v, %v", one, err)
	}
	_, err = l.Nodes.Inspect(testContext(t), "n9")
	wantCode(t, err, control.Usage)

	// One that is stopped does not hold up the others; one that is killed is
	// gone.
	agent := processOf(t, topo.Name, "ndklab-node "+topo.Name+"/n1")
	stop(t, agent)
	state := func(want report.NodeState) {
		t.Helper()
		eventually(t, testTime, func() string {
			nodes, err := l.Nodes.Inspect(testContext(t), "")
			if err != nil {
				t.Fatal(err)
			}
			// The others are ready if they get a processor in time.
			if nodes[0].State != nodeReady || nodes[1].NodeState != want || nodes[1].Counters == nil {
				return fmt.Sprintf("%+v, want n1 %+v", nodes, want)
			}
			return ""
		})
	}
	state(report.NodeState{Name: "n1", State: "unresponsive", Reason: "its agent does not answer within 1s"})
	kill(t, agent)
	state(report.NodeState{Name: "n1", State: "down", Reason: "its agent was killed by SIGKILL"})
	for name, ask := range map[string]func() error{
		"nodes":       func() error { _, err := l.Nodes.Inspect(testContext(t), "n1"); return err },
		"adapters":    func() error { _, err := l.Nodes.Adapters(testContext(t), "n1"); return err },
		"connections": func() error { _, err := l.Nodes.Connections(testContext(t), "n1"); return err },
		"enable":      func() error { _, err := l.Nodes.Enable(testContext(t), "n1", true); return err },
	} {
		err := ask()
		wantCode(t, err, control.Usage)
		if err == nil || err.Error() != "node n1 is down: its agent was killed by SIGKILL" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if adapters, err := l.Nodes.Adapters(testContext(t), ""); err != nil || adapters[0].Adapter == nil || adapters[1].State != "down" || adapters[1].Adapter != nil {
		t.Errorf("adapters %+v, %v", adapters, err)
	}
}

// TestGoingDown asks while the lab is taken down: every request ends, with the
// reason.
func TestGoingDown(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = l.Nodes.Adapters(context.Background(), "")
		}
		ended <- err
	}()
	other, err := Open(testContext(t), topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.Usage || !strings.Contains(err.Error(), "was taken down") {
		t.Errorf("%v", err)
	}
}

// TestUserConnection has an entry of another process's, whose PID the host knows,
// and of one that has ended since.
func TestUserConnection(t *testing.T) {
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	s := newSupervisor("lab")
	s.here.nodes.hostProc = proc
	entry := adapter.Connection{Mode: "User", Type: adapter.SharedEndpoint, Local: "[fd00::1]:445", PID: os.Getpid()}
	want := entry
	want.Node = "n"
	got := entry
	if s.complete("n", &got); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	entry.PID, want.PID = 1<<30, 0 // beyond what the kernel has
	if s.complete("n", &entry); entry != want {
		t.Errorf("one that has ended: %+v, want %+v", entry, want)
	}
}
