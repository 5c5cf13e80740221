package lab

import (
	"context"
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
