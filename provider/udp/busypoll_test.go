package udp

import (
	"testing"
	"time"
)

// A spinner is a busyPoll in a time of its own.
type spinner struct {
	busyPoll
	at time.Duration
}

func newSpinner(most time.Duration) *spinner {
	s := &spinner{busyPoll: newBusyPoll(most), at: time.Second}
	s.now = func() time.Duration { return s.at }
	return s
}

// sleepFor has the goroutine sleep and be woken by an arrival.
func (s *spinner) sleepFor(d time.Duration) {
	s.noteSleep()
	s.at += d
	s.noteWakeup()
	s.noteArrival()
}

// looks looks every microsecond until an arrival, d from now, or until it is time to
// sleep, and returns how long it looked.
func (s *spinner) looks(d time.Duration) time.Duration {
	began := s.at
	for s.at-began < d {
		if !s.mayPoll() {
			return s.at - began
		}
		s.at += time.Microsecond
	}
	s.noteArrival()
	return s.at - began
}

func TestSpin(t *testing.T) {
	const most = 50 * time.Microsecond
	for name, test := range map[string]struct {
		before func(s *spinner)
		arrive time.Duration // from then on
		want   time.Duration // that it looks
	}{
		"at first it sleeps":                   {func(*spinner) {}, time.Second, 0},
		"after a long sleep it sleeps":         {func(s *spinner) { s.sleepFor(time.Millisecond) }, time.Second, 0},
		"after a short sleep it looks":         {func(s *spinner) { s.sleepFor(30 * time.Microsecond) }, 20 * time.Microsecond, 20 * time.Microsecond},
		"but not for long":                     {func(s *spinner) { s.sleepFor(30 * time.Microsecond) }, time.Second, most + time.Microsecond},
		"in vain once, it does not look again": {func(s *spinner) { s.sleepFor(30 * time.Microsecond); s.looks(time.Second) }, time.Second, 0},
		"in vain once, where it was often worth it, it looks again": {func(s *spinner) {
			s.sleepFor(30 * time.Microsecond)
			for range 10 {
				s.looks(5 * time.Microsecond)
			}
			s.looks(time.Second)
		}, time.Second, most + time.Microsecond},
		"where others need the processor it sleeps, many times": {func(s *spinner) {
			s.sleepFor(30 * time.Microsecond)
			s.mayPoll()
			s.at += 200 * time.Microsecond
			s.mayPoll()
			for range sleepsAfterPreemption - 1 {
				s.sleepFor(30 * time.Microsecond)
			}
		}, time.Second, 0},
		"and then looks again": {func(s *spinner) {
			s.sleepFor(30 * time.Microsecond)
			s.mayPoll()
			s.at += 200 * time.Microsecond
			s.mayPoll()
			for range sleepsAfterPreemption + 1 {
				s.sleepFor(30 * time.Microsecond)
			}
		}, time.Second, most + time.Microsecond},
	} {
		s := newSpinner(most)
		test.before(s)
		if got := s.looks(test.arrive); got != test.want {
			t.Errorf("%s: looked for %v, want %v", name, got, test.want)
		}
	}
	never := newSpinner(0)
	never.sleepFor(0)
	if got := never.looks(time.Second); got > 0 {
		t.Errorf("looked for %v, though it never should", got)
	}
}
