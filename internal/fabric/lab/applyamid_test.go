package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file tests an Apply against all else that changes a lab, or waits for it.

// crowdFile is a lab whose hosts come and go.
const crowdFile = `topology:
  nodes: {s: {kind: switch}, a: , b: {restart: always}, c: {restart: always}}
  links:
    - {endpoints: ["a:eth0", "s:1"]}
    - {endpoints: ["b:eth0", "s:2"], delay: 1ms, overrun: allow}
    - {endpoints: ["c:eth0", "s:3"]}
`

// crowds are what becomes of crowdFile: a host less, a link more, an adapter that is
// another one, and a link that is.
func crowds(t *testing.T) []string {
	return []string{
		crowdFile,
		edited(t, crowdFile, ", c: {restart: always}", "", `    - {endpoints: ["c:eth0", "s:3"]}`+"\n", ""),
		crowdFile + `    - {endpoints: ["b:eth1", "c:eth1"]}` + "\n",
		edited(t, crowdFile, "b: {restart: always}", "b: {restart: always, adapter: {max_cq_depth: 77}}", "delay: 1ms", "loss: 1%"),
	}
}

// Nodes are stopped, started and killed, and their links changed, while the topology
// changes as well. Whatever meets what, each node is afterwards as the last topology
// has it, and no process is there that it does not have.
func TestApplyAmidChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(chaosSeed, 3))
	l := start(t, parsed(t, uniqueName(t), nil, crowdFile))
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var others sync.WaitGroup
	for _, name := range []string{"b", "c"} {
		seed := random.Uint64()
		others.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			actions := []func() error{
				func() error { _, err := l.Nodes.Change(ctx, name, RestartNode); return err },
				func() error { _, err := l.Nodes.Kill(ctx, name, unix.SIGKILL); return err },
				func() error { _, err := l.Nodes.Change(ctx, name, StopNode); return err },
				func() error { _, err := l.Nodes.Change(ctx, name, StartNode); return err },
				func() error {
					return l.Links.Set(ctx, name+":eth0", "", topology.Change{Delay: ref(time.Duration(random.IntN(2)) * time.Millisecond)})
				},
				func() error { return l.Links.Down(ctx, name+":eth0") },
				func() error { return l.Links.Up(ctx, name+":eth0") },
			}
			for ctx.Err() == nil {
				// What it says is not foreseeable: the node may be down, or gone.
				_ = actions[random.IntN(len(actions))]()
			}
		})
	}
	files := crowds(t)
	for i := range 12 {
		standing, err := l.Standing(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		// It fails when a node goes down whose interfaces it is about to make.
		_ = l.Apply(testContext(t), parsed(t, l.Info().Lab, standing.Topology, files[(i+1)%len(files)]), standing)
	}
	cancel()
	others.Wait()
	topo := applied(t, l, files[2])
	for _, name := range []string{"b", "c"} {
		act(t, l, name, StartNode, nodeReady)
	}
	for _, k := range topo.Links {
		if err := l.Links.Up(testContext(t), k.Endpoints[0].String()); err != nil {
			t.Error(err)
		}
	}
	if got := states(t, l); got != "up up up up" {
		t.Errorf("links %s", got)
	}
	for _, way := range [][2]string{{"a", "b"}, {"c", "a"}} {
		path, ok := topo.Path(way[0], way[1])
		if got := "no path"; !ok || roundTrip(t, l, way[0], way[1], path.To.Address.String()) == "lost" {
			t.Errorf("%v: %s", way, got)
		}
	}
	nodes := 0
	for _, p := range processes(topo.Name) {
		if strings.HasPrefix(p.args, "ndklab-node ") {
			nodes++
		}
	}
	if nodes != 3 {
		t.Errorf("%d agents, want 3: %v", nodes, processes(topo.Name))
	}
}

// Who waits for a node waits for the one that has the name by then, and hears that it
// has gone. A capture of an interface ends with it.
func TestWaitAmidApply(t *testing.T) {
	l := start(t, parsed(t, uniqueName(t), nil, crowdFile))
	act(t, l, "c", StopNode, nodeDown)
	ready := make(chan error, 1)
	go func() {
		a, err := Await(testContext(t), l.Info().Lab, "c", Condition{State: Ready}, testTime)
		if err == nil && !a.Reached {
			err = fmt.Errorf("%+v", a)
		}
		ready <- err
	}()
	captured, err := l.Capture(testContext(t), "s:3")
	if err != nil {
		t.Fatal(err)
	}
	defer captured.Socket.Close()
	defer captured.Tap.Close()
	// c becomes a router: another node. While there is none another link changes, of which
	// an event tells.
	applied(t, l, edited(t, crowdFile, "c: {restart: always}", "c: {kind: router}", "delay: 1ms", "delay: 2ms"))
	if err := <-ready; err != nil {
		t.Errorf("wait for c: %v", err)
	}
	select {
	case <-captured.Gone:
	case <-time.After(testTime):
		t.Error("the capture goes on without its link")
	}
	gone := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		_, err := Await(testContext(t), l.Info().Lab, "c", Condition{State: nodePaused}, testTime)
		gone <- err
	}()
	<-waiting
	applied(t, l, crowds(t)[1])
	if err := <-gone; err == nil || !strings.Contains(err.Error(), `no node "c"`) {
		t.Errorf("wait for a node that goes: %v", err)
	}
}

// What the kernel cannot do is found before anything of the lab is changed.
func TestApplyTooLarge(t *testing.T) {
	l := start(t, parsed(t, uniqueName(t), nil, crowdFile))
	standing, err := l.Standing(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	f := fabric{parsed(t, l.Info().Lab, standing.Topology, crowdFile)}
	for i := range link.MaxPorts {
		f.link(fmt.Sprintf("a:x%d", i), fmt.Sprintf("s:x%d", i))
	}
	err = l.Apply(testContext(t), f.Topology, standing)
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), "join several switches by a link") {
		t.Error(err)
	}
	if got := states(t, l); got != "up up up" {
		t.Errorf("links %s", got)
	}
	if in := inspected(t, l); in.Unfinished != "" {
		t.Errorf("unfinished: %s", in.Unfinished)
	}
}

// A lab whose node dies while the others start does not come up.
func TestNodeDiesAmidStart(t *testing.T) {
	f := newFabric(uniqueName(t))
	f.nodes(topology.Host, "a b")
	f.nodes(topology.Switch, "s")
	f.link("a:eth0 10.0.0.1/24", "s:1")
	f.link("b:eth0 10.0.0.2/24", "s:2")
	f.FindNode("s").SpanningTree = true // which is waited for when the nodes are ready
	l, err := Start(testContext(t), f.Topology, Options{Events: func(e event.Event) {
		if e.Kind == event.SpanningTree && strings.Contains(e.Text, "look for loops") {
			kill(t, processOf(t, f.Name, "ndklab-node "+f.Name+"/b"))
		}
	}})
	if err == nil {
		err = errors.Join(errors.New("it came up"), l.Close())
	}
	if !strings.Contains(err.Error(), "node b: its agent was killed by SIGKILL") {
		t.Error(err)
	}
	if rest := remains(t, f.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}
