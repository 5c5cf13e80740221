package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// act does something to a node, which must come to a state.
func act(t testing.TB, l *Lab, name string, action Action, state string) *NodeChange {
	t.Helper()
	change, err := l.Nodes.Change(testContext(t), name, action)
	if err != nil {
		t.Fatal(err)
	}
	if change.State != state {
		t.Fatalf("%s %s: %+v, want state %s", action, name, change, state)
	}
	return change
}

// roundTrip returns the time that an echo takes from a node to an address of another, or
// "lost" if it never comes, however busy the machine is. Nothing of it goes on in the nodes.
func roundTrip(t testing.TB, l *Lab, from, to, address string) string {
	t.Helper()
	server := program(t, l, to, "echo 5001")
	if got := server.line(t); got != "bound" {
		t.Fatal(got)
	}
	p := pinging{program(t, l, from, "ping "+address+":5001")}
	got := p.roundTrip(t)
	for _, end := range []*running{p.running, server} { // the server's port is free then
		end.stdin.Close()
		end.wait(t)
	}
	return got
}

// A node that was stopped comes back as it was, and its links as they were last asked
// to be, whichever of their ends comes back first.
func TestStopAndStart(t *testing.T) {
	delay := 20 * time.Millisecond
	for name, asked := range map[string]topology.Impairment{"plain": {}, "linkem": {Delay: delay}} {
		t.Run(name, func(t *testing.T) {
			topo := ring(uniqueName(t), 2)
			topo.Links[0].Directions[0] = asked
			l := start(t, topo)
			stopAndStart(t, l, asked)
		})
	}
}

func TestNetemStopAndStart(t *testing.T) {
	asked := topology.Impairment{Delay: 20 * time.Millisecond}
	stopAndStart(t, startNetem(t, true, asked), asked)
}

