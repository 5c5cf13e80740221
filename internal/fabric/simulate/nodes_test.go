package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// do has an event happen, and fails the test if that is not possible.
func (l *lab) do(t testing.TB, e topology.Event) {
	t.Helper()
	if err := l.try(e); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
}

func (l *lab) try(e topology.Event) (err error) {
	l.Change(&e, func(e error) { err = e })
	l.clock.Run(0)
	return err
}

// long is a workload that goes on until it is told otherwise.
var long = workload.Spec{Operation: topology.Write, Size: 16 << 10, Depth: 4, Duration: time.Hour}

// The peer of a node that is killed finds out by its timeouts, in some seconds, and of
// the node's own client it is told at once. The node that is started again is reached.
func TestKilledNode(t *testing.T) {
	l := up(t, pair("delay: 1ms, rate: 1gbit"))
	var told []string
	l.Watch(func(e event.Event) { told = append(told, e.Kind+" of "+e.Node) })
	to, from := l.begin(t, "a", "b", long), l.begin(t, "b", "a", long)
	l.clock.Run(100 * time.Millisecond)
	l.do(t, topology.Event{Node: "b", NodeAction: topology.KillNode})
	l.clock.Run(0)
	if from.result == nil || from.err == nil || !strings.Contains(from.err.Error(), "node b went down") {
		t.Errorf("the client on the node: %+v, %v", from.result, from.err)
	}
	if to.result != nil {
		t.Fatalf("the peer knows at once: %+v, %v", to.result, to.err)
	}
	l.clock.Run(10 * time.Second)
	if to.result == nil || to.result.Errors == 0 {
		t.Fatalf("the peer after 10 s: %+v, %v", to.result, to.err)
	}
	if want := "node-down of b, qp-error of a"; strings.Join(told, ", ") != want {
		t.Errorf("told of %q, want %s", told, want)
	}
	if k := l.linksNow(t)[0]; k.State != "down" || k.Directions[0].LostBy.Down == 0 {
		t.Errorf("the link is %s: %+v", k.State, k.Directions[0])
	}
	if err := l.try(topology.Event{Down: true}); err == nil || !strings.Contains(err.Error(), "node b is down: its agent was killed by SIGKILL") {
		t.Errorf("a link without an end is changed: %v", err)
	}
	if l.device("b") != nil {
		t.Error("the node has an adapter")
	}
	l.do(t, topology.Event{Node: "b", NodeAction: topology.StartNode})
	l.Unserve("b", "ab", 0, func(_ workload.ServerResult, err error) {
		if err == nil || !strings.Contains(err.Error(), "node b was started again, and what its server had found is lost") {
			t.Errorf("the server of before: %v", err)
		}
	})
	w := l.begin(t, "a", "b", workload.Spec{Operation: topology.Send, Size: 100, Depth: 1, Count: 10})
	if r := w.end(t); w.err != nil || r.Errors != 0 {
		t.Errorf("after the start: %+v, %v", r, w.err)
	}
}

// A node that is paused does nothing until it is resumed; then what waited goes on.
func TestPausedNode(t *testing.T) {
	l := up(t, pair("delay: 1ms, rate: 1gbit"))
	w := l.begin(t, "a", "b", long)
	l.clock.Run(100 * time.Millisecond)
	progress := func() (messages uint64) {
		l.Progress("a", func(p []workload.Progress, err error) { messages = p[0].Messages })
		l.clock.Run(0)
		return messages
	}
	l.do(t, topology.Event{Node: "b", NodeAction: topology.PauseNode})
	before := progress()
	l.clock.Run(time.Second)
	if during := progress(); before == 0 || during > before+uint64(long.Depth) {
		t.Errorf("%d messages, %d after a second without the server", before, during)
	}
	if err := l.try(topology.Event{Node: "b", NodeAction: topology.PauseNode}); err == nil {
		t.Error("it is paused twice")
	}
	var states []report.Node
	l.Nodes([]string{"b"}, func(n []report.Node) { states = n })
	l.clock.Run(0)
	if len(states) != 1 || states[0].State != "paused" || len(states[0].Counters) != 0 {
		t.Errorf("the node is %+v", states)
	}
	l.do(t, topology.Event{Node: "b", NodeAction: topology.ResumeNode})
	l.clock.Run(time.Second)
	if after := progress(); after <= before+uint64(long.Depth) || w.result != nil {
		t.Errorf("%d messages, %d after the pause: %+v", before, after, w.result)
	}
	// A client that does not answer is done when it is aborted.
	l.do(t, topology.Event{Node: "a", NodeAction: topology.PauseNode})
	l.Abort("a", "ab", 0, "enough")
	l.clock.Run(0)
	if w.result == nil || w.err == nil {
		t.Errorf("aborted while paused: %+v, %v", w.result, w.err)
	}
}

