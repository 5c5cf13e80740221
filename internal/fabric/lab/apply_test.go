package lab

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/topology"
)

func init() {
	programs["lend"] = lend
	programs["write"] = write
}

// lend ADDRESS:PORT lends memory to one client, says "lent", and ends with the
// connection.
func lend(args []string) error {
	return withQP(func(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, qp *await.QP) error {
		memory, err := await.Register(ctx, pd, 64, provider.MRAllowRemoteWrite)
		if err != nil {
			return err
		}
		listener, err := await.Listen(ctx, adapter, netip.MustParseAddrPort(args[0]))
		if err != nil {
			return err
		}
		fmt.Println("listens")
		connection, err := listener.Next(ctx)
		if err != nil {
			return err
		}
		ctx, end := context.WithCancel(ctx)
		if err := await.Accept(ctx, connection, qp.QP, await.Options{Disconnected: end}); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(memory.Bytes, memory.RemoteToken())
		if _, err := qp.Done(ctx, qp.Send(nil, memory.SGL(0, 4), 0)); err != nil {
			return err
		}
		fmt.Println("lent")
		<-ctx.Done()
		return nil
	})
}

// write ADDRESS:PORT writes to the memory that a server lends, once for each line of
// its input, and says "written" when that has arrived.
func write(args []string) error {
	return withQP(func(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, qp *await.QP) error {
		memory, err := await.Register(ctx, pd, 64, provider.MRAllowLocalWrite)
		if err != nil {
			return err
		}
		if status := qp.Receive(nil, memory.SGL(0, 4)); status != provider.StatusSuccess {
			return status
		}
		if _, err := await.Dial(ctx, adapter, qp.QP, netip.Addr{}, netip.MustParseAddrPort(args[0]), await.Options{}); err != nil {
			return err
		}
		if _, err := qp.Received(ctx); err != nil {
			return err
		}
		token := binary.BigEndian.Uint32(memory.Bytes)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if _, err := qp.Done(ctx, qp.Write(nil, memory.SGL(0, 64), 0, token, 0)); err != nil {
				return err
			}
			fmt.Println("written")
		}
		return nil
	})
}

// withQP calls do with what it takes to connect. These objects stay until the program ends.
func withQP(do func(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, qp *await.QP) error) error {
	ctx := context.Background()
	device, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return status
	}
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return err
	}
	qp, err := await.NewQP(ctx, adapter, pd, 4, 1)
	if err != nil {
		return err
	}
	return do(ctx, adapter, pd, qp)
}

// writer connects two nodes by RDMA, and returns what writes over that.
func writer(t testing.TB, l *Lab, from, to, address string) func() {
	t.Helper()
	server := program(t, l, to, "lend "+address+":7000")
	if got := server.line(t); got != "listens" {
		t.Fatal(got)
	}
	client := program(t, l, from, "write "+address+":7000")
	if got := server.line(t); got != "lent" {
		t.Fatal(got)
	}
	return func() {
		t.Helper()
		if _, err := client.stdin.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		if got := client.line(t); got != "written" {
			t.Fatal(got)
		}
	}
}

