package lab

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// A link whose packets are on their way for long can be changed all the same, by
// callers that give up as well: it stays with the engine, and does what the last
// of them said.
func TestSetLinkWithPacketsOnTheirWay(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0].Delay = time.Minute
	l := start(t, topo)
	if !pinger(t, l).cutOff(t) {
		t.Fatal("a round trip within a minute")
	}
	set := func(ctx context.Context, c topology.Change, want ...string) error {
		t.Helper()
		err := l.Links.Set(ctx, "n0:eth0", "", c)
		link := firstLink(t, l)
		if diff := cmp.Diff(want, link.Directions[0].Settings); diff != "" || link.Engine != "linkem" {
			t.Errorf("engine %s, settings (-want +got):\n%s", link.Engine, diff)
		}
		return err
	}
	none := time.Duration(0)
	if err := set(testContext(t), topology.Change{Delay: &none}); err != nil {
		t.Error(err)
	}
	if err := set(testContext(t), topology.Change{Delay: ref(time.Millisecond)}, "delay=1ms"); err != nil {
		t.Error(err)
	}
	hasty, cancel := context.WithCancel(testContext(t))
	defer cancel()
	if err := l.Watch(testContext(t), func(e event.Event) {
		if strings.HasSuffix(e.Text, ": delay 0ms") { // and is waited for
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := set(hasty, topology.Change{Delay: &none}); err == nil {
		t.Error("a link with a packet on its way is plain")
	}
	if err := set(testContext(t), topology.Change{Loss: &topology.Loss{Rate: 0.5}}, "loss=50%"); err != nil {
		t.Error(err)
	}
	if err := l.Links.Down(testContext(t), "n0:eth0"); err != nil {
		t.Error(err)
	}
	if err := l.Links.Up(testContext(t), "n0:eth0"); err != nil {
		t.Error(err)
	}
	if err := l.Links.Reset(testContext(t), "n0:eth0", ""); err != nil {
		t.Error(err)
	}
}

// Every event of a timeline happens at its time, one after the other, also if one
// of them frees a link whose packets are on their way for a minute.
func TestTimelineOfPartitions(t *testing.T) {
	topo := star(uniqueName(t), 3).Topology
	slow := &topo.Links[2] // h2's
	slow.Directions[1].Delay = time.Minute
	topo.Links[0].Directions[0].Delay = time.Millisecond
	none := time.Duration(0)
	at := func(n int) time.Duration { return time.Duration(n) * 20 * time.Millisecond }
	topo.Timeline = []topology.Event{
		{At: at(1), Link: 2, Set: topology.Change{Delay: &none}},
		{At: at(2), Link: 0, Set: topology.Change{Delay: ref(2 * time.Millisecond)}},
		{At: at(3), Partition: [][]string{{"h0"}, {"h1"}}},
		{At: at(4), Partition: [][]string{{"h1"}}},
		{At: at(5), Heal: true},
		{At: at(6), Link: 0, Reset: true},
		{At: at(7), Heal: true},
	}
	f := fabric{topo}
	f.write("through", "h0", "h1", 200)
	topo.Workloads[0].Start = at(10)
	changes := make(chan string, 100)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind == event.LinkChanged {
			changes <- e.Text
		}
	}})
	// Something of h2's is on its way.
	pinging{program(t, l, "h2", "ping 10.7.0.1:5001")}.send(t, lossTime)
	eventually(t, testTime, func() string {
		links, err := l.Links.Inspect(testContext(t), "h2:eth0")
		if err != nil || links[0].Directions[1].Packets == 0 {
			return "no packet from h2"
		}
		return ""
	})
	if r := runLab(t, l); !r.Passed || len(r.Problems) > 0 {
		t.Errorf("%v, %+v", r.Problems, r.Workloads)
	}
	for _, want := range []string{
		"link sw:p2: delay 0ms", "link sw:p0: delay 2ms",
		"partition h0 h1: links that are down: 2", "partition h1: links that are down: 1", "the partition is over: links that are up again: 1",
		"link sw:p0: reset", "the partition is over: links that are up again: 0",
	} {
		select {
		case got := <-changes:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-testContext(t).Done():
			t.Fatalf("%q did not happen", want)
		}
	}
	if got := states(t, l); got != "up up up" {
		t.Errorf("links %s", got)
	}
	links, err := l.Links.Inspect(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := links[0].Directions[0].Settings; !slices.Equal(got, []string{"delay=1ms"}) {
		t.Errorf("after the reset: %q", got)
	}
}

// A timeline's change to a link that is gone is a problem of the run, and what comes
// after it happens.
func TestTimelineOfALinkThatIsGone(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	topo.Timeline = []topology.Event{
		{At: time.Millisecond, Link: 1, Set: topology.Change{Delay: ref(time.Millisecond)}}, // n1 to n2
		{At: 2 * time.Millisecond, Link: 2, Down: true},
		{At: 3 * time.Millisecond, Link: 0, Set: topology.Change{Delay: ref(2 * time.Millisecond)}},
	}
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-node "+topo.Name+"/n2"))
	eventually(t, testTime, func() string {
		in, err := l.Inspect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if in.Nodes[2].State != "down" {
			return "n2 is not down"
		}
		return ""
	})
	r := runLab(t, l)
	var problems []string
	for _, p := range r.Problems {
		if strings.HasPrefix(p, "timeline ") {
			problems = append(problems, p)
		}
	}
	if r.Passed || len(problems) != 2 || !strings.HasPrefix(problems[0], "timeline at 1ms: link n1:eth0: node n2 is down") || !strings.HasPrefix(problems[1], "timeline at 2ms: link n2:eth0: node n2 is down") {
		t.Errorf("passed %v, problems %q", r.Passed, r.Problems)
	}
	if got := r.Links[0].Directions[0].Settings; !slices.Equal(got, []string{"delay=2ms"}) {
		t.Errorf("what came after: %q", got)
	}
}
