package lab

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

func init() {
	// drink PORT says "bound", reads a TCP connection to its end, and says how many
	// bytes came and their CRC.
	programs["drink"] = func(args []string) error {
		listener, err := net.Listen("tcp", ":"+args[0])
		if err != nil {
			return err
		}
		fmt.Println("bound")
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		sum := crc32.NewIEEE()
		n, err := io.Copy(sum, conn)
		if err != nil {
			return err
		}
		fmt.Println(n, sum.Sum32())
		return nil
	}
	// pour ADDRESS BYTES sends bytes over a TCP connection, and says how many and
	// their CRC.
	programs["pour"] = func(args []string) error {
		total, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		sum := crc32.NewIEEE()
		buf := make([]byte, 1<<16)
		for sent := 0; sent < total; sent += len(buf) {
			for i := range buf {
				buf[i] = byte(sent>>16 + i*7)
			}
			if _, err := io.MultiWriter(conn, sum).Write(buf); err != nil {
				return err
			}
		}
		fmt.Println(total, sum.Sum32())
		return nil
	}
}

// echoes wants echoes from UDP addresses in one node, asked for in another.
func echoes(t testing.TB, l *Lab, from, to string, addresses ...string) {
	t.Helper()
	if got := program(t, l, to, "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	for _, address := range addresses {
		if got := (pinging{program(t, l, from, "ping "+address)}).roundTrip(t); got == "lost" {
			t.Errorf("no echo from %s", address)
		}
	}
}

// streams wants bytes to arrive by TCP.
func streams(t testing.TB, l *Lab, from, to, address string, bytes int) {
	t.Helper()
	drink := program(t, l, to, "drink 5002")
	if got := drink.line(t); got != "bound" {
		t.Fatal(got)
	}
	pour := program(t, l, from, fmt.Sprintf("pour %s %d", address, bytes))
	if sent, got := pour.line(t), drink.line(t); sent != got {
		t.Errorf("%s came of %s", got, sent)
	}
}

// superPackets wants super-packets of UDP to arrive whole.
func superPackets(t testing.TB, l *Lab, from, to, address string) {
	t.Helper()
	const count, segments, size = 20, 10, 4000
	receiver := program(t, l, to, fmt.Sprintf("receive 5003 %d", count*segments*size))
	if got := receiver.line(t); got != "bound" {
		t.Fatal(got)
	}
	program(t, l, from, fmt.Sprintf("send %s %d %d %d", address, count, segments, size)).wait(t)
	if got := receiver.line(t); got != strconv.Itoa(count) {
		t.Errorf("%d super-packets came in %s pieces", count, got)
	}
}

// portsOf returns the state of a switch's ports.
func portsOf(t testing.TB, l *Lab, name string) []report.Port {
	t.Helper()
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range in.Nodes {
		if n.Name == name {
			return n.Ports
		}
	}
	t.Fatalf("no node %s", name)
	return nil
}

// Packets of every kind cross a switch, RDMA among them, over plain links and
// impaired ones, and the switch knows where the hosts are.
func TestSwitch(t *testing.T) {
	bothSwitches(t, testSwitch)
}

// bothSwitches runs a test of switches with bridges of the kernel, and with one that has a packet buffer.
func bothSwitches(t *testing.T, test func(*testing.T, func(fabric) fabric)) {
	t.Run("bridge", func(t *testing.T) { test(t, func(f fabric) fabric { return f }) })
	t.Run("buffer", func(t *testing.T) {
		test(t, func(f fabric) fabric {
			f.Nodes[0].Buffer = &topology.Buffer{Preset: topology.BufferHPCC}
			for i := range f.Links {
				for d := range f.Links[i].Directions {
					f.Links[i].Directions[d].Rate = 1e9
				}
			}
			return f
		})
	})
}

func testSwitch(t *testing.T, of func(fabric) fabric) {
	f := of(star(uniqueName(t), 4))
	f.Links[2].Directions[1].Delay = time.Millisecond
	f.Links[3].Directions[0].Loss.Rate = 0.01
	f.write("plain", "h0", "h1", 300)
	f.write("impaired", "h2", "h3", 300)
	l := start(t, f.Topology)
	echoes(t, l, "h0", "h1", "10.7.0.2:5001", "[fd00:7::2]:5001")
	echoes(t, l, "h0", "h2", "10.7.0.3:5001", "[fd00:7::3]:5001")
	if f.Nodes[0].Buffer == nil { // which sets the packets of one apart, by the rate of its port
		superPackets(t, l, "h1", "h0", "10.7.0.1:5003")
		superPackets(t, l, "h2", "h1", "10.7.0.2:5003")
	}
	streams(t, l, "h0", "h2", "10.7.0.3:5002", 8<<20)
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r)
	}
	var want []report.Port
	for i := range 4 {
		want = append(want, report.Port{Name: fmt.Sprintf("p%d", i), To: fmt.Sprintf("h%d:eth0", i), State: "forwarding", MACs: 1})
	}
	if diff := cmp.Diff(want, portsOf(t, l, "sw")); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// On a segment with as many nodes as are told of each other, no node asks: if all