// parsed is the topology of a file without its name.
func parsed(t testing.TB, name string, running *topology.Topology, file string) *topology.Topology {
	t.Helper()
	topo, err := topology.ParseWith(topology.Options{Running: running}, "test.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	topo.Name, topo.Seed, topo.HasSeed = name, 42, true
	return topo
}

// applied changes a lab to a file, and returns its topology.
func applied(t testing.TB, l *Lab, file string) *topology.Topology {
	t.Helper()
	standing, err := l.Standing(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	topo := parsed(t, l.Info().Lab, standing.Topology, file)
	if err := l.Apply(testContext(t), topo, standing); err != nil {
		t.Fatal(err)
	}
	return topo
}

func inspected(t testing.TB, l *Lab) *Inspection {
	t.Helper()
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func nodeOf(t testing.TB, in *Inspection, name string) report.Node {
	t.Helper()
	i := slices.IndexFunc(in.Nodes, func(n report.Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no node %s", name)
	}
	return in.Nodes[i]
}

const starFile = `topology:
  nodes: {a: , b: , s: {kind: switch}, r: {kind: router}, z: }
  links:
    - {endpoints: ["a:eth0", "s:1"]}
    - {endpoints: ["b:eth0", "s:2"], delay: 1ms, overrun: allow}
    - {endpoints: ["s:3", "r:1"]}
    - {endpoints: ["r:2", "z:eth0"]}
workloads:
  - {name: near, from: a, to: b, operation: write, size: 64KiB, count: 5, verify: true}
  - {name: far, from: z, to: a, operation: send, size: 4KiB, count: 5, verify: true}
`

// edited is the file with some of its lines replaced: old and new alternately. A new
// line that is "" leaves the old one out.
func edited(t testing.TB, file string, replace ...string) string {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(file, replace[i]) {
			t.Fatalf("no %q", replace[i])
		}
		file = strings.ReplaceAll(file, replace[i], replace[i+1])
	}
	return file
}

// However a lab has come to be that of its file, it is as if it had been made of that,
// and what the file leaves alone goes on: processes, and a connection between them.
func TestApply(t *testing.T) {
	tests := []struct {
		name     string
		from, to string
		others   string // nodes whose processes are others afterwards
	}{
		{"all kinds of changes", starFile, edited(t, starFile, "a: ,", "a: , c: ,", "b: ,", "b: {adapter: {max_cq_depth: 77}},", "z: }", "z: , q: {kind: router}, y: , u: {kind: switch}, x: }",
			`"s:1"]}`, `"s:1"], delay: 100us, overrun: allow}`, "delay: 1ms, ", "", `"r:1"]`, `"r:1"], offload: off`, `"r:2", "z:eth0"]}`, `"r:2", "z:eth0"], mtu: 1500}
    - {endpoints: ["c:eth0", "s:4"], loss: 1%, overrun: allow}
    - {endpoints: ["r:3", "q:1"]}
    - {endpoints: ["q:2", "y:eth0"]}
    - {endpoints: ["s:5", "u:1"]}
    - {endpoints: ["u:2", "x:eth0"]}`,
			"workloads:", "workloads:\n  - {name: new, from: c, to: y, operation: read, size: 4KiB, count: 5, verify: true}"), "b c q y x"},
		{"what stays", starFile, edited(t, starFile, "delay: 1ms", "delay: 2ms",
			`"s:1"]`, `"s:1"], mtu: 1500`, `"s:2"]`, `"s:2"], mtu: 1500`, `"r:1"]`, `"r:1"], mtu: 1500`, `"r:2", "z:eth0"]`, `"r:2", "z:eth0"], mtu: 1500`), ""},
		{"a router in the place of a switch", starFile, edited(t, starFile, "s: {kind: switch}", "s: {kind: router}"), "b s"},
		{"a link that closes a ring of switches", edited(t, starFile, "z: }", "z: , u: {kind: switch, stp: true}}", "s: {kind: switch}", "s: {kind: switch, stp: true}",
			"workloads:", "    - {endpoints: ['s:4', 'u:1']}\nworkloads:"),
			edited(t, starFile, "z: }", "z: , u: {kind: switch, stp: true}}", "s: {kind: switch}", "s: {kind: switch, stp: true}",
				"workloads:", "    - {endpoints: ['s:5', 'u:2']}\n    - {endpoints: ['s:4', 'u:1']}\nworkloads:"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := start(t, parsed(t, uniqueName(t), nil, test.from))
			before := inspected(t, l)
			others := strings.Fields(test.others)
			goesOn := func() {}
			if !slices.Contains(others, "a") && !slices.Contains(others, "b") {
				goesOn = writer(t, l, "a", "b", "10.0.0.2")
				goesOn()
			}
			topo := applied(t, l, test.to)
			goesOn()
			after := inspected(t, l)
			fresh := *topo
			fresh.Name += "-fresh"
			made := start(t, &fresh)
			for i, n := range after.Nodes {
				if n.Name != topo.Nodes[i].Name || n.State != nodeReady {
					t.Errorf("node %d is %s: %s, %s, want %s", i, n.Name, n.State, n.Reason, topo.Nodes[i].Name)
				}
				if n.Kind == string(topology.Switch) {
					continue
				}
				was := slices.IndexFunc(before.Nodes, func(o report.Node) bool { return o.Name == n.Name && o.PID == n.PID })
				if other := was < 0; other != slices.Contains(others, n.Name) {
					t.Errorf("node %s has other processes: %v", n.Name, other)
				}
				if diff := cmp.Diff(network(t, made, n.Name), network(t, l, n.Name)); diff != "" {
					t.Errorf("node %s (-made +changed):\n%s", n.Name, diff)
				}
			}
			for i, k := range after.Links {
				if want := topo.Links[i].Endpoints[0].String(); k.Endpoints[0] != want || k.State != "up" {
					t.Errorf("link %d is %v: %s, want %s", i, k.Endpoints, k.State, want)
				}
			}
			if r := runLab(t, l); !r.Passed || len(r.Workloads) != len(topo.Workloads) {
				t.Errorf("%+v", r)
			}
			goesOn()
		})
	}
}

// Counters of what goes on count on, and what a command has set stays unless the file
// changes the same.
func TestApplyKeeps(t *testing.T) {
	l := start(t, parsed(t, uniqueName(t), nil, starFile))
	if r := runLab(t, l); !r.Passed {
		t.Fatalf("%+v", r)
	}
	ctx := testContext(t)
	if err := l.Links.Set(ctx, "a:eth0", "", topology.Change{Delay: ref(3 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Links.Set(ctx, "b:eth0", "", topology.Change{Delay: ref(3 * time.Millisecond), Loss: &topology.Loss{Rate: 0.01}}); err != nil {
		t.Fatal(err)
	}
	before := inspected(t, l)
	applied(t, l, edited(t, starFile, "delay: 1ms", "delay: 2ms", `"s:3", "r:1"]`, `"s:3", "r:1"], down: true`))
	after := inspected(t, l)
	for _, name := range []string{"a", "b", "z"} {
		if was, is := nodeOf(t, before, name).Counters, nodeOf(t, after, name).Counters; !cmp.Equal(was, is) {
			t.Errorf("node %s: counters %v, before %v", name, is, was)
		}
	}
	for i := range before.Links {
		if was, is := before.Links[i].Directions[0].Packets, after.Links[i].Directions[0].Packets; is < was || was == 0 {
			t.Errorf("link %d: packets %d, before %d", i, is, was)
		}
	}
	got := fmt.Sprintf("%v %v %s", after.Links[0].Directions[0].Settings, after.Links[1].Directions[0].Settings, states(t, l))
	if want := "[delay=3ms] [delay=2ms] up up down up"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	applied(t, l, starFile)
	if got := states(t, l); got != "up up up up" {
		t.Errorf("links %s", got)
	}
}

// A lab is looked at while it changes, again and again, and every answer is of one
// moment.
func TestInspectAmidApply(t *testing.T) {
	l := start(t, parsed(t, uniqueName(t), nil, starFile))
	ctx, cancel := context.WithCancel(testContext(t))
	looked := make(chan error)
	go func() {
		looks := 0
		for ctx.Err() == nil {
			in, err := l.Inspect(ctx)
			if err != nil {
				break
			}
			looks++
			for _, k := range in.Links {
				for _, e := range k.Endpoints {
					node, _, _ := strings.Cut(e, ":")
					if !slices.ContainsFunc(in.Nodes, func(n report.Node) bool { return n.Name == node }) {
						looked <- fmt.Errorf("link %v to no node", k.Endpoints)
						return
					}
				}
			}
		}
		if looks == 0 {
			looked <- fmt.Errorf("nobody looked")
		}
		close(looked)
	}()
	other := edited(t, starFile, "a: ,", "c: , a: ,", `    - {endpoints: ["a:eth0", "s:1"]}`, `    - {endpoints: ["c:eth0", "s:4"]}`+"\n"+`    - {endpoints: ["a:eth0", "s:1"]}`)
	for range 2 {
		applied(t, l, other)
		applied(t, l, starFile)
	}
	cancel()
	if err := <-looked; err != nil {
		t.Error(err)
	}
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r)
	}
}

// Limits change while a node goes on, where the machine lets labs have any.
func TestApplyLimits(t *testing.T) {
	limited := edited(t, starFile, "b: ,", "b: {memory: 256MiB, pids: 500},")
	l := start(t, parsed(t, uniqueName(t), nil, limited))
	before := nodeOf(t, inspected(t, l), "b")
	applied(t, l, edited(t, limited, "256MiB", "512MiB", "500", "600"))
	after := nodeOf(t, inspected(t, l), "b")
	if after.PID != before.PID {
		t.Error("the node was restarted")
	}
	if before.Limits == nil {
		t.Skip("no limits here")
	}
	if got := after.Limits; *got.Memory != 512<<20 || *got.PIDs != 600 {
		t.Errorf("limits %d, %d", *got.Memory, *got.PIDs)
	}
	applied(t, l, edited(t, limited, "pids: 500", "cpu: 1"))
	if got := nodeOf(t, inspected(t, l), "b"); got.PID == before.PID || got.Limits.PIDs != nil || *got.Limits.CPU != 1 {
		t.Errorf("%+v", got)
	}
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r)
	}
}
