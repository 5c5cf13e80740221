package hosts

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/trunk"
)

// A host's clock is as the comparison says, within the error that it states, also at once after either of the clocks was set, and as the
// measurements grow old.
func TestComparison(t *testing.T) {
	const begin = 400 * time.Hour // of the head's wall clock
	now, wall, ahead := time.Second, time.Duration(begin), 3*time.Second
	c := &comparison{wall: func() (time.Duration, time.Duration) { return wall + now, now }}
	measure := func(there, back time.Duration) {
		asked := now
		now += there
		told := wall + now + ahead
		now += back
		c.add(told, asked, now)
	}
	check := func(what string, wrong time.Duration) {
		t.Helper()
		if got := c.difference(); (got.Ahead-ahead).Abs() > got.Wrong || got.Wrong != wrong {
			t.Errorf("%s: %v ahead, may be wrong by %v: expected %v ahead, and %v", what, got.Ahead, got.Wrong, ahead, wrong)
		}
	}
	measure(300*time.Microsecond, 100*time.Microsecond)
	check("at once", 200*time.Microsecond)
	measure(20*time.Microsecond, 40*time.Microsecond)
	check("after a quicker trip", 30*time.Microsecond)
	if got := c.trip(); got != 60*time.Microsecond {
		t.Errorf("a trip takes %v", got)
	}
	measure(2*time.Millisecond, 20*time.Microsecond)
	check("after a slow one", 30*time.Microsecond+40*time.Nanosecond)
	wall -= time.Minute // the head's is set back: the host's stays
	ahead += time.Minute
	check("when the head's clock was set", 30*time.Microsecond+40*time.Nanosecond)
	ahead -= time.Hour // the host's is set
	measure(50*time.Microsecond, 50*time.Microsecond)
	check("when the host's clock was set", 50*time.Microsecond)
	now += time.Second
	check("a second later", 70*time.Microsecond)
}

// A head knows by how much the clocks of its hosts are ahead of its own, from the beginning on, and their parts know it, too.
func TestClock(t *testing.T) {
	const shift = 5 * time.Second
	t.Setenv(ClockVariable, "host2="+shift.String())
	_, found, _ := come(t, Spec{Kind: Local, Count: 2})
	for i, host := range found {
		check := func(who string, got trunk.Difference) {
			if off := (got.Ahead - time.Duration(i)*shift).Abs(); got.Wrong <= 0 || off > got.Wrong {
				t.Errorf("the %s has %s %v ahead, wrong by %v at most: expected %v", who, host.Name, got.Ahead, got.Wrong, time.Duration(i)*shift)
			}
		}
		check("head", host.Clock())
		told, err := methodClocks.Call(t.Context(), host.Conn, nil)
		if err != nil || len(told) == 0 {
			t.Fatalf("the part was told %v, %v", told, err)
		}
		check("part", told[0])
		eventually(t, func() string { // and goes on
			if told, err = methodClocks.Call(t.Context(), host.Conn, nil); err != nil || len(told) < 3 {
				return "the part is told no more"
			}
			return ""
		})
		check("part", told[2])
	}
}
