package clock_test

import (
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A function that is due after d by a clock of factor 40 runs at 40 d by the other, when it is d by
// the dilated one. That holds for timers that are set anew, too.
func TestDilated(t *testing.T) {
	v := clock.NewVirtual()
	v.Run(80)
	c := clock.Dilated(v, 40)
	if c.Now() != 2 {
		t.Fatalf("it is %v, want 2ns", c.Now())
	}
	type instants struct{ dilated, other time.Duration }
	var ran []instants
	note := func() { ran = append(ran, instants{c.Now(), v.Now()}) }
	first := c.AfterFunc(5, note)
	second := c.AfterFunc(5, note)
	c.Go(note)
	v.Run(0)
	if !second.Reset(7) {
		t.Error("a timer that is pending is not, Reset says")
	}
	v.Run(10 * 40)
	if first.Stop() {
		t.Error("a timer that has run was pending, Stop says")
	}
	want := []instants{{2, 80}, {7, 80 + 5*40}, {9, 80 + 7*40}}
	if len(ran) != 3 || ran[0] != want[0] || ran[1] != want[1] || ran[2] != want[2] {
		t.Errorf("ran at %v, want %v", ran, want)
	}
}

// A factor of 1 is the clock itself, and one of each clock is known.
func TestDilatedFactor(t *testing.T) {
	v := clock.NewVirtual()
	for _, factor := range []int{0, 1} {
		if c := clock.Dilated(v, factor); c != clock.Clock(v) || clock.Factor(c) != 1 {
			t.Errorf("a clock dilated by %d is another one", factor)
		}
	}
	if f := clock.Factor(clock.Dilated(v, 1000)); f != 1000 {
		t.Errorf("the factor is %d, want 1000", f)
	}
}

// A timer that is as good as never does not come at once since its time was multiplied.
func TestDilatedNever(t *testing.T) {
	v := clock.NewVirtual()
	clock.Dilated(v, 1000).AfterFunc(math.MaxInt64/10, func() { t.Error("ran") })
	v.Run(math.MaxInt64 / 10)
}