func stopAndStart(t *testing.T, l *Lab, asked topology.Impairment) {
	before := network(t, l, "n0")
	first, last := []string{"n0"}, []string{"n1"}
	for i, order := range [][2][]string{{first, first}, {{"n0", "n1"}, {"n0", "n1"}}, {{"n0", "n1"}, {"n1", "n0"}}, {last, last}} {
		packets := firstLink(t, l).Directions[0].Packets
		for _, name := range order[0] {
			act(t, l, name, StopNode, nodeDown)
		}
		if state := firstLink(t, l).State; state != "down" {
			t.Errorf("%v: the link is %s", order, state)
		}
		for _, name := range order[1] {
			if change := act(t, l, name, StartNode, nodeReady); change.Was != nodeDown || change.Restarts == 0 {
				t.Errorf("%+v", change)
			}
		}
		if us, err := strconv.Atoi(roundTrip(t, l, "n0", "n1", "10.0.0.2")); err != nil || us < int(asked.Delay.Microseconds()) {
			t.Errorf("%d: %v: round trip %d us (%v), want %v", i, order, us, err, asked.Delay)
		}
		if got := firstLink(t, l).Directions[0].Packets; got <= packets {
			t.Errorf("%d: %v: packets of the link: %d, before %d", i, order, got, packets)
		}
	}
	if diff := cmp.Diff(before, network(t, l, "n0")); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// network returns what ip tells of a node's network, without the numbers that the kernel
// gives interfaces, and what it finds out by itself.
func network(t *testing.T, l *Lab, name string) (lines []string) {
	t.Helper()
	for _, args := range [][]string{{"-o", "address"}, {"route"}, {"neighbour"}, {"-o", "link"}} {
		for line := range strings.Lines(ip(t, l, name, args...)) {
			if strings.Contains(line, "fe80") {
				continue
			}
			if args[0] == "-o" {
				_, line, _ = strings.Cut(line, " ")
			}
			line, _, _ = strings.Cut(line, " link-netnsid")
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// Requests to a node that is down, or to its links, fail with the reason.
func TestStoppedNode(t *testing.T) {
	l := start(t, ring(uniqueName(t), 3))
	ctx := testContext(t)
	if err := l.Links.Set(ctx, "n1:eth0", "", topology.Change{Loss: &topology.Loss{Rate: 0.05}}); err != nil {
		t.Fatal(err)
	}
	act(t, l, "n1", StopNode, nodeDown)
	const down = "node n1 is down: it was stopped"
	_, execErr := l.Nodes.Exec(ctx, "n1", node.Command{Args: []string{"true"}})
	_, countersErr := l.Nodes.Inspect(ctx, "n1")
	_, adapterErr := l.Nodes.Adapters(ctx, "n1")
	_, connectionsErr := l.Nodes.Connections(ctx, "n1")
	_, captureErr := l.Capture(ctx, "n1:eth0")
	_, killErr := l.Nodes.Kill(ctx, "n1", unix.SIGKILL)
	for what, err := range map[string]error{
		"exec": execErr, "counters": countersErr, "adapter": adapterErr, "connections": connectionsErr,
		"capture": captureErr, "kill": killErr,
		"link": l.Links.Set(ctx, "n0:eth0", "", topology.Change{Delay: ref(time.Millisecond)}), "link down": l.Links.Down(ctx, "n1:eth0"),
	} {
		wantCode(t, err, control.Usage)
		if err == nil || !strings.Contains(err.Error(), down) {
			t.Errorf("%s: %v", what, err)
		}
	}
	in, err := l.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.NodeState{Name: "n1", State: "down", Reason: "it was stopped"}, in.Nodes[1].NodeState); diff != "" || in.Nodes[1].PID != 0 {
		t.Errorf("pid %d, -want +got:\n%s", in.Nodes[1].PID, diff)
	}
	if got := states(t, l); got != "down down up" {
		t.Errorf("links %s", got)
	}
	// The link is its engine's still.
	if k := in.Links[1]; k.Engine != "linkem" || k.Directions[0].Set == nil || k.Directions[0].Set.Loss == nil || *k.Directions[0].Set.Loss != 0.05 {
		t.Errorf("engine %s, set %+v", k.Engine, k.Directions[0].Set)
	}
	// A node that is paused can be stopped and killed, too, and does not outlive its lab (startWith looks).
	act(t, l, "n1", StartNode, nodeReady)
	act(t, l, "n1", PauseNode, nodePaused)
	act(t, l, "n1", RestartNode, nodeReady)
	act(t, l, "n1", PauseNode, nodePaused)
	if change, err := l.Nodes.Kill(ctx, "n1", unix.SIGKILL); err != nil || change.State != nodeDown || change.Was != nodePaused {
		t.Errorf("%+v, %v", change, err)
	}
	act(t, l, "n1", StartNode, nodeReady)
	act(t, l, "n1", PauseNode, nodePaused)
}

// Hosts and routers come back at switches, routers and ends outside the lab.
func TestRestartInFabric(t *testing.T) {
	f := routed(uniqueName(t))
	f.Links[1].Directions[0].Delay = time.Millisecond
	f.Links[3].Directions[1].Delay = time.Millisecond
	l := start(t, f.Topology)
	before := network(t, l, "r2")
	for _, names := range [][]string{{"b"}, {"r1"}, {"r2"}, {"r1", "r2", "a", "b"}} {
		for _, name := range names {
			act(t, l, name, StopNode, nodeDown)
		}
		for _, name := range names {
			act(t, l, name, StartNode, nodeReady)
		}
		for _, address := range []string{"10.3.0.2", "[fd00:3::2]"} {
			if got := roundTrip(t, l, "a", "b", address); got == "lost" {
				t.Errorf("%s after restart of %s: lost", address, names)
			}
		}
	}
	if diff := cmp.Diff(before, network(t, l, "r2")); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if got := states(t, l); got != "up up up up up" {
		t.Errorf("links %s", got)
	}
	if ports := portsOf(t, l, "sw"); ports[1].State != "forwarding" {
		t.Errorf("ports %+v", ports)
	}
}

func TestRestartAtExternal(t *testing.T) {
	for _, delay := range []time.Duration{0, outsideDelay} {
		t.Run(delay.String(), func(t *testing.T) {
			topo := withExternal(ring(uniqueName(t), 1))
			topo.Links[0].Directions[0].Delay = delay
			l := start(t, topo)
			o := attach(t, onlyExternal(t, l))
			act(t, l, "n0", RestartNode, nodeReady)
			if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
				t.Fatal(got)
			}
			if got := o.ping(t, echoTime); got == "lost" {
				t.Error("no echo from the node")
			}
		})
	}
}
