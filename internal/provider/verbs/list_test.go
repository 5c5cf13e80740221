package verbs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// The device counts what a context has made as in use, until it is destroyed or the
// context is closed.
func TestInUse(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	want := func(qps, cqs, mrs, pds, mws, srqs uint32, instances int) {
		t.Helper()
		if got := a.device.Usage(); got != (provider.Usage{Instances: instances, Qps: qps, Cqs: cqs, Mrs: mrs, Pds: pds, Mws: mws, Srqs: srqs}) {
			t.Errorf("in use %+v", got)
		}
	}
	want(0, 1, 1, 1, 0, 0, 1)
	qp := a.create(verbs.UD, nil)
	other := must2(verbs.Open(a.device, verbs.DefaultLimits(), a.noteEvent))(t)
	pd := must2(other.AllocPD())(t)
	want(1, 1, 1, 2, 0, 0, 2)
	check(t, qp.Destroy())
	want(0, 1, 1, 2, 0, 0, 2)
	a.create(verbs.RC, nil)
	check(t, a.Close())
	check(t, a.Close())
	want(0, 0, 0, 1, 0, 0, 1)
	check(t, a.mr.Deregister())
	check(t, pd.Dealloc())
	check(t, other.Close())
	want(0, 0, 0, 0, 0, 0, 0)
}

func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T { return must(t, v, err) }
}

// The device lists queue pairs of every kind, with their peers, states and packets.
func TestListed(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.hosts[0], w.hosts[1]
	var want []string
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC} {
		qps := w.pair(kind, nil)
		w.post(qps[0], a.request(rc.OpWrite, 1, 0, 3000, 0))
		w.run()
		name := map[verbs.QPType]string{verbs.RC: "RC", verbs.UC: "UC"}[kind]
		received := map[verbs.QPType]int{verbs.RC: 2, verbs.UC: 0}[kind] // acknowledgements
		want = append(want, fmt.Sprintf("%s rts to %d at %s from %s: 3 sent, %d received", name, qps[1].Number(), b.address, a.address, received))
	}
	ud := a.create(verbs.UD, nil)
	a.create(verbs.RC, nil)
	want = append(want, "UD reset to 0 at invalid IP from invalid IP: 0 sent, 0 received", "RC reset to 0 at invalid IP from invalid IP: 0 sent, 0 received")
	listed := func() map[string]int {
		lines := map[string]int{}
		for _, q := range a.device.QueuePairs() {
			lines[fmt.Sprintf("%s %s to %d at %v from %v: %d sent, %d received", q.Transport, q.State, q.PeerNumber, q.Remote, q.Local, q.Sent, q.Received)]++
		}
		return lines
	}
	got := listed()
	for _, line := range want {
		if got[line] != 1 {
			t.Errorf("%d times %q in %v", got[line], line, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	check(t, ud.Destroy())
	if got := listed(); len(got) != len(want)-1 {
		t.Errorf("%v", got)
	}
	check(t, a.Close())
	if got := listed(); len(got) != 0 {
		t.Errorf("of a context that is closed: %v", got)
	}
}

// TestErrorsTold: the device is told of queue pairs that go to error by themselves, with
// the reason, and not of those that the program takes there.
func TestErrorsTold(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	qps := w.pair(verbs.RC, nil)
	other := w.pair(verbs.RC, nil)
	check(t, qps[1].Destroy())
	a.cq.Arm(false)
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 10, 0))
	w.modify(other[0], verbs.Attributes{State: verbs.Error}, 0)
	w.clock.Run(10 * time.Second)
	if len(a.errors) != 1 || a.errors[0].Number != qps[0].Number() || a.errors[0].Remote != w.hosts[1].address || !strings.HasPrefix(a.errors[0].Reason, "no answer from the peer") {
		t.Errorf("%+v", a.errors)
	}
	// With the completion the program may end.
	if !a.unknown || a.notified != 1 {
		t.Errorf("told before the program knows: %v; notified %d times", a.unknown, a.notified)
	}
}