// asked, the kernel's table of those that it asked about (gc_thresh3, 1024 in all
// namespaces together) would not hold them.
func TestSwitchWithKnownHosts(t *testing.T) {
	need.Time(t)
	f := star(uniqueName(t), maxNeighbours/2)
	l := start(t, f.Topology)
	if got := strings.Count(ip(t, l, "h0", "neigh", "show", "nud", "permanent"), "lladdr"); got != maxNeighbours-2 {
		t.Errorf("h0 knows %d neighbours, want %d", got, maxNeighbours-2)
	}
	echoes(t, l, "h0", "h99", "10.7.0.100:5001", "[fd00:7::64]:5001")
}

// On a segment with so many nodes that they are not told of each other, they ask.
func TestSwitchWithManyHosts(t *testing.T) {
	need.Time(t)
	f := star(uniqueName(t), 1+maxNeighbours/2)
	f.Links[0].Directions[0].Delay = time.Millisecond
	l := start(t, f.Topology)
	if got := ip(t, l, "h0", "neigh", "show", "nud", "permanent"); got != "" {
		t.Errorf("neighbours of h0: %s", got)
	}
	echoes(t, l, "h0", "h1", "10.7.0.2:5001", "[fd00:7::2]:5001")
}

// A link that ends at a switch is probed from the switch's port.
func TestVerifyLinkOfSwitch(t *testing.T) {
	f := star(uniqueName(t), 2)
	f.Links[1].Directions = [2]topology.Impairment{{Delay: 3 * time.Millisecond, Loss: topology.Loss{Rate: 0.3}}, {Delay: time.Millisecond}}
	for i := range f.Links {
		f.Links[i].Tolerance = patient
	}
	l := start(t, f.Topology)
	for endpoint, impaired := range map[string]bool{"sw:p0": false, "h1:eth0": true} {
		v := verified(t, l, endpoint, Probes{Count: 300})
		there, back := v.Directions[0], v.Directions[1]
		if !v.Passed || there.From != v.Endpoints[0] || there.Sent != 300 || back.Sent != 300 || back.Received != 300 ||
			(there.Lost > 0) != impaired || prompt(there.Delay.Min, 3000) != impaired || prompt(back.Delay.Min, 1000) != impaired ||
			prompt(there.Delay.Min, 0) == impaired || prompt(back.Delay.Min, 0) == impaired {
			t.Errorf("%s: %+v", endpoint, v)
		}
	}
}

// A host whose cable is pulled at the switch, or that dies, is off the network; the
// others stay, and it comes back with the cable.
func TestPortDownAndUp(t *testing.T) {
	bothSwitches(t, testPortDownAndUp)
}

