package linkem

import (
	"errors"
	"testing"
	"time"
)

func TestHostIsSaturatedWhenNoProcessorIsIdle(t *testing.T) {
	var idle time.Duration
	var failure error
	h := host{processors: 2, idle: func() (time.Duration, error) { return idle, failure }}
	now := time.Hour
	for _, c := range []struct {
		what    string
		after   time.Duration
		idle    float64 // share of the time since, of both processors
		err     error
		delayed bool
		want    bool
	}{
		{"asked for the first time", 0, 0, nil, false, false},
		{"not for long enough", hostWindow / 2, 0, nil, false, false},
		{"busy for a window", hostWindow / 2, 0.05, nil, false, true},
		{"no window has passed since", hostWindow / 2, 1, nil, false, true},
		{"idle half of it", hostWindow / 2, 0, nil, false, false},
		{"a little idle, from there", hostWindow, 0.2, nil, false, false},
		{"as much where links delay", hostWindow, 0.2, nil, true, true},
		{"idle for good", hostWindow, 0.6, nil, true, false},
		{"busy again", hostWindow, 0, nil, false, true},
		{"a little idle, from here", hostWindow, 0.2, nil, false, true},
		{"idle for longer, where links delay", hostWindow, 0.4, nil, true, true},
		{"as idle where they do not", hostWindow, 0.4, nil, false, false},
		{"busy", hostWindow, 0, nil, true, true},
		{"idle", hostWindow, 0.6, nil, true, false},
		{"busy, but not asked for long", time.Minute, 0, nil, false, false},
		{"busy once more", hostWindow, 0, nil, false, true},
		{"nobody knows", hostWindow, 0, errors.New("no such file"), false, false},
	} {
		now += c.after
		idle += time.Duration(c.idle * 2 * float64(c.after))
		failure = c.err
		if got := h.saturated(now, c.delayed); got != c.want {
			t.Fatalf("%s: saturated: %v, want %v", c.what, got, c.want)
		}
	}
}

// The idle time in /proc/uptime grows, and no faster than the time of all processors.
func TestUptimeIsReadable(t *testing.T) {
	h := openHost()
	first, err := h.idle()
	must(t, err)
	if first <= 0 || h.processors < 1 {
		t.Errorf("%d processors were idle for %v", h.processors, first)
	}
	if allocs := testing.AllocsPerRun(10, func() {
		if next, err := h.idle(); err != nil || next < first {
			t.Errorf("idle for %v after %v: %v", next, first, err)
		}
	}); allocs > 1 {
		t.Errorf("%v allocations", allocs)
	}
}
