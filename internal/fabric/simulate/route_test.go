package simulate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// star is three hosts at a switch.
const star = `
topology:
  nodes: {a: {}, b: {}, c: {}, s: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "s:p0"], delay: 1ms}
    - {endpoints: ["b:eth0", "s:p1"], delay: 2ms}
    - {endpoints: ["c:eth0", "s:p2"], rate: 1gbit}
`

// routed is two hosts behind two routers, which are joined by two links each of which is
// a way.
const routed = `
topology:
  nodes: {a: {}, b: {}, r: {kind: router}, q: {kind: router}}
  links:
    - {endpoints: ["a:eth0", "r:eth0"]}
    - {endpoints: ["r:eth1", "q:eth1"]}
    - {endpoints: ["r:eth2", "q:eth2"]}
    - {endpoints: ["b:eth0", "q:eth0"]}
`

// ringOfSwitches is two hosts at switches in a ring.
const ringOfSwitches = `
topology:
  nodes: {a: {}, b: {}, s: {kind: switch, stp: true}, t: {kind: switch, stp: true}, u: {kind: switch, stp: true}}
  links:
    - {endpoints: ["a:eth0", "s:p0"]}
    - {endpoints: ["b:eth0", "t:p0"]}
    - {endpoints: ["s:p1", "t:p1"]}
    - {endpoints: ["t:p2", "u:p2"]}
    - {endpoints: ["u:p1", "s:p2"]}
`

var some = workload.Spec{Operation: topology.Send, Size: 5000, Depth: 2, Count: 50, Verify: true}

// crossed is which links have carried packets.
func (l *lab) crossed(t testing.TB) string {
	var names []string
	for _, k := range l.linksNow(t) {
		if k.Directions[0].Packets > 0 && k.Directions[1].Packets > 0 {
			names = append(names, k.Endpoints[0])
		}
	}
	return strings.Join(names, " ")
}

func TestWays(t *testing.T) {
	for _, c := range []struct{ name, file, crossed string }{
		{"switch", star, "a:eth0 b:eth0"},
		{"ring of switches", ringOfSwitches, "a:eth0 b:eth0 s:p1"},
	} {
		l := up(t, c.file)
		w := l.begin(t, "a", "b", some)
		if r := w.end(t); w.err != nil || r.Messages != some.Count || r.Errors != 0 {
			t.Errorf("%s: %+v, %v", c.name, r, w.err)
		}
		if got := l.crossed(t); got != c.crossed {
			t.Errorf("%s: over %s, want %s", c.name, got, c.crossed)
		}
	}
}

// Flows share equal ways, and all take the one that is left when the other's link is
// down.
func TestEqualWays(t *testing.T) {
	l := up(t, routed)
	path, ok := l.topo.Path("a", "b")
	if !ok {
		t.Fatal("no path")
	}
	count := func() (middle [4]int) {
		for port := range uint16(1000) {
			w := l.network.way(l.network.byName["a"], roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000 + port})
			if w == nil || len(w.wires) != 3 {
				t.Fatalf("a way is %+v", w)
			}
			middle[w.wires[1].Link]++
		}
		return middle
	}
	if m := count(); m[1] < 400 || m[2] < 400 {
		t.Errorf("flows over the two links in the middle: %d and %d", m[1], m[2])
	}
	l.do(t, topology.Event{Link: 1, Down: true})
	if m := count(); m[2] != 1000 {
		t.Errorf("flows over the two links, of which the first is down: %d and %d", m[1], m[2])
	}
	w := l.begin(t, "a", "b", some)
	if r := w.end(t); w.err != nil || r.Messages != some.Count || r.Errors != 0 {
		t.Errorf("%+v, %v", r, w.err)
	}
}