func testPortDownAndUp(t *testing.T, of func(fabric) fabric) {
	l := start(t, of(star(uniqueName(t), 3)).Topology)
	state := func(port int, want string) {
		t.Helper()
		eventually(t, testTime, func() string {
			if p := portsOf(t, l, "sw")[port]; p.State != want || want == "disabled" && p.MACs > 0 {
				return fmt.Sprintf("port %+v, want %s", p, want)
			}
			return ""
		})
	}
	if got := program(t, l, "h1", "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	echo := pinging{program(t, l, "h0", "ping 10.7.0.2:5001")}
	for range 2 {
		if got := echo.roundTrip(t); got == "lost" {
			t.Fatal("lost while the port was up")
		}
		if err := l.Links.Down(testContext(t), "sw:p1"); err != nil {
			t.Fatal(err)
		}
		state(1, "disabled")
		if !echo.cutOff(t) {
			t.Fatal("arrived while the port was down")
		}
		if err := l.Links.Up(testContext(t), "sw:p1"); err != nil {
			t.Fatal(err)
		}
		state(1, "forwarding")
	}
	if got := echo.roundTrip(t); got == "lost" {
		t.Fatal("lost after the port came back")
	}
	topo := l.Info().Lab
	kill(t, processOf(t, topo, "ndklab-node "+topo+"/h2"))
	state(2, "disabled")
	wantCode(t, l.Links.Up(testContext(t), "sw:p2"), control.Usage)
	if got := echo.roundTrip(t); got == "lost" {
		t.Fatal("lost between hosts that are up")
	}
}

// While a switch is off or hangs its ports are disabled, and nothing gets across. Afterwards all is as before.
func TestSwitchFails(t *testing.T) {
	bothSwitches(t, testSwitchFails)
}

func testSwitchFails(t *testing.T, of func(fabric) fabric) {
	l := start(t, of(star(uniqueName(t), 3)).Topology)
	ctx := testContext(t)
	if got := program(t, l, "h1", "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	echo := pinging{program(t, l, "h0", "ping 10.7.0.2:5001")}
	for _, c := range []struct {
		fail, mend Action
		state      string
	}{{StopNode, StartNode, Down}, {KillNode, RestartNode, Down}, {PauseNode, ResumeNode, nodePaused}} {
		if got := echo.roundTrip(t); got == "lost" {
			t.Fatalf("lost before the switch failed by %s", c.fail)
		}
		is, err := call(ctx, l.session, methodChange, changeParams{Node: "sw", Action: c.fail, Signal: syscall.SIGKILL})
		if err != nil || is.State != c.state || is.Was != Ready {
			t.Fatalf("%s: %+v, %v", c.fail, is, err)
		}
		if !echo.cutOff(t) {
			t.Fatalf("arrived, though the switch is %s", c.state)
		}
		for _, p := range portsOf(t, l, "sw") {
			if p.State != "disabled" {
				t.Errorf("%s: %+v", c.fail, p)
			}
		}
		if got, err := Await(ctx, l.Info().Lab, "sw", Condition{State: c.state}, time.Second); err != nil || !got.Reached {
			t.Errorf("%s: it is awaited in vain: %+v, %v", c.fail, got, err)
		}
		_, err = l.Links.Verify(ctx, "sw:p0", Probes{Count: 10})
		if wantCode(t, err, control.Usage); err != nil && !strings.Contains(err.Error(), "node sw is "+c.state) {
			t.Errorf("%s: a link is probed: %v", c.fail, err)
		}
		if _, err = l.Nodes.Exec(ctx, "sw", node.Command{Args: []string{"true"}}); err == nil || err.Error() != "sw is a switch: it has no processes" {
			t.Errorf("%s: a program runs there: %v", c.fail, err)
		}
		if is, err = l.Nodes.Change(ctx, "sw", c.mend); err != nil || is.State != Ready || is.Was != c.state {
			t.Fatalf("%s: %+v, %v", c.mend, is, err)
		}
	}
	if got := echo.roundTrip(t); got == "lost" {
		t.Fatal("lost after the switch was mended")
	}
	inspection, err := l.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range inspection.Nodes {
		if n.Name == "sw" && (n.State != Ready || n.Restarts != 2) {
			t.Errorf("%+v, want ready, restarts: 2", n)
		}
	}
}

// Requests that need a process or an adapter say that a switch has neither, and a router
// no adapter.
func TestKinds(t *testing.T) {
	l := start(t, routed(uniqueName(t)).Topology)
	ctx := testContext(t)
	_, onSwitch := l.Nodes.Exec(ctx, "sw", node.Command{Args: []string{"true"}})
	_, counters := l.Nodes.Inspect(ctx, "sw")
	_, adapter := l.Nodes.Adapters(ctx, "r1")
	_, connections := l.Nodes.Connections(ctx, "r2")
	_, enable := l.Nodes.Enable(ctx, "r1", false)
	for _, c := range []struct {
		err  error
		want string
	}{
		{onSwitch, "sw is a switch: it has no processes"},
		{l.Nodes.Signal(ctx, "sw", "x", 1), "sw is a switch: it has no processes"},
		{counters, "sw is a switch: it has no adapter"},
		{adapter, "r1 is a router: it has no adapter"},
		{connections, "r2 is a router: it has no adapter"},
		{enable, "r1 is a router: it has no adapter"},
	} {
		wantCode(t, c.err, control.Usage)
		if c.err != nil && c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	adapters, err := l.Nodes.Adapters(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := l.Nodes.Inspect(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, n := range in.Nodes {
		kinds = append(kinds, n.Name+" "+n.Kind)
	}
	if len(adapters) != 3 || len(nodes) != 3 || strings.Join(kinds, ", ") != "a host, b host, c host, r1 router, r2 router, sw switch" {
		t.Errorf("%d adapters, %d nodes with counters, kinds %s", len(adapters), len(nodes), kinds)
	}
	if info := l.Info(); info.Nodes != 6 || info.Links != 5 {
		t.Errorf("%+v", info)
	}
}

// Switches in a ring, one of whose links is bad, find a spanning tree before the lab
// is up, say so, and find another one when a link breaks.
func TestSpanningTree(t *testing.T) {
	need.Time(t)
	f := newFabric(uniqueName(t))
	f.nodes(topology.Switch, "s0 s1 s2")
	f.nodes(topology.Host, "a b")
	for i := range f.Nodes[:3] {
		f.Nodes[i].SpanningTree = true
	}
	f.link("s0:eth0", "s1:eth1")
	f.link("s1:eth0", "s2:eth1").Directions[0].Delay = time.Millisecond
	f.link("s2:eth0", "s0:eth1")
	f.link("a:eth0 10.7.0.1/24 fd00:7::1/64", "s1:eth2")
	f.link("b:eth0 10.7.0.2/24 fd00:7::2/64", "s2:eth2")
	f.write("one", "a", "b", 100)
	told := make(chan string, 10)
	l := startWith(t, f.Topology, Options{Events: func(e event.Event) {
		if e.Kind == event.SpanningTree {
			told <- e.Text
		}
	}})
	for _, want := range []string{
		"the switches look for loops, which takes 4s at least",
		"the switches have found their spanning tree: forwarding ports: 7, blocking: 1",
	} {
		if got := <-told; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// s0 is the root, so that the link between the others is a spare.
	if p := portsOf(t, l, "s2")[0]; p.Name != "eth1" || p.State != "blocking" {
		t.Errorf("%+v", p)
	}
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r.Workloads)
	}
	// s2, which has the spare, loses its way to the root: it need not wait until what
	// it has heard there is too old.
	if err := l.Links.Down(testContext(t), "s2:eth0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, testTime, func() string {
		if p := portsOf(t, l, "s2")[0]; p.State != "forwarding" {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r.Workloads)
	}
}

// In a long ring no loop closes before all switches have heard of the root.
func TestForwardDelay(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 2 * time.Second, 4: 2 * time.Second, 7: 2500 * time.Millisecond, 12: 4 * time.Second, 200: 30 * time.Second} {
		f := newFabric(uniqueName(t))
		for i := range n {
			f.nodes(topology.Switch, fmt.Sprintf("s%d", i))
		}
		f.nodes(topology.Host, "a")
		f.link("a:eth0", "s0:eth9")
		for i := range n {
			if n > 1 {
				f.link(fmt.Sprintf("s%d:eth0", i), fmt.Sprintf("s%d:eth1", (i+1)%n))
			}
		}
		if got := forwardDelay(f.Topology, &f.Nodes[0]); got != want {
			t.Errorf("%d switches: %v, want %v", n, got, want)
		}
	}
}

// An external can be at a switch.
func TestExternalAtSwitch(t *testing.T) {
	f := newFabric(uniqueName(t))
	f.nodes(topology.Host, "n0")
	f.nodes(topology.Switch, "sw")
	f.link("n0:eth0 "+insideAddr+"/24", "sw:p0").MTU = 1500
	f.Links = append(f.Links, topology.Link{
		Number: 1, MTU: 1500, Endpoints: [2]topology.Endpoint{{Node: "sw", Interface: "p1"}, {Node: "external", Interface: outsideName}},
	})
	sw := f.FindNode("sw")
	sw.Interfaces = append(sw.Interfaces, topology.Interface{Name: "p1", Link: 1, End: 0})
	f.Externals = []topology.Interface{{Name: outsideName, Link: 1, End: 1, Addresses: []netip.Prefix{netip.MustParsePrefix(outsideAddr + "/24")}}}
	l := start(t, f.Topology)
	if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
		t.Fatal(got)
	}
	o := attach(t, onlyExternal(t, l))
	if got := o.ping(t, echoTime); got == "lost" {
		t.Error("no echo")
	}
	program(t, l, "n0", "send "+outsideAddr+":5000 1 10 1400").wait(t) // one super-packet
	if got := o.ask(t, "bulk 14000"); got != "whole" {
		t.Error(got)
	}
}
