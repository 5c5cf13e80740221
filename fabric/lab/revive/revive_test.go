package revive

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/provider/clock"
)

// A node that dies again and again waits longer each time, and not once it has lived
// for a while.
func TestReviverDelays(t *testing.T) {
	v := clock.NewVirtual()
	r := Reviver{Clock: v}
	var delays []time.Duration
	for _, lived := range []time.Duration{0, 0, 9 * time.Second, time.Hour, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10 * time.Second} {
		began, started := v.Now(), time.Duration(-1)
		said := r.After(lived, func(wanted func() bool) {
			if !wanted() || wanted() {
				t.Error("a start is not wanted once")
			}
			started = v.Now() - began
		})
		v.Run(2 * time.Minute)
		if said != started {
			t.Errorf("started after %v, said %v", started, said)
		}
		delays = append(delays, started)
	}
	ms := time.Millisecond
	want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms,
		12800 * ms, 25600 * ms, 51200 * ms, time.Minute, time.Minute, 100 * ms}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A start is called off before it begins, and while it waits for its turn.
func TestReviverCancel(t *testing.T) {
	v := clock.NewVirtual()
	r := Reviver{Clock: v}
	r.Cancel()
	r.After(0, func(func() bool) { t.Error("started") })
	r.Cancel()
	v.Run(time.Hour)
	began := false
	r.After(0, func(wanted func() bool) {
		began = true
		r.Cancel()
		if wanted() {
			t.Error("wanted although it was called off")
		}
	})
	v.Run(time.Hour)
	if !began {
		t.Error("the second start did not begin")
	}
}