// Packets for a node that is paused wait, as long as there is room: exactly as much as its file says.
func TestPausedNodeHasLittleRoom(t *testing.T) {
	l := up(t, strings.Replace(pair("delay: 1ms, rate: 10gbit"), "b: {}", "b: {adapter: {receive_buffer: 208KiB}}", 1))
	spec := long
	spec.Depth = 64
	w := l.begin(t, "a", "b", spec)
	l.clock.Run(100 * time.Millisecond)
	l.do(t, topology.Event{Node: "b", NodeAction: topology.PauseNode})
	l.clock.Run(10 * time.Millisecond)
	if p := l.network.byName["b"].life.port; p.waiting > 208<<10 || p.waiting < 208<<10-5000 || p.overflowed == 0 {
		t.Errorf("%d bytes wait, %d packets were lost", p.waiting, p.overflowed)
	}
	l.do(t, topology.Event{Node: "b", NodeAction: topology.ResumeNode})
	l.clock.Run(time.Second)
	if w.result != nil || l.device("b").TransportCounters()["receive_overflow"] == 0 {
		t.Errorf("%+v; %v", w.result, l.device("b").TransportCounters())
	}
}

// A node whose policy it is comes back after each crash, later each time, but not when it
// was stopped.
func TestRestartPolicy(t *testing.T) {
	l := up(t, strings.Replace(pair("mtu: 4200"), "b: {}", "b: {restart: always}", 1))
	var kinds []string
	l.Watch(func(e event.Event) { kinds = append(kinds, e.Kind+" "+e.At.String()) })
	kill := topology.Event{Node: "b", NodeAction: topology.KillNode}
	l.do(t, kill)
	l.clock.Run(100 * time.Millisecond)
	l.do(t, kill)
	l.clock.Run(200 * time.Millisecond)
	l.do(t, kill)
	l.do(t, topology.Event{Node: "b", NodeAction: topology.StopNode})
	l.clock.Run(time.Minute)
	want := "node-down 0s, node-up 100ms, node-down 100ms, node-up 300ms, node-down 300ms"
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Errors of what cannot be done to a node or link are those of a lab.
func TestChangeErrors(t *testing.T) {
	l := up(t, star)
	for _, c := range []struct {
		e    topology.Event
		want string
	}{
		{topology.Event{Node: "s", NodeAction: topology.ResumeNode}, "node s is not paused"},
		{topology.Event{Node: "a", NodeAction: topology.ResumeNode}, "node a is not paused"},
		{topology.Event{Node: "x", NodeAction: topology.KillNode}, `no node "x"`},
		{topology.Event{Link: 0, Set: topology.Change{Loss: &topology.Loss{Rate: 2}}}, "link a:eth0: packets from a"},
	} {
		if err := l.try(c.e); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.e, err, c.want)
		}
	}
}

// A switch that fails carries nothing until it is mended, and what was under way goes on.
func TestSwitchFails(t *testing.T) {
	const behindSwitch = `
topology:
  nodes: {a: , b: , s: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "s:p0"], delay: 100us, rate: 1gbit}
    - {endpoints: ["b:eth0", "s:p1"], delay: 100us}
`
	for fail, mend := range map[topology.NodeAction]topology.NodeAction{
		topology.StopNode: topology.StartNode, topology.KillNode: topology.StartNode, topology.PauseNode: topology.ResumeNode,
	} {
		l := up(t, behindSwitch)
		w := l.begin(t, "a", "b", long)
		messages := func() (n uint64) {
			l.Progress("a", func(all []workload.Progress, err error) { n = all[0].Messages })
			l.clock.Run(0)
			return n
		}
		l.clock.Run(50 * time.Millisecond)
		l.do(t, topology.Event{Node: "s", NodeAction: fail})
		l.clock.Run(10 * time.Millisecond) // for what has passed the switch
		before := messages()
		l.clock.Run(200 * time.Millisecond)
		if after := messages(); before == 0 || after != before {
			t.Errorf("%s: messages before: %d, while the switch was away: %d more", fail, before, after-before)
		}
		for _, k := range l.linksNow(t) {
			if k.State != "down" {
				t.Errorf("%s: link %s is %s", fail, k.Endpoints[0], k.State)
			}
		}
		l.do(t, topology.Event{Node: "s", NodeAction: mend})
		l.clock.Run(2 * time.Second)
		if after := messages(); after <= before || w.result != nil {
			t.Errorf("%s: messages after: %d more, result: %+v", mend, after-before, w.result)
		}
	}
}
