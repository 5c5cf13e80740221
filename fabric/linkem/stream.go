package linkem

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A stream is how much arrives at all ports together. While that is much, the
// thread does not wait for frames but rests, and then takes all that have come:
// to be woken for each costs it, and the sender that it takes the processor from,
// more than the frame. On two processors, with RDMA WRITEs of 64 KiB, the thread
// took 75 ms of processor time per Gbit when it waited and 60 when it rested, the
// sender 80 and 63, the receiver 57 and 48.
//
// Rests are cut short by departures, so that packets that are delayed, or wait
// for a rate, are none the later; others are by up to a rest.
type stream struct {
	since time.Duration // when the window began
	bytes int           // that arrived in it
	runs  bool          // as of the window before
}

const (
	rest = 60 * time.Microsecond // some 64 KiB at 10 Gb/s
	// A stream is what brings at least this much over a window, bytes. A window is
	// long enough that no single message is one.
	streamWindow = 500 * time.Microsecond
	streamBytes  = 128 << 10 // 2 Gb/s
)

// goesOn reports whether there is a stream, at an instant that never goes back.
func (s *stream) goesOn(now time.Duration) bool {
	if length := now - s.since; length >= streamWindow {
		s.runs = float64(s.bytes)/float64(length) >= streamBytes/float64(streamWindow)
		s.since, s.bytes = now, 0
	}
	return s.runs
}

// rest sleeps until a rest is over or a departure is due, and says what events
// there are then. If frames wait already it does not sleep.
func (l *loop) rest(now time.Duration) (events int, err error) {
	length := rest
	if len(l.departures) > 0 {
		length = min(length, l.departures[0].release-now)
	}
	if length > 0 && !l.more {
		l.timeout = unix.NsecToTimespec(int64(length))
		// It fails only if a signal ends the sleep early, and that does no harm.
		_, _, _ = unix.Syscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&l.timeout)), 0, 0, 0)
	}
	return l.look()
}