// A spanning tree takes a spare link when another goes down, and packets that have
// nowhere else to go are lost on the link that is down.
func TestLinksDown(t *testing.T) {
	l := up(t, ringOfSwitches)
	l.do(t, topology.Event{Link: 2, Down: true})
	l.begin(t, "a", "b", some).end(t)
	if got, want := l.crossed(t), "a:eth0 b:eth0 t:p2 u:p1"; got != want {
		t.Errorf("over %s, want %s", got, want)
	}

	l = up(t, star)
	l.do(t, topology.Event{Link: 1, Down: true})
	w := l.begin(t, "a", "b", some)
	l.clock.Run(time.Second)
	if k := l.linksNow(t)[1]; w.result != nil || k.State != "down" || k.Directions[1].LostBy.Down == 0 {
		t.Errorf("result %+v; %+v", w.result, k)
	}
	l.do(t, topology.Event{Link: 1, Up: true})
	if r := w.end(t); w.err != nil || r.Errors != 0 {
		t.Errorf("%+v, %v", r, w.err)
	}
}

// A partition parts sets of nodes until it is healed, and what it takes down loses what
// is on its way.
func TestPartition(t *testing.T) {
	l := up(t, star)
	w := l.begin(t, "a", "b", some)
	l.clock.Run(500 * time.Microsecond)
	l.do(t, topology.Event{Partition: [][]string{{"a"}, {"b", "s"}}})
	before := l.linksNow(t)[0].Directions[0]
	if before.LostBy.Down == 0 {
		t.Errorf("nothing was on its way: %+v", before)
	}
	l.clock.Run(100 * time.Millisecond)
	if k := l.linksNow(t); k[0].State != "down" || k[1].State != "up" || w.result != nil {
		t.Errorf("link 0 %s, link 1 %s, result %+v", k[0].State, k[1].State, w.result)
	}
	l.do(t, topology.Event{Link: 0, Up: true})
	if k := l.linksNow(t); k[0].State != "up" {
		t.Errorf("link 0 is %s although it was brought up", k[0].State)
	}
	l.do(t, topology.Event{Partition: [][]string{{"a"}, {"b", "s"}}})
	l.do(t, topology.Event{Heal: true})
	if r := w.end(t); w.err != nil || r.Errors != 0 || r.Messages != some.Count {
		t.Errorf("%+v, %v", r, w.err)
	}
}

// A link is changed in one direction or both, and reset.
func TestSetLink(t *testing.T) {
	l := up(t, star)
	loss := topology.Loss{Rate: 0.5}
	delay := 7 * time.Millisecond
	l.do(t, topology.Event{Link: 0, From: "s", Set: topology.Change{Loss: &loss}})
	l.do(t, topology.Event{Link: 0, Set: topology.Change{Delay: &delay}})
	d := l.linksNow(t)[0].Directions
	if got := fmt.Sprint(d[0].Settings, d[1].Settings); got != "[delay=7ms] [delay=7ms loss=50%]" {
		t.Errorf("set: %s", got)
	}
	l.do(t, topology.Event{Link: 0, Reset: true})
	d = l.linksNow(t)[0].Directions
	if got := fmt.Sprint(d[0].Settings, d[1].Settings); got != "[delay=1ms] [delay=1ms]" {
		t.Errorf("reset: %s", got)
	}
}

// Hosts know what they have a route to, and the MTU of their links.
func TestReach(t *testing.T) {
	l := up(t, routed)
	p := l.network.byName["a"].life.port
	path, _ := l.topo.Path("a", "b")
	for to, want := range map[netip.Addr]provider.Status{
		path.To.Address: provider.StatusSuccess, path.From.Address: provider.StatusSuccess, netip.MustParseAddr("fd00::1:2"): provider.StatusSuccess,
	} {
		if got := p.Reach(path.From.Address, to); got != want {
			t.Errorf("%s: %v, want %v", to, got, want)
		}
	}
	l = up(t, star)
	if got := l.network.byName["a"].life.port.Reach(path.From.Address, netip.MustParseAddr("192.0.2.1")); got != provider.StatusNetworkUnreachable {
		t.Errorf("without a route: %v", got)
	}
	if got := p.MTU(path.From.Address); got != 4200 {
		t.Errorf("MTU %d", got)
	}
}

