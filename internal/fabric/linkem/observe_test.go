package linkem

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
)

// An observer of links is told of those where something has changed since he was last told, whatever others asked meanwhile.
func TestObserveTellsChanges(t *testing.T) {
	l := newLab(t, 1500)
	l.quiet(t)
	l.attach(t, topology.Impairment{Delay: time.Millisecond}, topology.Impairment{})
	bounds, others := []int64{int64(time.Hour)}, []int64{1, 2}
	observe := func(bounds []int64, since uint64) Observed {
		t.Helper()
		o, err := l.engine.Observe(deadline(t), bounds, since)
		must(t, err)
		return o
	}
	first := observe(bounds, 0)
	if _, ok := first.Links[linkName]; !ok || first.Number == 0 {
		t.Fatalf("%+v", first)
	}
	if idle := observe(others, first.Number); len(idle.Links) > 0 || idle.Number <= first.Number {
		t.Errorf("nothing has happened: %+v", idle)
	}
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	_, err := from.WriteTo(make([]byte, 100), to.LocalAddr())
	must(t, err)
	_, _, err = to.ReadFrom(make([]byte, 1500))
	must(t, err)
	must(t, l.engine.Idle(deadline(t), linkName)) // and with it the packet is counted
	theirs := observe(others, first.Number)
	if m := theirs.Links[linkName][0]; m.Packets != 1 || m.Delivered != 1 || len(m.DelayBars.UpTo) != len(others) {
		t.Errorf("after a packet: %+v", theirs)
	}
	second := observe(bounds, first.Number)
	if m := second.Links[linkName][0]; m.Packets != 1 || len(m.DelayBars.UpTo) != len(bounds) || m.DelayBars.UpTo[0] != 1 {
		t.Errorf("after a packet that others were told of: %+v", second)
	}
	if again := observe(bounds, second.Number); len(again.Links) > 0 {
		t.Errorf("nothing has happened since: %+v", again)
	}
	all := observe(bounds, 0)
	if diff := cmp.Diff(second.Links, all.Links); diff != "" {
		t.Errorf("all links (-told +all):\n%s", diff)
	}
}
