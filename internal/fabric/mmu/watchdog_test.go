package mmu

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// stormOf has port 1 paused from 1 ms on, without end if it is called each ms, and a packet for it.
func stormOf(t *testing.T, forward bool) *Switch[int] {
	s := switchOf(t, 3, 1<<20, lossless, func(c *Config) {
		c.Watchdog = Watchdog{Detect: 5 * ms, Restore: 4 * ms, Forward: forward}
	})
	return s
}

var stop = PFC{Enabled: 1 << 3, Quanta: [Classes]uint16{3: 65535}} // 3.355 ms

// TestWatchdogDrops: after Detect of a pause with something to send, and until Restore without one.
func TestWatchdogDrops(t *testing.T) {
	s := stormOf(t, false)
	s.Paused(0, 1, stop)
	s.Paused(1*ms, 1, stop)
	s.arrive(t, 2*ms, 0, 1, 3, 13, Admitted) // the time begins: before there was nothing to send
	s.pauses(t, 2*ms, 0, 3, MostQuanta)
	s.Paused(3*ms, 1, stop)
	s.Paused(6*ms, 1, stop)
	s.Advance(7*ms - 1)
	if got := s.Queued(1, 3); got != 13_000 {
		t.Fatalf("%d bytes before the time, want 13000", got)
	}
	s.Advance(7 * ms)
	if c := s.Counters(7*ms, 1, 3); c.Storms != 1 || c.Drops[Storm] != 13 || c.Packets != 0 {
		t.Fatalf("counters %+v", c)
	}
	n := 0
	for d, ok := s.Discarded(); ok; d, ok = s.Discarded() {
		n += d.Bytes
	}
	if n != 13_000 {
		t.Errorf("%d bytes discarded", n)
	}
	s.pauses(t, 7*ms, 0, 3, 0) // no victims: those behind may go on
	s.arrive(t, 8*ms, 0, 1, 3, 1, Storm)
	s.arrive(t, 8*ms, 0, 2, 3, 1, Admitted) // to another port
	s.arrive(t, 8*ms, 0, 1, 4, 1, Admitted) // another class
	// The pause of 6 ms ran out at 9.355392 ms. Another begins anew what is to pass.
	s.Paused(10*ms, 1, stop) // until 13.355392
	s.Paused(12*ms, 1, stop) // until 15.355392
	s.arrive(t, 14*ms, 0, 1, 3, 1, Storm)
	end := 12*ms + 3_355_392 + 4*ms
	s.arrive(t, end-1, 0, 1, 3, 1, Storm)
	if at, ok := s.Deadline(); !ok || at != end {
		t.Errorf("deadline %v %v, want %v", at, ok, end)
	}
	s.arrive(t, end, 0, 1, 3, 1, Admitted)
	if d, ok := s.Next(end, 1); !ok || d.Class != 4 && d.Class != 3 {
		t.Error("nothing leaves after the storm")
	}
}

// TestWatchdogForwards despite the pause, and then obeys again.
func TestWatchdogForwards(t *testing.T) {
	s := stormOf(t, true)
	s.Paused(0, 1, stop)
	s.arrive(t, 0, 0, 1, 3, 2, Admitted)
	s.Paused(3*ms, 1, stop)
	s.leave(t, 5*ms-1, 1, 0)
	s.leave(t, 5*ms, 1, 1)
	if got := s.Blocked(nil, 0); got != nil {
		t.Errorf("blocked %v", got)
	}
	s.Paused(6*ms, 1, PFC{Enabled: 1 << 3})
	s.leave(t, 7*ms, 1, 1)
	s.arrive(t, 9*ms, 0, 1, 3, 2, Admitted)
	s.Paused(9*ms, 1, stop)
	s.leave(t, 9*ms, 1, 1) // not over
	s.Paused(10*ms, 1, PFC{Enabled: 1 << 3})
	s.Advance(9*ms + 3_355_392) // when the pause would have run out
	if at, ok := s.Deadline(); !ok || at != 14*ms {
		t.Errorf("deadline %v %v, want 14 ms", at, ok)
	}
	s.Advance(14 * ms) // over
	s.Paused(14*ms, 1, stop)
	s.leave(t, 14*ms, 1, 0)
	if c := s.Counters(14*ms, 1, 3); c.Storms != 1 || c.Drops[Storm] != 0 {
		t.Errorf("counters %+v", c)
	}
}

// TestWatchdogCalledLate does not take a pause that ran out for a storm, and needs no more calls.
func TestWatchdogCalledLate(t *testing.T) {
	s := stormOf(t, false)
	s.arrive(t, 0, 0, 1, 3, 1, Admitted)
	s.Paused(0, 1, stop)
	s.Advance(20 * ms)
	if c := s.Counters(20*ms, 1, 3); c.Storms != 0 {
		t.Errorf("counters %+v", c)
	}
	if at, ok := s.Deadline(); ok {
		t.Errorf("deadline %v, want none", at)
	}
	s.leave(t, 20*ms, 1, 1)
	s.Paused(20*ms, 1, stop) // nothing waits
	s.Advance(24 * ms)
	if c := s.Counters(24*ms, 1, 3); c.Storms != 0 {
		t.Errorf("counters %+v", c)
	}
}

// TestRestoreIsDue once a frame has ended the pause of a storm.
func TestRestoreIsDue(t *testing.T) {
	s := stormOf(t, false)
	s.arrive(t, 0, 0, 1, 3, 1, Admitted)
	s.Paused(0, 1, stop)
	s.Paused(3*ms, 1, stop) // until 6.355392
	s.Paused(6*ms, 1, PFC{Enabled: 1 << 3})
	if at, ok := s.Deadline(); !ok || at > 10*ms {
		t.Errorf("deadline %v %v, want no later than 10 ms", at, ok)
	}
	s.arrive(t, 10*ms-1, 0, 1, 3, 1, Storm)
	s.arrive(t, 10*ms, 0, 1, 3, 1, Admitted)
}

// TestWatchdogIgnoresShortPauses: one that ends or lets a packet go is no storm.
func TestWatchdogIgnoresShortPauses(t *testing.T) {
	s := stormOf(t, false)
	s.arrive(t, 0, 0, 1, 3, 3, Admitted)
	s.Paused(0, 1, stop)
	s.Paused(4*ms, 1, stop) // the first ran out
	s.Paused(5*ms, 1, stop)
	s.Paused(7*ms, 1, PFC{Enabled: 1 << 3})
	s.leave(t, 7*ms, 1, 1)
	s.Paused(7*ms, 1, stop)
	s.Paused(10*ms, 1, stop)
	s.Advance(12*ms - 1)
	if c := s.Counters(12*ms-1, 1, 3); c.Storms != 0 {
		t.Errorf("counters %+v", c)
	}
	// A driver that calls late finds that the last pause, until 13.355 ms, lasted long enough.
	s.Advance(20 * ms)
	if c := s.Counters(20*ms, 1, 3); c.Storms != 1 || c.Drops[Storm] != 2 {
		t.Errorf("counters %+v", c)
	}
}