// A router whose processes are paused forwards, one that is down does not, and what is
// too large for a link behind it is not sent at all.
func TestRouters(t *testing.T) {
	l := up(t, routed)
	l.do(t, topology.Event{Node: "r", NodeAction: topology.PauseNode})
	w := l.begin(t, "a", "b", some)
	if r := w.end(t); w.err != nil || r.Errors != 0 {
		t.Errorf("through a router that is paused: %+v, %v", r, w.err)
	}
	l.Unserve("b", "ab", 0, func(workload.ServerResult, error) {})
	l.clock.Run(time.Second)
	l.do(t, topology.Event{Node: "q", NodeAction: topology.StopNode})
	w = l.begin(t, "a", "b", some)
	l.clock.Run(time.Second)
	if k := l.linksNow(t); w.result != nil || k[3].State != "down" || k[0].State != "up" {
		t.Errorf("through a router that is down: %+v; the link behind it is %s, that before the other one %s", w.result, k[3].State, k[0].State)
	}

	l = up(t, star)
	a := l.network.byName["a"]
	path, _ := l.topo.Path("a", "b")
	flow := roce.Flow{Local: path.From.Address, Remote: path.To.Address, SourcePort: 0xC000}
	packet := roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{make([]byte, 5000)}}
	if err := a.life.port.Send(flow, []roce.Packet{packet}); err != nil {
		t.Fatal(err)
	}
	if c := a.life.port.Counters(); c["send_too_big"] != 1 || c["packets_sent"] != 0 {
		t.Errorf("%v", c)
	}
	flow.Remote = netip.MustParseAddr("192.0.2.1")
	if err := a.life.port.Send(flow, []roce.Packet{packet}); err != nil {
		t.Fatal(err)
	}
	if c := a.life.port.Counters(); c["send_dropped"] != 1 {
		t.Errorf("%v", c)
	}
}

// fatTree is one of k=4, all of whose hosts send to each other, when an aggregation router
// is switched off.
const fatTree = `
seed: 1
topology:
  convergence: CONVERGENCE
  fabric: {shape: fat-tree, k: 4, tiers: {host: {delay: 200us}}}
workloads:
  - {name: all, pattern: all-to-all, nodes: "p*-h*", operation: write, size: 4KiB, count: 100, verify: true}
timeline:
  - {at: 20ms, stop: p1-agg1}
`

// Every host gets through to every other again when the routers have other routes, and
// nothing is lost for good. Without, flows stay lost that a core sent to the router.
func TestFatTreeLosesRouter(t *testing.T) {
	for convergence, converges := range map[string]bool{"50ms": true, "never": false} {
		topo := parsed(t, strings.Replace(fatTree, "CONVERGENCE", convergence, 1))
		var told []event.Event
		r, err := Run(t.Context(), topo, Options{Events: func(e event.Event) {
			if e.Kind == event.RoutesConverged || e.Kind == event.NodeDown {
				told = append(told, e)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		w := r.Workloads[0]
		if lost := w.Errors > 0 || w.Messages < 16*15*100; lost == converges {
			t.Errorf("convergence %s: messages: %d, errors: %d", convergence, w.Messages, w.Errors)
		}
		if !converges {
			if len(told) != 1 {
				t.Errorf("told %+v", told)
			}
			continue
		}
		if len(told) != 2 || told[1].At-told[0].At != 50*time.Millisecond || told[1].Routes == nil || told[1].Routes.OutOfReach != 0 || told[1].Routes.Changed == 0 {
			t.Errorf("told %+v", told)
		}
	}
}

// Packets to a host that no route leads to are dropped where they leave, and counted.
func TestUnreachableHost(t *testing.T) {
	l := up(t, strings.Replace(routed, "topology:", "topology:\n  convergence: 50ms", 1))
	w := l.begin(t, "a", "b", long)
	l.clock.Run(10 * time.Millisecond)
	l.do(t, topology.Event{Link: 1, Down: true})
	l.do(t, topology.Event{Link: 2, Down: true})
	dropped := func() uint64 { return l.network.byName["a"].life.port.Counters()["send_dropped"] }
	l.clock.Run(49 * time.Millisecond)
	if n := dropped(); n != 0 {
		t.Errorf("before routes have converged, %d packets are dropped", n)
	}
	l.clock.Run(10 * time.Second)
	if n := dropped(); n == 0 || w.result == nil || w.result.Errors == 0 {
		t.Errorf("%d packets are dropped, and the workload has %+v", n, w.result)
	}
}
